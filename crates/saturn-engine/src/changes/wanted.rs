//! Which trials are wanted: the policy of what to measure.
//!
//! A group could be measured under every technique on every type of device in the pool, at the
//! device counts of `state/breadth`. With a full budget all of that is measured. Otherwise a group
//! is measured once, so that its tasks can train. It is measured further where
//! `planning/experiment` expects that to pay. It is measured once more if a task is left without a
//! strategy that it may run under. A group's model is inspected before all that, and strategies
//! that the inspection rules out are not tried.
//!
//! The wanted trials are worked out anew whenever tasks or nodes come and go. Outcomes are facts
//! and stay, whatever is wanted.

use std::cmp::Reverse;
use std::sync::Arc;

use saturn_core::StrategyKey;

use crate::facts::config::Level;
use crate::facts::ids::TaskId;
use crate::knowledge::scaling::rank_before;
use crate::state::run::State;
use crate::state::trial::{TrialKey, TrialState};

impl State {
    /// Opens the trials that a task needs, that have no outcome and do not run. A strategy that the
    /// inspection has ruled out gets its outcome instead. An inspection that is still to be run
    /// comes first.
    pub(crate) fn want_trials_for(&mut self, task: TaskId) {
        self.want_trials_of([task], None);
    }

    /// The same for a task that has just come. Everything that its group's open tasks need is up to
    /// date, and most tasks of a group may be tried under the same strategies: then none is looked at.
    pub(crate) fn want_trials_for_new(&mut self, task: TaskId) {
        let of_group = &self.groups[self.task(task).group].tasks;
        let before = of_group.iter().rev().find(|one| **one != task && !self.has_ended(**one));
        self.want_trials_of([task], before.copied());
    }

    /// Opens the trials that the tasks of a group need.
    pub(crate) fn want_trials_of_group(&mut self, group: usize) {
        self.want_trials_of(self.groups[group].tasks.clone(), None);
    }

    /// Opens the trials that tasks of one group need. `named`: an open task of the group whose
    /// strategies have their trials.
    fn want_trials_of(
        &mut self,
        tasks: impl IntoIterator<Item = TaskId>,
        mut named: Option<TaskId>,
    ) {
        for task in tasks {
            if self.has_ended(task) {
                continue;
            }
            if !named.is_some_and(|named| self.may_try_the_same(named, task)) {
                self.name_trials_of(task);
            }
            named = Some(task);
            let group = self.task(task).group;
            if self.awaits_inspection(group) {
                continue;
            }
            if self.chooses_trials() {
                self.open_chosen(group);
                self.open_first(task);
            } else {
                let allowed: Vec<Arc<TrialKey>> = self.groups[group]
                    .trials
                    .keys()
                    .filter(|key| self.may_be_tried(task, key))
                    .cloned()
                    .collect();
                for key in allowed {
                    self.open_trial(group, &key);
                }
            }
        }
    }

    /// Whether two tasks of a group may be tried under the same strategies, as far as their own
    /// wishes and their owners' quotas go.
    fn may_try_the_same(&self, one: TaskId, other: TaskId) -> bool {
        let quota = |task: TaskId| self.quota(self.task(task).uid());
        let have_same_quota = quota(one) == quota(other);
        let (one, other) = (&self.task(one).spec, &self.task(other).spec);
        one.gpu_range == other.gpu_range && one.allowed == other.allowed && have_same_quota
    }

    /// Gives each strategy that a task may be tried under its trial, and its outcome if the
    /// inspection has ruled it out. If a trial must wait for the group's inspection, that is due.
    fn name_trials_of(&mut self, task: TaskId) {
        let group = self.task(task).group;
        let must_wait = self.awaits_inspection(group);
        let mut is_wanted = false;
        let found = self.groups[group].inspection.found.clone();
        let num_trials = self.groups[group].trials.len();
        let mut is_ruled_out = false;
        for key in self.strategies_to_try(task) {
            let way = (group, key.strategy.technique.clone());
            let place = (key.gpu_type.clone(), Reverse(key.strategy.gpus));
            let trial = self.groups[group]
                .trials
                .entry(Arc::new(key))
                .or_insert_with_key(|key| TrialState::unknown(&key.strategy));
            if trial.outcome.is_some() || trial.attempt.is_some() {
                continue;
            }
            is_wanted = true;
            let open = self.open_trials.get(&place);
            if !must_wait && !open.is_some_and(|open| open.contains(&way)) {
                let (technique, gpu_type) = (&way.1, &place.0);
                let found = found.as_ref();
                trial.outcome =
                    found.and_then(|found| found.outcome_of(technique, place.1.0, gpu_type));
                is_ruled_out |= trial.outcome.is_some();
            }
        }
        // They are to be estimated, or need not be any more.
        let has_changed = is_ruled_out || self.groups[group].trials.len() > num_trials;
        self.groups[group].footing.has_changed |= has_changed;
        if must_wait && is_wanted && self.groups[group].inspection.attempt.is_none() {
            self.to_inspect.insert(group);
        }
    }

    /// The strategies that a task may be tried under in this pool, as far as its own wishes and its
    /// owner's quota go.
    fn strategies_to_try(&self, task: TaskId) -> Vec<TrialKey> {
        let spec = &self.task(task).spec;
        let mut keys = Vec::new();
        for breadth in &self.breadths {
            for gpus in breadth.counts() {
                let is_wide = gpus > breadth.node_width;
                for technique in &self.config.techniques {
                    if is_wide && technique.level != Level::Managed {
                        continue; // its one process holds devices of one machine
                    }
                    let strategy = StrategyKey { technique: technique.name.clone(), gpus };
                    if spec.allows_key(&strategy) && self.may_hold(task, gpus) {
                        keys.push(TrialKey { strategy, gpu_type: breadth.gpu_type.clone() });
                    }
                }
            }
        }
        keys
    }

