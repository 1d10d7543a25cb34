//! How records about trials and inspections change the state, and what training says of a strategy.
//!
//! Every change of what is known of a group ends in [`State::learn`], so that estimates never lag
//! behind measurements.

use std::sync::Arc;

use saturn_core::{Inspection, Strategy, Trained, TrialOutcome};

use crate::facts::config::TaskSpec;
use crate::facts::ids::{AttemptId, TaskId};
use crate::facts::record::{ChosenTrial, Purpose};
use crate::state::attempt::Attempt;
use crate::state::run::State;
use crate::state::trial::{TrialKey, TrialState};

impl State {
    pub(crate) fn apply_tried(
        &mut self,
        group: &str,
        gpu_type: &str,
        strategy: &Strategy,
        outcome: &TrialOutcome,
    ) {
        let Some(group) = self.group_by_key.get(group).copied() else { return };
        let key = TrialKey { strategy: strategy.key(), gpu_type: gpu_type.to_owned() };
        let trial = self.groups[group]
            .trials
            .entry(Arc::new(key))
            .or_insert_with_key(|key| TrialState::unknown(&key.strategy));
        // Training under other knobs says nothing of these.
        if *trial.strategy != *strategy {
            (trial.trained, trial.trained_step_s, trial.is_trained_here) = (None, None, false);
        }
        trial.strategy = Arc::new(strategy.clone());
        trial.outcome = Some(outcome.clone());
        trial.reused = None;
        trial.has_knobs = true;
        trial.estimate = None;
        let trial_task = trial.attempt.and_then(|id| self.attempts.get(&id)).map(|one| one.task);
        if let (Some(task), TrialOutcome::Measured { .. }) = (trial_task, outcome) {
            self.tasks[task.0].was_measured = true;
        }
        self.groups[group].footing.has_changed = true;
        self.groups[group].learn();
        self.close_trial(group, &strategy.key(), gpu_type);
        if let Some(batches) = batches_per_epoch(outcome) {
            self.learn_steps(group, batches);
        }
        self.learn(group);
        self.learn_occupancy_of_group(group);
        self.want_more_trials_of(group);
        self.version += 1;
    }

    pub(crate) fn apply_observed(
        &mut self,
        group: &str,
        gpu_type: &str,
        strategy: &Strategy,
        step_s: f64,
    ) {
        let Some(group) = self.group_by_key.get(group).copied() else { return };
        let key = TrialKey { strategy: strategy.key(), gpu_type: gpu_type.to_owned() };
        if let Some(trial) = self.groups[group].trials.get_mut(&key) {
            trial.trained_step_s = Some(step_s);
            trial.is_trained_here = true;
            self.groups[group].learn();
            self.learn(group);
            self.version += 1;
        }
    }

    /// Takes in an interval of training. Plans learn from it by
    /// [`Record::Observed`](crate::Record::Observed), if it is news.
    pub(crate) fn apply_clocked(&mut self, id: AttemptId, trained: Trained) {
        let Some(attempt) = self.attempts.get(&id) else { return };
        let Some(task) = self.tasks.get(attempt.task.0) else { return };
        let gpu_type = self.gang_type(&attempt.gang).to_owned();
        let key = TrialKey { strategy: attempt.strategy.key(), gpu_type };
        let trial = self.groups[task.group].trials.get_mut(&key);
        let is_training = attempt.purpose == Purpose::Train;
        if let Some(trial) = trial.filter(|one| is_training && one.strategy == attempt.strategy) {
            trial.trained = Some(trial.trained.map_or(trained, |old| old.followed_by(trained)));
        }
    }

    pub(crate) fn apply_chosen(&mut self, trials: &[ChosenTrial]) {
        for ChosenTrial { group, gpu_type, strategy } in trials {
            let Some(group) = self.group_by_key.get(group).copied() else { continue };
            let key = TrialKey { strategy: strategy.clone(), gpu_type: gpu_type.clone() };
            self.groups[group].chosen.insert(Arc::new(key));
            self.want_more_trials_of(group);
        }
    }

    pub(crate) fn with_trial(&mut self, attempt: &Attempt, change: impl FnOnce(&mut TrialState)) {
        let gpu_type = self.gang_type(&attempt.gang).to_owned();
        let key = TrialKey { strategy: attempt.strategy.key(), gpu_type };
        let group = self.tasks[attempt.task.0].group;
        if let Some(trial) = self.groups[group].trials.get_mut(&key) {
            change(trial);
            self.groups[group].learn();
        }
    }

