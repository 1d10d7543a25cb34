//! A look at the model of each group of tasks, before anything of the group is tried.
//!
//! One process builds the model once and says of every managed technique and device count whether it
//! can run at all: what can't gets its outcome by that, and no gang is launched to say so. It holds no
//! device, so it is there at once; only so many are at work together. Black-box techniques bring a
//! model of their own and have nothing to say here: a group that is tried under these alone is not
//! looked at.
//!
//! What the task's own functions raise is told once, for the whole group. A look that fails otherwise
//! is taken once more, then the group does without: its trials tell what can't run.

use crate::config::Level;
use crate::engine::Engine;
use crate::event::{FailureKind, RankFailure};
use crate::ids::{AttemptId, TaskId};
use crate::record::{Purpose, Record, TaskEnd, no_strategy};
use crate::state::{Attempt, State};

use saturn_core::{Inspection, TrialOutcome};

/// Inspections at work at once: they compute, beside what trains.
const MAX_AT_ONCE: usize = 2;
/// Failures after which a group does without.
const MAX_FAILURES: u32 = 2;

impl State {
    /// Whether a group's trials must wait for the look at its model.
    pub(crate) fn awaits_inspection(&self, group: usize) -> bool {
        let inspection = &self.groups[group].inspection;
        inspection.found.is_none()
            && inspection.failures < MAX_FAILURES
            && self.is_for_managed(group)
    }

    /// Whether a group may be tried under a managed technique. What its tasks allow is part of its key.
    fn is_for_managed(&self, group: usize) -> bool {
        let first = self.groups[group].tasks.first().map(|task| &self.task(*task).spec);
        let is_allowed = |name: &str| first.is_none_or(|spec| spec.allows_technique(name));
        let techniques = &self.config.techniques;
        techniques.iter().any(|one| one.level == Level::Managed && is_allowed(&one.name))
    }

    /// Groups whose models are to be looked at and are not yet.
    pub fn num_to_inspect(&self) -> usize {
        self.to_inspect.len()
    }

    /// Whether a group (an index into [`State::groups`]) is one of these.
    pub fn is_to_inspect(&self, group: usize) -> bool {
        self.to_inspect.contains(&group)
    }

    /// Takes in what was found of a group: what can't run has its outcome, and the rest may be tried.
    pub(crate) fn apply_inspected(&mut self, group: &str, inspection: &Inspection) {
        let Some(group) = self.group_by_key.get(group).copied() else { return };
        self.groups[group].inspection.found = Some(inspection.clone().into());
        self.to_inspect.remove(&group);
        if let Some(batches) = inspection.batches_per_epoch {
            self.learn_steps(group, batches);
        }
        self.want_trials_of_group(group);
        self.version += 1;
    }

    /// An inspection is at work.
    pub(crate) fn apply_inspecting(&mut self, id: AttemptId, task: TaskId) {
        let group = self.tasks[task.0].group;
        self.groups[group].inspection.attempt = Some(id);
        self.to_inspect.remove(&group);
    }

    /// An inspection is over. Without having found anything it is taken again, or done without.
    pub(crate) fn apply_inspection_end(&mut self, task: TaskId, has_failed: bool) {
        let group = self.tasks[task.0].group;
        let inspection = &mut self.groups[group].inspection;
        inspection.attempt = None;
        inspection.failures += u32::from(has_failed);
        if inspection.found.is_none() {
            self.want_trials_of_group(group);
            // What waited for it can be planned.
            self.version += 1;
        }
    }
}

impl Engine {
    /// Has the models of groups looked at that wait for it, the first come first.
    pub(crate) fn launch_inspections(&mut self, now_s: f64) {
        if self.state.to_inspect.is_empty() {
            return;
        }
        let at_work = self.state.attempts.values();
        let num_at_work = at_work.filter(|one| one.purpose == Purpose::Inspection).count();
        let next = self.state.to_inspect.iter().copied();
        for group in next.take(MAX_AT_ONCE.saturating_sub(num_at_work)).collect::<Vec<_>>() {
            if let Some(task) = self.speaker(group) {
                let nowhere = (Vec::new(), None);
                self.launch(task, Purpose::Inspection, no_strategy(), nowhere, now_s);
            }
        }
    }

    pub(crate) fn inspected(&mut self, id: AttemptId, inspection: Inspection, now_s: f64) {
        let Some(attempt) = self.state.attempts.get_mut(&id) else { return };
        if attempt.purpose != Purpose::Inspection {
            return;
        }
        attempt.completed = true;
        let task = attempt.task;
        let group = self.state.group_of(task);
        if group.inspection.found.is_none() {
            let group = group.key.clone();
            self.commit(Record::Inspected { group, inspection }, now_s);
        }
    }

    /// An inspection failed. What the task's own functions raise ends all tasks of its group, and the
    /// cause is told by the first of them; unless some of the group was measured, so that its
    /// functions have worked before.
    pub(crate) fn inspection_failed(
        &mut self,
        attempt: &Attempt,
        failure: &RankFailure,
        now_s: f64,
    ) {
        let group = self.state.group_of(attempt.task);
        let is_measured =
            |outcome: &Option<TrialOutcome>| matches!(outcome, Some(TrialOutcome::Measured { .. }));
        if failure.kind != FailureKind::Task
            || group.trials.values().any(|trial| is_measured(&trial.outcome))
        {
            return;
        }
        let open = group.tasks.iter().copied().filter(|task| !self.state.has_ended(*task));
        let open: Vec<TaskId> = open.collect();
        let mut told: Option<String> = None;
        for task in open {
            let end = match &told {
                None => TaskEnd::Failed {
                    error: failure.error.clone(),
                    traceback: failure.traceback.clone(),
                },
                Some(first) => TaskEnd::Failed {
                    error: format!("as `{first}`, which performs alike: {}", failure.error),
                    traceback: String::new(),
                },
            };
            told.get_or_insert_with(|| self.state.name(task).to_owned());
            self.end_task(task, end, now_s);
        }
    }
}