    /// Whether this holds of a group: each strategy of its open tasks has its trial, and its outcome
    /// if the inspection has ruled it out; and an inspection that trials wait for is due. For tests.
    pub(crate) fn are_trials_of_group_named(&self, number: usize) -> bool {
        let group = &self.groups[number];
        let must_wait = self.awaits_inspection(number);
        let is_due = group.inspection.attempt.is_some() || self.is_to_inspect(number);
        let is_named = |key: TrialKey| {
            let Some(trial) = group.trials.get(&key) else { return false };
            let (StrategyKey { technique, gpus }, gpu_type) = (&key.strategy, &key.gpu_type);
            let found = group.inspection.found.as_ref();
            let is_ruled_out = || {
                found.is_some_and(|found| found.outcome_of(technique, *gpus, gpu_type).is_some())
            };
            trial.outcome.is_some()
                || trial.attempt.is_some()
                || if must_wait {
                    is_due
                } else {
                    self.is_open_trial(number, &key) || !is_ruled_out()
                }
        };
        let open = group.tasks.iter().filter(|task| !self.has_ended(**task));
        open.map(|task| self.strategies_to_try(*task)).all(|keys| keys.into_iter().all(is_named))
    }

    /// Opens further trials that a group needs, now that more is known of it.
    pub(crate) fn want_more_trials_of(&mut self, group: usize) {
        if self.chooses_trials() && !self.awaits_inspection(group) {
            self.open_chosen(group);
            for task in self.groups[group].tasks.clone() {
                if !self.has_ended(task) {
                    self.open_first(task);
                }
            }
        }
    }

    /// Opens the trials of a group that were chosen for what they may save, as far as a task is left
    /// to run them.
    fn open_chosen(&mut self, group: usize) {
        for key in self.groups[group].chosen.clone() {
            if self.is_in_pool(&key)
                && !self.is_ruled_out(group, &key)
                && self.has_task_for(group, &key.strategy)
            {
                self.open_trial(group, &key);
            } else {
                self.close_trial(group, &key.strategy, &key.gpu_type);
            }
        }
    }

    /// Opens the cheapest trial that may give a task a strategy: the trial on the fewest devices,
    /// by the technique that is tried first. Does nothing if the task has a strategy, or if a trial
    /// for it runs or is open.
    fn open_first(&mut self, task: TaskId) {
        let group = self.task(task).group;
        let is_sought = |(key, trial): (&Arc<TrialKey>, &TrialState)| {
            trial.outcome.is_none()
                && (trial.attempt.is_some() || self.is_open_trial(group, key))
                && self.may_be_tried(task, key)
        };
        let trials = &self.groups[group].trials;
        if self.fits_pool_of_types(task) || trials.iter().any(is_sought) {
            return;
        }
        let candidates = trials.iter().filter(|(key, trial)| {
            trial.outcome.is_none()
                && self.may_be_tried(task, key)
                && !self.is_ruled_out(group, key)
        });
        let kind = self.config.device_kind;
        let cheapest = candidates.map(|(key, _)| key).min_by(|a, b| {
            let by_count = a.strategy.gpus.cmp(&b.strategy.gpus);
            let rank = |key: &TrialKey| rank_before(kind, &key.strategy.technique);
            by_count.then(rank(a).total_cmp(&rank(b))).then(a.cmp(b))
        });
        if let Some(cheapest) = cheapest.cloned() {
            self.open_trial(group, &cheapest);
        }
    }

    fn open_trial(&mut self, group: usize, key: &TrialKey) {
        let trial = self.groups[group].trials.get(key);
        if trial.is_some_and(|trial| trial.outcome.is_none() && trial.attempt.is_none())
            && self.why_too_large_for_host(group, key).is_none()
        {
            let place = (key.gpu_type.clone(), Reverse(key.strategy.gpus));
            let open = self.open_trials.entry(place).or_default();
            open.insert((group, key.strategy.technique.clone()));
        }
    }

    /// Closes all trials of a group, which has no task left to train.
    pub(crate) fn close_trials(&mut self, group: usize) {
        self.to_inspect.remove(&group);
        let keys: Vec<Arc<TrialKey>> = self.groups[group].trials.keys().cloned().collect();
        for key in keys {
            self.close_trial(group, &key.strategy, &key.gpu_type);
        }
    }

    /// Closes the open trials of a group that no task is left to run: the tasks that could have run
    /// them have ended, or have failed under their strategies.
    pub(crate) fn close_trials_without_task(&mut self, group: usize) {
        let keys = self.groups[group].trials.keys();
        let open: Vec<Arc<TrialKey>> =
            keys.filter(|key| self.is_open_trial(group, key)).cloned().collect();
        for key in open {
            if !self.has_task_for(group, &key.strategy) {
                self.close_trial(group, &key.strategy, &key.gpu_type);
            }
        }
    }

    /// Closes a trial: it runs, has its outcome, or is not wanted.
    pub(crate) fn close_trial(&mut self, group: usize, key: &StrategyKey, gpu_type: &str) {
        let place = (gpu_type.to_owned(), Reverse(key.gpus));
        if let Some(open) = self.open_trials.get_mut(&place) {
            open.remove(&(group, key.technique.clone()));
            if open.is_empty() {
                self.open_trials.remove(&place);
            }
        }
    }
}
