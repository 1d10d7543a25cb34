//! Rules on failures: which tasks are tried again and when, which strategies are excluded, and which
//! devices are set aside.
//!
//! The rules are written from the engine's promises, with constants of their own.

use std::collections::BTreeSet;

use saturn_core::StrategyKey;
use saturn_engine::{
    AttemptEnd, AttemptId, DeviceId, FailureKind, NodeId, Purpose, RankReport, Record, TaskId,
    devices,
};

use crate::judge::books::Books;
use crate::judge::duty::Duty;

/// Seconds that a task waits for a full disk if nobody says that there is room again.
const FULL_DISK_WAIT_S: f64 = 60.0;
/// How often the wait before a retry doubles at most: after a task's own failures, and after
/// Saturn's failures.
const MAX_DOUBLINGS: u32 = 10;
const MAX_SATURN_DOUBLINGS: u32 = 6;
/// Failures in a row after which a device is set aside.
const MAX_SUSPECTS: usize = 2;

/// How a task's attempts at training have failed.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// The last end, if that was a failure, and its strategy.
    last: Option<(FailureKind, StrategyKey)>,
    /// How its last trial failed, and under which strategy.
    last_trial: Option<(FailureKind, StrategyKey)>,
    /// Whether that attempt had come to train.
    has_begun: bool,
    /// The strategy of the attempt before the last, if that attempt was killed from outside.
    killed_before: Option<StrategyKey>,
    /// Whether the last attempt had saved something.
    last_had_saved: bool,
    /// Retries that count, since the last new checkpoint.
    retries: u32,
    /// Failures of Saturn's own in a row, and the checkpoint at that time.
    of_saturn: (u64, u32),
    /// A device has just been set aside for it.
    is_absolved: bool,
    /// The last attempt ran out of memory beside other programs: `Some(true)` if a person has said
    /// to share the devices with them.
    beside: Option<bool>,
}

impl Failures {
    /// Something was saved: the task was not killed under its strategy twice in a row.
    pub(super) fn saved(&mut self) {
        self.killed_before = None;
        self.last.take_if(|(kind, _)| is_kill(*kind));
    }

    /// A new checkpoint, or a new driver: failures count anew.
    pub(super) fn forgiven(&mut self) {
        self.retries = 0;
    }

    /// A new driver remembers no failures, except that the last attempt was killed.
    pub(super) fn forgotten(&mut self) {
        (self.retries, self.of_saturn) = (0, (0, 0));
        self.killed_before = None;
        self.last = self.last.take().filter(|(kind, _)| is_kill(*kind));
    }

    /// A device is set aside for the task's apparent failures.
    pub(super) fn absolved(&mut self) {
        (self.retries, self.is_absolved) = (0, true);
    }
}

fn is_machines(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Died | FailureKind::Machine | FailureKind::Stalled)
}

fn is_kill(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Killed | FailureKind::HostMemory)
}