    /// Takes the trials of an earlier search, which a task brings, into its group. A trial that
    /// names no type of device holds for every type.
    pub(crate) fn take_over_measured(&mut self, group: usize, spec: &TaskSpec) {
        let mut known = Vec::new();
        for trial in &spec.measured {
            let types: Vec<String> = match &trial.gpu_type {
                Some(gpu_type) => vec![gpu_type.clone()],
                None => self.breadths.iter().map(|one| one.gpu_type.clone()).collect(),
            };
            for gpu_type in types {
                // Across a network the same technique and count are another strategy.
                if self.exceeded_width(&gpu_type, trial.strategy.gpus) != trial.origin.node_gpus {
                    continue;
                }
                let key = TrialKey { strategy: trial.strategy.key(), gpu_type: gpu_type.clone() };
                let state = self.groups[group]
                    .trials
                    .entry(Arc::new(key))
                    .or_insert_with_key(|key| TrialState::unknown(&key.strategy));
                if state.outcome.is_none() && trial.outcome.is_some() {
                    state.strategy = Arc::new(trial.strategy.clone());
                    state.outcome.clone_from(&trial.outcome);
                    state.reused = Some(Arc::new(trial.origin.clone()));
                    state.has_knobs = true;
                    state.estimate = None;
                    known.push((trial.strategy.key(), gpu_type));
                }
                if let Some(trained) = trial.trained {
                    state.take_over_trained(&trial.strategy, trained);
                }
            }
        }
        for (key, gpu_type) in known {
            self.close_trial(group, &key, &gpu_type);
        }
        self.groups[group].footing.has_changed = true;
        self.groups[group].learn();
        self.learn_occupancy_of_group(group);
    }

    /// Gives the tasks of a group their numbers of steps, where their length is given in epochs.
    pub(crate) fn learn_steps(&mut self, group: usize, batches: u64) {
        for task in &self.groups[group].tasks {
            self.tasks[task.0].learn_steps(batches);
        }
    }

    /// Takes in an inspection of a group: strategies that can't run have their outcome by it, and
    /// the others may be tried.
    pub(crate) fn apply_inspected(&mut self, group: &str, inspection: &Inspection) {
        let Some(group) = self.group_by_key.get(group).copied() else { return };
        let state = &mut self.groups[group].inspection;
        state.found = Some(inspection.clone().into());
        state.outdated = None;
        self.to_inspect.remove(&group);
        if let Some(batches) = inspection.batches_per_epoch {
            self.learn_steps(group, batches);
        }
        self.learn_occupancy_of_group(group);
        self.want_trials_of_group(group);
        self.version += 1;
    }

    /// An inspection was launched.
    pub(crate) fn apply_inspecting(&mut self, id: AttemptId, task: TaskId) {
        let group = self.tasks[task.0].group;
        self.groups[group].inspection.attempt = Some(id);
        self.to_inspect.remove(&group);
    }

    /// An inspection has ended. If it found nothing, it is repeated, or the group goes without.
    pub(crate) fn apply_inspection_end(&mut self, task: TaskId, has_failed: bool) {
        let group = self.tasks[task.0].group;
        let inspection = &mut self.groups[group].inspection;
        inspection.attempt = None;
        inspection.failures += u32::from(has_failed);
        if inspection.found.is_none() {
            self.want_trials_of_group(group);
        }
        // Tasks that waited for it, and wait for no trials, can be planned.
        self.version += 1;
    }
}

impl TrialState {
    /// Takes over what an earlier run's training found, if this run's training has found nothing
    /// yet.
    fn take_over_trained(&mut self, strategy: &Strategy, trained: Trained) {
        let is_other = self.has_knobs && *self.strategy != *strategy;
        if is_other || self.trained.is_some() || self.trained_step_s.is_some() {
            return;
        }
        let steps = trained.steps as f64;
        self.trained_step_s = Some(self.clocked_step_s(steps, steps * trained.step_s));
        self.trained = Some(trained);
        self.strategy = Arc::new(strategy.clone());
        self.has_knobs = true;
    }
}

pub(crate) fn batches_per_epoch(outcome: &TrialOutcome) -> Option<u64> {
    match outcome {
        TrialOutcome::Measured { batches_per_epoch, .. } => *batches_per_epoch,
        _ => None,
    }
}
