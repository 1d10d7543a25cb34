//! The strategies that a task may run under, and the strategies that are ruled out.

use std::collections::BTreeSet;

use saturn_core::{Inspection, TrialOutcome};

use crate::facts::config::{Mode, TaskSpec, TrialBudget};
use crate::facts::ids::TaskId;
use crate::state::breadth::{Breadth, holds};
use crate::state::group::Group;
use crate::state::run::State;
use crate::state::task::TaskStatus;
use crate::state::trial::{TrialKey, TrialState};

/// A strategy that a task may run under, on one type of device.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// What is known of it.
    pub trial: &'a TrialState,
    /// Type of device that it holds for.
    pub gpu_type: &'a str,
}

impl State {
    /// Whether trials are chosen by what they are expected to save.
    pub fn chooses_trials(&self) -> bool {
        self.config.mode == Mode::Orchestrate
            && self.config.policy.trial_budget != TrialBudget::Full
    }

    /// The strategies that a task may run under, measured and not excluded, on devices that the
    /// pool may have.
    pub fn choices(&self, task: TaskId) -> impl Iterator<Item = Choice<'_>> {
        let state = self.task(task);
        self.groups[state.group].trials.iter().filter_map(move |(key, trial)| {
            let is_allowed =
                trial.is_known() && state.spec.allows(&trial.strategy) && self.may_run(task, key);
            // An estimate says nothing of memory.
            let has_run_out = || trial.is_estimate() && self.groups[state.group].has_run_out(key);
            let is_allowed = is_allowed && !has_run_out();
            is_allowed.then_some(Choice { trial, gpu_type: &key.gpu_type })
        })
    }

    /// Whether a task may run under a strategy, as far as its own wishes, its owner's quota, its failures
    /// and the machine's own memory say.
    pub(crate) fn may_run(&self, task: TaskId, key: &TrialKey) -> bool {
        let state = self.task(task);
        state.spec.allows_key(&key.strategy)
            && (self.may_hold(task, key.strategy.gpus) || self.runs_under(task, key))
            && !state.excludes_key(&key.strategy)
            && self.why_too_large_for_host(state.group, key).is_none()
    }

    /// Whether a task runs under a strategy now. It may go on, also if its owner's quota was lowered since.
    fn runs_under(&self, task: TaskId, key: &TrialKey) -> bool {
        self.attempt_of(task).is_some_and(|(_, attempt)| {
            attempt.strategy.key() == key.strategy && self.gang_type(&attempt.gang) == key.gpu_type
        })
    }

    /// Whether a task has a strategy that nodes of the pool are wide enough for, were all of their
    /// devices usable.
    pub(crate) fn fits_pool_of_types(&self, task: TaskId) -> bool {
        self.choices(task)
            .any(|choice| holds(&self.breadths, choice.gpu_type, choice.trial.strategy.gpus))
    }

    /// Whether the pool has the devices for some strategy of a task.
    pub fn fits_pool(&self, task: TaskId) -> bool {
        self.choices(task)
            .any(|choice| holds(&self.usable_breadths, choice.gpu_type, choice.trial.strategy.gpus))
    }

    /// Strategies that may run a task, and were not tried when the pool had the devices for them.
    /// It has not now.
    pub(crate) fn untried_elsewhere(&self, task: TaskId) -> impl Iterator<Item = &TrialKey> {
        let group = self.task(task).group;
        let trials = self.groups[group].trials.iter();
        trials.filter(|(_, trial)| trial.outcome.is_none()).map(|(key, _)| &**key).filter(
            move |key| {
                !self.is_in_pool(key)
                    && self.may_run(task, key)
                    && self.config.technique(&key.strategy.technique).is_some()
                    && !self.is_ruled_out(group, key)
            },
        )
    }

    /// The devices that a task's strategies need: `4 of type A100, or 8 of type H100`. If no
    /// strategy is known to run the task, it is what untried strategies need. `None` without any.
    pub fn needed_devices(&self, task: TaskId) -> Option<String> {
        let mut needs: BTreeSet<(u32, &str)> =
            self.choices(task).map(|one| (one.trial.strategy.gpus, one.gpu_type)).collect();
        if needs.is_empty() {
            let untried = self.untried_elsewhere(task);
            needs.extend(untried.map(|key| (key.strategy.gpus, key.gpu_type.as_str())));
        }
        let needs: Vec<String> =
            needs.iter().map(|(gpus, gpu_type)| format!("{gpus} of type {gpu_type}")).collect();
        (!needs.is_empty()).then(|| needs.join(", or "))
    }

    /// The devices that a waiting task needs if this pool has none for it, and will get none. `None`
    /// if the task may run here, or if its strategies are not known yet.
    pub fn lacking_devices(&self, id: TaskId) -> Option<String> {
        let task = self.task(id);
        let is_known = task.status == TaskStatus::Waiting
            && !self.is_to_inspect(task.group)
            && !self.open_trials().any(|(group, _)| group == task.group);
        let may_come = self.config.policy.pool_may_grow;
        if may_come || !is_known || self.fits_pool_of_types(id) {
            return None;
        }
        self.needed_devices(id)
    }

    /// Whether a task that has not ended may take several nodes.
    pub(crate) fn may_span_nodes(&self) -> bool {
        let is_wide = |key: &TrialKey| self.is_wide(&key.gpu_type, key.strategy.gpus);
        let may = |task: TaskId| {
            let mut choices = self.choices(task);
            choices.any(|one| self.is_wide(one.gpu_type, one.trial.strategy.gpus))
        };
        // Most groups have no such strategy, and then none of their tasks need be looked at.
        let has_wide = |group: &&Group| {
            let mut trials = group.trials.iter();
            group.num_open > 0 && trials.any(|(key, trial)| trial.is_known() && is_wide(key))
        };
        self.config.policy.max_nodes > 1
            && self
                .groups
                .iter()
                .filter(has_wide)
                .any(|group| group.tasks.iter().any(|task| !self.has_ended(*task) && may(*task)))
    }

    /// What is wrong with a task's device counts, where the nodes of the pool allow none of them.
    /// For example: ``its `gpu_range` is 64, but the nodes of this pool allow only 1, 2``.
    /// `None` without any node.
    pub fn out_of_range(&self, spec: &TaskSpec) -> Option<String> {
        let range = spec.gpu_range.as_ref()?;
        let counts: Vec<u32> = self.breadths.iter().flat_map(Breadth::counts).collect();
        if counts.is_empty() || range.iter().any(|gpus| counts.contains(gpus)) {
            return None;
        }
        let tried: BTreeSet<u32> = counts.into_iter().collect();
        Some(format!(
            "its `gpu_range` is {}, but the nodes of this pool allow only {}",
            listed(range.iter().copied()),
            listed(tried.into_iter())
        ))
    }

    /// Whether the outcome of a trial concerns a strategy that a task may run under in this pool.
    pub(crate) fn may_be_tried(&self, task: TaskId, key: &TrialKey) -> bool {
        let breadth = self.breadths.iter().find(|one| one.gpu_type == key.gpu_type);
        self.may_run(task, key)
            && self.config.technique(&key.strategy.technique).is_some()
            && breadth.is_some_and(|one| one.counts().contains(&key.strategy.gpus))
    }

    pub(crate) fn is_in_pool(&self, key: &TrialKey) -> bool {
        holds(&self.breadths, &key.gpu_type, key.strategy.gpus)
    }

    /// Whether `is_such` holds for the device type and count of every strategy of a task. If the
    /// task has no strategy yet, the trials that may give it a strategy count instead. A task
    /// without such trials is not confined.
    pub(crate) fn is_confined_to(&self, task: TaskId, is_such: impl Fn(&str, u32) -> bool) -> bool {
        let mut choices = self.choices(task).peekable();
        if choices.peek().is_some() {
            return choices.all(|choice| is_such(choice.gpu_type, choice.trial.strategy.gpus));
        }
        let number = self.task(task).group;
        let group = &self.groups[number];
        let is_looked_at = group.inspection.attempt.is_some() || self.is_to_inspect(number);
        let mut sought = group
            .trials
            .iter()
            .filter(|(key, trial)| trial.attempt.is_some() || self.is_open_trial(number, key))
            .peekable();
        !is_looked_at
            && sought.peek().is_some()
            && sought.all(|(key, _)| is_such(&key.gpu_type, key.strategy.gpus))
    }

    /// Whether memory rules out a strategy that was not tried. It does if the technique ran out of
    /// memory on as many devices or more. It also does if a trial of the technique ran out of
    /// memory, no trial of it has fitted, and the group wants or has a trial on more devices of the
    /// pool.
    pub fn is_ruled_out(&self, group: usize, key: &TrialKey) -> bool {
        let same = self.groups[group].trials.iter().filter(|(other, _)| {
            other.gpu_type == key.gpu_type && other.strategy.technique == key.strategy.technique
        });
        // What the inspection rules out says nothing of wider gangs, which the inspection did not
        // rule out.
        let found = self.groups[group].inspection.found.as_ref();
        let was_tried = |key: &TrialKey| {
            let strategy = &key.strategy;
            let outcome = |found: &Inspection| {
                found.outcome_of(&strategy.technique, strategy.gpus, &key.gpu_type)
            };
            found.and_then(|found| outcome(found)).is_none()
        };
        let (mut has_fitted, mut ran_out, mut least, mut widest) = (false, false, 0, 0);
        for (other, trial) in same {
            if self.is_in_pool(other) {
                widest = widest.max(other.strategy.gpus);
            }
            match trial.outcome {
                Some(TrialOutcome::Measured { .. }) => has_fitted = true,
                Some(TrialOutcome::OutOfMemory { .. }) => {
                    least = least.max(other.strategy.gpus);
                    ran_out |= was_tried(other);
                }
                _ => {}
            }
        }
        key.strategy.gpus <= least || ran_out && !has_fitted && key.strategy.gpus < widest
    }
}

/// Counts in a sentence, cut short if they are many.
fn listed(counts: impl Iterator<Item = u32>) -> String {
    const MAX_LISTED: usize = 12;
    let mut words: Vec<String> = counts.map(|count| count.to_string()).collect();
    if words.len() > MAX_LISTED {
        words.truncate(MAX_LISTED);
        words.push("…".to_owned());
    }
    words.join(", ")
}
