//! How far training was from this run's own trials: the ratios of the seconds of a step.

use std::collections::BTreeMap;

use saturn_core::{Strategy, TrialOutcome};
use saturn_engine::{Record, State, TrialKey};

/// A strategy that a trial has measured.
#[derive(Debug, Clone, PartialEq)]
struct Measured {
    trial_s: f64,
    /// Steps of training that were clocked, and the seconds that they took.
    trained: (u64, f64),
}

/// The strategies that trials of this run have measured on its present devices.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TrialErrors {
    measured: BTreeMap<(String, TrialKey), Measured>,
}

impl TrialErrors {
    /// Takes in a record; `state` is the state after it.
    pub(crate) fn record(&mut self, state: &State, record: &Record) {
        match record {
            Record::Tried {
                group,
                gpu_type,
                strategy,
                outcome: TrialOutcome::Measured { step_s, .. },
            } => {
                let one = Measured { trial_s: *step_s, trained: (0, 0.0) };
                self.measured.entry(key(group, gpu_type, strategy)).or_insert(one);
            }
            Record::Clocked { attempt, trained } => {
                let Some(attempt) = state.attempts.get(attempt) else { return };
                let group = &state.group_of(attempt.task).key;
                let key = key(group, state.gang_type(&attempt.gang), &attempt.strategy);
                if let Some(one) = self.measured.get_mut(&key) {
                    let (steps, seconds) = one.trained;
                    let more_s = trained.step_s * trained.steps as f64;
                    one.trained = (steps.saturating_add(trained.steps), seconds + more_s);
                }
            }
            _ => {}
        }
    }

    /// For each strategy that was tried and trained, the ratio of trained to tried seconds a step.
    pub(crate) fn ratios(&self) -> impl Iterator<Item = f64> {
        self.measured.values().filter_map(Measured::ratio)
    }

    /// The ratio of one strategy of a group.
    pub(crate) fn ratio(&self, group: &str, key: &TrialKey) -> Option<f64> {
        self.measured.get(&(group.to_owned(), key.clone()))?.ratio()
    }
}

impl Measured {
    fn ratio(&self) -> Option<f64> {
        let (steps, seconds) = self.trained;
        let ratio = seconds / steps as f64 / self.trial_s;
        (steps > 0 && ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }
}

fn key(group: &str, gpu_type: &str, strategy: &Strategy) -> (String, TrialKey) {
    (group.to_owned(), TrialKey { strategy: strategy.key(), gpu_type: gpu_type.to_owned() })
}
