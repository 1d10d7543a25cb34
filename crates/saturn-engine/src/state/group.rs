//! Tasks that perform alike: their trials, and the inspection of their model.
//!
//! Plain data, and questions about it. The room `changes` changes it, record by record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saturn_core::{Inspection, Strategy, TrialOutcome};

use crate::facts::ids::{AttemptId, TaskId};
use crate::state::lesson::{Footing, Lesson};
use crate::state::space::NoSpace;
use crate::state::stage::Stage;
use crate::state::trial::{TrialKey, TrialState};

/// How far the inspection of a group's model is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InspectionState {
    /// What the inspection found.
    pub found: Option<Arc<Inspection>>,
    /// The last inspection, after a change of the machines put its verdicts in doubt. It is kept
    /// until another inspection succeeds, because the model's bytes have not changed.
    pub outdated: Option<Arc<Inspection>>,
    /// Failures that may be chance, since this process drives the run.
    pub failures: u32,
    /// The attempt that inspects it now.
    pub attempt: Option<AttemptId>,
}

impl InspectionState {
    /// The machines have changed: the model must be inspected again.
    pub(crate) fn put_in_doubt(&mut self) {
        if let Some(found) = self.found.take() {
            self.outdated = Some(found);
        }
    }

    /// The latest inspection that succeeded, for the bytes of the model.
    pub(crate) fn sizes(&self) -> Option<&Inspection> {
        self.found.as_deref().or(self.outdated.as_deref())
    }
}

/// Tasks that perform alike by construction, and what is known of their performance.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Their profile key.
    pub key: String,
    /// The tasks in the order in which they were added. One of them is measured for all.
    pub tasks: Vec<TaskId>,
    /// How many of them have not ended.
    pub num_open: usize,
    /// The live attempts of its tasks, kept up: to find them among all attempts would cost each
    /// interval of training a look at the whole pool.
    pub(crate) attempts: BTreeSet<AttemptId>,
    /// What is known of their model.
    pub inspection: InspectionState,
    /// Trials that are wanted, and those that have their outcome.
    pub trials: BTreeMap<Arc<TrialKey>, TrialState>,
    /// Trials that were chosen for what they may save.
    pub chosen: BTreeSet<Arc<TrialKey>>,
    /// The last trial of it that ended met a full disk.
    pub no_space: Option<NoSpace>,
    /// What the trials say of all strategies together.
    pub(crate) lesson: Lesson,
    /// What the estimates of its strategies rest on.
    pub(crate) footing: Footing,
}

impl Group {
    /// Where its tasks stand while none of its strategies has been measured.
    pub(crate) fn stage(&self) -> Stage {
        if self.inspection.attempt.is_some() {
            Stage::Inspecting
        } else if self.trials.values().any(|trial| trial.attempt.is_some()) {
            Stage::Measuring
        } else {
            Stage::Unmeasured
        }
    }

    /// Whether a trial has its outcome from the inspection, and was never run.
    pub fn is_ruled_out(&self, key: &TrialKey) -> bool {
        let outcome = self.trials.get(key).and_then(|trial| trial.outcome.clone());
        let TrialKey { strategy, gpu_type } = key;
        outcome.is_some()
            && self.inspection.found.as_ref().is_some_and(|found| {
                found.outcome_of(&strategy.technique, strategy.gpus, gpu_type) == outcome
            })
    }

    /// Whether the technique of a strategy has run out of memory on as many devices of its type, or on
    /// more.
    pub(crate) fn has_run_out(&self, key: &TrialKey) -> bool {
        self.trials.iter().any(|(other, trial)| {
            matches!(trial.outcome, Some(TrialOutcome::OutOfMemory { .. }))
                && other.strategy.gpus >= key.strategy.gpus
                && other.strategy.technique == key.strategy.technique
                && other.gpu_type == key.gpu_type
        })
    }

    /// What is known of a strategy on a type of device.
    pub fn trial(&self, strategy: &Strategy, gpu_type: &str) -> Option<&TrialState> {
        // There are few trials: to make a key and look it up takes longer than to look at them all.
        let mut trials = self.trials.iter();
        let is_of = |key: &TrialKey| strategy.is_of(&key.strategy) && key.gpu_type == gpu_type;
        trials.find(|(key, _)| is_of(key)).map(|(_, trial)| trial)
    }
}
