//! Rules on devices that programs other than Saturn use: left to them as soon as no attempt holds the
//! device, and used again afterwards. Memory that the others take says nothing of a strategy.

use std::collections::BTreeSet;

use saturn_core::{Gang, StrategyKey, TrialOutcome};
use saturn_engine::{AttemptEnd, AttemptId, DeviceId, FailureKind, Purpose, devices};

use crate::judge::books::Books;

impl Books {
    /// The driver has seen which devices others use.
    pub(super) fn note_outside(&mut self, used: BTreeSet<DeviceId>) {
        self.outside.shared.retain(|id| used.contains(id));
        let free: Vec<DeviceId> = self.outside.left.difference(&used).copied().collect();
        self.must_return(&free);
        self.outside.used = used;
    }

    /// A decision is over: no device that others use is free for Saturn's tasks.
    pub(super) fn check_left_to_others(&mut self) {
        let is_there =
            |id: &DeviceId| self.nodes.get(id.node.0).is_some_and(|(_, _, gpus)| id.device < *gpus);
        let is_held = |id: &DeviceId| {
            let mut live = self.attempts.values().filter(|one| one.end.is_none());
            live.any(|one| devices(&one.gang).any(|held| held == *id))
        };
        let to_leave = self.outside.used.iter().filter(|id| self.outside.is_to_be_left(id));
        let free: Vec<DeviceId> = to_leave
            .filter(|id| is_there(id) && !self.set_aside.contains(id) && !is_held(id))
            .copied()
            .collect();
        if self.ended.is_none() && !free.is_empty() {
            self.wrong("what others use is left to them", format!("{free:?} can be used"));
        }
    }

    /// An attempt is launched: not beside others, unless a person has said so.
    pub(super) fn check_launched_alone(&mut self, gang: &Gang) {
        let beside: Vec<DeviceId> =
            devices(gang).filter(|id| self.outside.is_to_be_left(id)).collect();
        if !beside.is_empty() {
            self.wrong("what others use is left to them", format!("a launch on {beside:?}"));
        }
    }

    /// An attempt lacked memory on a device that others use: people are told that these may have it.
    /// Nobody knows that of ranks whose ends were not heard.
    pub(super) fn check_is_told_of_others(&mut self, id: AttemptId, end: &AttemptEnd) {
        let Some(one) = self.attempts.get(&id).filter(|one| !one.is_left) else { return };
        let AttemptEnd::Failed { failure } = end else { return };
        let is_short = failure.kind == FailureKind::OutOfMemory;
        let are_beside = self.outside.are_beside(&one.gang).is_some();
        if is_short && are_beside && !failure.error.contains("outside Saturn") {
            let what = format!("{id} beside others: {failure:?}");
            self.wrong("who lacks memory beside others is told of them", what);
        }
    }

    /// A trial's outcome is that memory was short: not beside others, who may have taken it.
    pub(super) fn check_memory_was_its_own(
        &mut self,
        group: &str,
        (key, gpu_type): (&StrategyKey, &str),
        outcome: &TrialOutcome,
    ) {
        let is_of_type = |gang: &Gang| {
            let node = gang.first().and_then(|part| self.nodes.get(part.node));
            node.is_some_and(|(_, of, _)| of == gpu_type)
        };
        let mut trials = self.attempts.values().filter(|one| {
            one.purpose == Purpose::Trial
                && one.strategy.is_of(key)
                && self.tasks[one.task.0].group == group
                && is_of_type(&one.gang)
        });
        let beside = trials.next_back().and_then(|one| self.outside.are_beside(&one.gang));
        if matches!(outcome, TrialOutcome::OutOfMemory { .. }) && beside.is_some() {
            let what = format!("{group} {key:?}: {outcome:?}");
            self.wrong("memory that others took says nothing of a strategy", what);
        }
    }
}