fn is(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

impl Books {
    /// An attempt has ended: notes its failure, and whether its devices are to blame.
    pub(super) fn note_failure(&mut self, id: AttemptId, end: &AttemptEnd) {
        let Some(one) = self.attempts.get(&id) else { return };
        let (task, purpose, key) = (one.task, one.purpose, one.strategy.key());
        let is_short = matches!(end, AttemptEnd::Failed { failure } if failure.kind == FailureKind::OutOfMemory);
        let beside = self.outside.are_beside(&one.gang).filter(|_| is_short);
        let (has_begun, was_early) = (one.began_at().is_some(), one.was_early);
        let has_saved = one.said.iter().any(|one| matches!(one, RankReport::Checkpoint { .. }));
        let held: Vec<DeviceId> = devices(&one.gang).collect();
        let kind = if let AttemptEnd::Failed { failure } = end { Some(failure.kind) } else { None };
        let book = &mut self.tasks[task.0];
        let on_disk = book.checkpoint;
        let failures = &mut book.failed;
        failures.is_absolved = false;
        if kind == Some(FailureKind::Saturn) {
            let (step, number) = failures.of_saturn;
            failures.of_saturn = (on_disk, if step == on_disk { number + 1 } else { 1 });
        }
        let of_saturn = failures.of_saturn;
        if purpose == Purpose::Trial {
            failures.last_trial = kind.filter(|_| !was_early).map(|kind| (kind, key));
        } else if purpose == Purpose::Train {
            let before = failures.last.take();
            let killed_before = before.filter(|(kind, _)| is_kill(*kind)).map(|(_, key)| key);
            failures.killed_before = killed_before.filter(|_| !failures.last_had_saved);
            failures.last_had_saved = has_saved;
            failures.last = kind.map(|kind| (kind, key));
            failures.beside = beside;
            failures.has_begun = has_begun;
        }
        self.check_saturns(id, kind, of_saturn);
        match end {
            AttemptEnd::Failed { failure } if is_machines(failure.kind) => {
                self.acquit(id, task, &held);
                for device in &held {
                    self.suspects.entry(*device).or_default().push(task);
                }
                self.blame(id, &held);
            }
            AttemptEnd::Finished | AttemptEnd::Stopped => {
                self.suspects.retain(|device, _| !held.contains(device));
            }
            _ => {}
        }
    }

    /// Devices on which tasks have failed in a row are set aside, if another node can replace them.
    ///
    /// This holds only if no involved task has accused devices before: such a task may not be
    /// believed.
    fn blame(&mut self, id: AttemptId, held: &[DeviceId]) {
        let suspects = |device: &DeviceId| self.suspects.get(device).map_or(&[][..], Vec::as_slice);
        let are_new = held.iter().flat_map(suspects).all(|task| !self.accusers.contains(task));
        let accused: Vec<&DeviceId> =
            held.iter().filter(|one| suspects(one).len() >= MAX_SUSPECTS).collect();
        let nodes: BTreeSet<usize> = accused.iter().map(|device| device.node.0).collect();
        let without: BTreeSet<DeviceId> = accused.iter().map(|device| **device).collect();
        let can_do_with_others = nodes.iter().all(|node| {
            let (_, of_type, _) = &self.nodes[*node];
            (0..self.nodes.len()).any(|other| {
                !nodes.contains(&other)
                    && self.nodes[other].1 == *of_type
                    && self.num_usable(other) > 0
                    && self.num_usable(other) >= self.num_usable(*node)
            })
        });
        let can_do = || {
            let open = (0..self.tasks.len()).filter(|task| self.tasks[*task].end.is_none());
            let mut open = open.peekable();
            // Without a task nothing says that other devices are left.
            open.peek().is_some()
                && open.all(|task| self.can_run_without(TaskId(task), &without) == Some(true))
        };
        if are_new && !accused.is_empty() && (can_do_with_others || can_do()) {
            self.duties.push(Duty::SetAside(id));
        }
    }

    /// Whether a task could run without these devices; `None` if nobody knows, since nothing was
    /// measured, or since it may take several nodes.
    pub(super) fn can_run_without(&self, id: TaskId, devices: &BTreeSet<DeviceId>) -> Option<bool> {
        let task = &self.tasks[id.0];
        let allowed = |key: &StrategyKey| {
            !task.excluded.contains(key)
                && task.gpu_range.as_ref().is_none_or(|range| range.contains(&key.gpus))
        };
        let measured = self.measured.get(&task.group)?;
        let choices: Vec<_> = measured.iter().filter(|(key, _)| allowed(key)).collect();
        let is_wide = |(key, of_type): &&(StrategyKey, String)| key.gpus > self.width_of(of_type);
        if choices.is_empty() || choices.iter().any(is_wide) || task.steps.is_none() {
            return None;
        }
        let left = |node: usize| self.num_left(node, devices);
        Some(choices.iter().any(|(key, of_type)| {
            let of = (0..self.nodes.len()).filter(|node| self.nodes[*node].1 == *of_type);
            of.into_iter().any(|node| left(node) >= key.gpus as usize)
        }))
    }

    /// Whether one of the techniques that were measured for a task may have devices without these.
    /// The engine may know of more strategies than were measured, by estimates.
    fn may_run_without(&self, task: usize, devices: &BTreeSet<DeviceId>) -> bool {
        let task = &self.tasks[task];
        let measured = self.measured.get(&task.group).into_iter().flatten();
        let techniques: BTreeSet<&String> = measured.map(|(key, _)| &key.technique).collect();
        let most = (0..self.nodes.len()).map(|node| self.num_left(node, devices)).max();
        let most = u32::try_from(most.unwrap_or(0)).unwrap_or(u32::MAX);
        (1..=most).any(|gpus| {
            task.gpu_range.as_ref().is_none_or(|range| range.contains(&gpus))
                && techniques.iter().any(|technique| {
                    let key = StrategyKey { technique: (*technique).clone(), gpus };
                    !task.excluded.contains(&key)
                })
        })
    }

    /// The devices of a node that may be used, without these.
    fn num_left(&self, node: usize, without: &BTreeSet<DeviceId>) -> usize {
        let id = |device| DeviceId { node: NodeId(node), device };
        let usable = (0..self.nodes[node].2).map(id).filter(|id| !self.set_aside.contains(id));
        usable.filter(|id| !without.contains(id)).count()
    }

    /// The devices of a node that may be used.
    fn num_usable(&self, node: usize) -> usize {
        let id = |device| DeviceId { node: NodeId(node), device };
        (0..self.nodes[node].2).filter(|device| !self.set_aside.contains(&id(*device))).count()
    }

    /// Devices are set aside because processes live on them, because tasks failed there in a row,
    /// or for others who use them.
    pub(super) fn set_aside_for_a_cause(
        &mut self,
        node: NodeId,
        asided: &[u32],
        is_for_others: bool,
        for_: &[TaskId],
    ) {
        for device in asided {
            let id = DeviceId { node, device: *device };
            let failed = self.suspects.remove(&id).map_or(0, |suspects| suspects.len());
            let lives = self.attempts.values().any(|one| {
                // A gang that was killed may be gone without the engine's knowledge.
                let is_unknown =
                    one.end.is_some() && one.is_killed && one.num_exits < one.num_ranks;
                let is_left = one.end.is_some() && !one.live.is_empty() || is_unknown;
                is_left && devices(&one.gang).any(|held| held == id)
            });
            if is_for_others && self.outside.is_left_to_others(id) {
                continue;
            }
            if is_for_others || !lives && failed < MAX_SUSPECTS {
                let what = format!("{id:?} is set aside after {failed} failures");
                self.wrong("devices are set aside for a cause", what);
            }
        }
        // Devices are set aside for processes that live there, too: then nobody has a choice.
        if !for_.is_empty() {
            let set_aside: BTreeSet<DeviceId> =
                asided.iter().map(|device| DeviceId { node, device: *device }).collect();
            let open = (0..self.tasks.len()).filter(|task| self.tasks[*task].end.is_none());
            let lost: Vec<usize> = open
                .filter(|task| {
                    let before = self.can_run_without(TaskId(*task), &BTreeSet::new());
                    before == Some(true) && !self.may_run_without(*task, &set_aside)
                })
                .collect();
            if !lost.is_empty() {
                let what = format!("{set_aside:?}, and {lost:?} can run on no others");
                self.wrong("the last devices are never set aside", what);
            }
        }
        if !is_for_others {
            self.note_accused(node, asided, for_);
        }
        self.accusers.extend(for_);
        for task in for_ {
            self.tasks[task.0].failed.absolved();
        }
    }

    /// A task is tried again. Checks that it may be, and that its wait has passed.
    pub(super) fn retried(&mut self, record: &Record) {
        let Record::Retrying { task: id, not_before_s, counts } = record else { return };
        let Some(task) = self.tasks.get_mut(id.0) else { return };
        task.not_before_s = *not_before_s;
        let (backoff_s, most) = (self.config.policy.backoff_s, self.config.policy.max_failures);
        let failed = &mut task.failed;
        let Some((kind, key)) = failed.last.clone() else {
            return self.wrong("what failed is tried again", format!("{id:?} has not failed"));
        };
        let doubled_s = |failures: u32, most: u32| {
            backoff_s * f64::from(1_u32 << failures.saturating_sub(1).min(most))
        };
        failed.retries += u32::from(*counts);
        let (retries, wait_s) = (failed.retries, not_before_s - self.now_s);
        let has_begun = failed.has_begun;
        let (was_killed_before, beside) =
            (failed.killed_before.as_ref() == Some(&key), failed.beside);
        let is_right = match kind {
            // Others may have taken the memory.
            FailureKind::OutOfMemory if beside.is_some() => {
                beside == Some(*counts)
                    && retries < most
                    && is(wait_s, doubled_s(retries, MAX_DOUBLINGS))
            }
            FailureKind::OutOfMemory
            | FailureKind::NotApplicable
            | FailureKind::Certain
            | FailureKind::SaturnRepeated => false,
            // One kill may be a person; after two in a row the strategy is excluded.
            kind if is_kill(kind) && was_killed_before => false,
            // What its functions raise before the first step they would raise again.
            FailureKind::Task if !has_begun => false,
            FailureKind::NoSpace if self.has_space => !counts && is(wait_s, 0.0),
            FailureKind::NoSpace => !counts && is(wait_s, FULL_DISK_WAIT_S),
            // If the engine has not heard of a checkpoint, it does not end the engine's row of
            // failures. A lost checkpoint that the engine heard of does.
            FailureKind::Saturn => {
                let mut allowed =
                    (0..=failed.of_saturn.1).map(|n| doubled_s(n, MAX_SATURN_DOUBLINGS));
                !counts && allowed.any(|one_s| is(wait_s, one_s))
            }
            _ => {
                *counts != failed.is_absolved
                    && (failed.is_absolved || retries < most)
                    && is(wait_s, doubled_s(retries, MAX_DOUBLINGS))
            }
        };
        if !is_right {
            let what = format!(
                "{id:?} is tried again in {wait_s} s after {kind:?}, with {retries} retries before; \
                 counts: {counts}"
            );
            self.wrong("failures are tried again by the rules", what);
        }
    }

    /// A strategy is excluded for failures under it.
    pub(super) fn excluded(&mut self, id: TaskId, key: &StrategyKey) {
        let Some(task) = self.tasks.get_mut(id.0) else { return };
        task.excluded.insert(key.clone());
        let (failed, most) = (&task.failed, self.config.policy.max_failures);
        // Under `ddp` on one device its functions do what they would do without Saturn.
        let is_plain = key.technique == "ddp" && key.gpus == 1;
        let has_raised = !task.has_worked
            && !is_plain
            && failed.last_trial.as_ref() == Some(&(FailureKind::Task, key.clone()));
        let is_right = has_raised
            || failed.last.as_ref().is_some_and(|(kind, of)| {
                of == key
                    && match kind {
                        // Beside others who share the device, chance may be the cause, as often as
                        // it may be for other failures.
                        FailureKind::OutOfMemory => match failed.beside {
                            None => true,
                            Some(is_shared) => is_shared && failed.retries + 1 >= most,
                        },
                        FailureKind::NotApplicable => true,
                        kind => is_kill(*kind) && failed.killed_before.as_ref() == Some(key),
                    }
            });
        if !is_right {
            let what = format!("{id:?} without {key:?} after {failed:?}");
            self.wrong("strategies are excluded for a cause", what);
        }
    }

    /// The disk has room again: tasks that wait for room wait no more.
    pub(super) fn note_space(&mut self) {
        self.has_space = true;
        let waits = (0..self.tasks.len()).filter(|index| {
            let task = &self.tasks[*index];
            let is_full = matches!(task.failed.last, Some((FailureKind::NoSpace, _)));
            let trains = self.attempts.values().any(|one| {
                one.task.0 == *index && one.purpose == Purpose::Train && one.end.is_none()
            });
            is_full && !trains && task.end.is_none() && task.not_before_s > self.now_s
        });
        let waits: Vec<Duty> = waits.map(|index| Duty::Recover(TaskId(index))).collect();
        self.duties.extend(waits);
    }
}
