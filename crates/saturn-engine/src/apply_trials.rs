//! What records of trials change of a [`State`]: outcomes, trials that were chosen, and what training
//! itself says of a strategy.
//!
//! Every change of what is known of a group ends in [`State::learn`], so that estimates never lag
//! behind what was measured. What is inspected lies in [`crate::inspections`].

use std::sync::Arc;

use saturn_core::{Strategy, TrialOutcome};

use crate::config::TaskSpec;
use crate::record::ChosenTrial;
use crate::state::{Attempt, State, TaskState, TrialKey, TrialState};

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
        trial.strategy = Arc::new(strategy.clone());
        trial.outcome = Some(outcome.clone());
        trial.reused = false;
        trial.has_knobs = true;
        trial.estimate = None;
        self.groups[group].learn();
        self.close_trial(group, &strategy.key(), gpu_type);
        if let Some(batches) = batches_per_epoch(outcome) {
            self.learn_steps(group, batches);
        }
        self.learn(group);
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
            self.groups[group].learn();
            self.learn(group);
            self.version += 1;
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

    /// Takes what a task brings of an earlier search into its group. A trial that names no type of
    /// device holds for every one.
    pub(crate) fn take_over_measured(&mut self, group: usize, spec: &TaskSpec) {
        for trial in &spec.measured {
            let types: Vec<String> = match &trial.gpu_type {
                Some(gpu_type) => vec![gpu_type.clone()],
                None => self.breadths.iter().map(|one| one.gpu_type.clone()).collect(),
            };
            for gpu_type in types {
                // Across a network it is another strategy.
                if self.exceeded_width(&gpu_type, trial.strategy.gpus) != trial.origin.node_gpus {
                    continue;
                }
                let key = TrialKey { strategy: trial.strategy.key(), gpu_type };
                let state = self.groups[group]
                    .trials
                    .entry(Arc::new(key))
                    .or_insert_with_key(|key| TrialState::unknown(&key.strategy));
                if state.outcome.is_none() {
                    state.strategy = Arc::new(trial.strategy.clone());
                    state.outcome = Some(trial.outcome.clone());
                    state.reused = true;
                    state.has_knobs = true;
                    state.estimate = None;
                }
            }
        }
        self.groups[group].learn();
    }

    /// Gives tasks of a group that are given in epochs their numbers of steps.
    pub(crate) fn learn_steps(&mut self, group: usize, batches: u64) {
        for task in &self.groups[group].tasks {
            self.tasks[task.0].learn_steps(batches);
        }
    }
}

impl TaskState {
    /// Turns a length in epochs into steps, once it is known how long one is.
    pub(crate) fn learn_steps(&mut self, batches_per_epoch: u64) {
        if let (None, Some(epochs)) = (self.steps, self.spec.epochs) {
            let all = epochs.saturating_mul(batches_per_epoch);
            self.steps = Some(all.div_ceil(self.spec.batches_a_step.get()));
        }
    }
}

pub(crate) fn batches_per_epoch(outcome: &TrialOutcome) -> Option<u64> {
    match outcome {
        TrialOutcome::Measured { batches_per_epoch, .. } => *batches_per_epoch,
        _ => None,
    }
}
