//! How far training was from this run's own trials: the ratios of the seconds of a step.

use std::collections::BTreeMap;

use saturn_core::{Knobs, Strategy, TrialOutcome};
use saturn_engine::{Record, State, TrialKey};

/// A strategy that a trial has measured.
#[derive(Debug, Clone, PartialEq)]
struct Measured {
    /// The knobs with which it was measured.
    knobs: Knobs,
    trial_s: f64,
    /// Steps of training that were clocked, and the seconds that they took.
    trained: (u64, f64),
}

/// The strategies that trials of this run have measured on its present devices.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TrialErrors {
    measured: BTreeMap<(String, TrialKey), Measured>,
    /// The ratios of trials that were taken back and repeated.
    before: Vec<f64>,
}

impl TrialErrors {
    /// Takes in a record; `state` is the state after it.
    pub(crate) fn record(&mut self, state: &State, record: &Record) {
        match record {
            Record::Tried { group, gpu_type, strategy, outcome } => {
                let key = key(group, gpu_type, strategy);
                // The trial before was taken back, such as after a resume with less memory.
                self.before.extend(self.measured.remove(&key).and_then(|one| one.ratio()));
                if let TrialOutcome::Measured { step_s, .. } = outcome {
                    let (knobs, trial_s) = (strategy.knobs.clone(), *step_s);
                    self.measured.insert(key, Measured { knobs, trial_s, trained: (0, 0.0) });
                }
            }
            Record::Clocked { attempt, trained } => {
                let Some(attempt) = state.attempts.get(attempt) else { return };
                let group = &state.group_of(attempt.task).key;
                let key = key(group, state.gang_type(&attempt.gang), &attempt.strategy);
                let knobs = &attempt.strategy.knobs;
                if let Some(one) = self.measured.get_mut(&key).filter(|one| one.knobs == *knobs) {
                    let (steps, seconds) = one.trained;
                    let more_s = trained.step_s * trained.steps as f64;
                    one.trained = (steps.saturating_add(trained.steps), seconds + more_s);
                }
            }
            _ => {}
        }
    }

    /// For each trial of a strategy that was trained, the ratio of trained to tried seconds a step.
    pub(crate) fn ratios(&self) -> impl Iterator<Item = f64> {
        self.before.iter().copied().chain(self.measured.values().filter_map(Measured::ratio))
    }

    /// The ratio of one strategy of a group, by its last trial.
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

#[cfg(test)]
mod tests {
    use saturn_core::{Node, Placement, Trained};
    use saturn_engine::{AttemptId, DeviceKind, Mode, NodeId, Policy, Purpose, RunConfig, TaskId};

    use super::*;

    fn strategy(micro_batch: u64) -> Strategy {
        let knobs = Knobs::from_iter([("micro_batch".to_owned(), micro_batch.into())]);
        Strategy { technique: "ddp".to_owned(), gpus: 1, knobs }
    }

    /// A task `a`, and an attempt for each of these numbers of samples in a micro-batch.
    fn state(micro_batches: &[u64]) -> State {
        let mut state = State::new(RunConfig {
            mode: Mode::Orchestrate,
            device_kind: DeviceKind::Cpu,
            device_memory_bytes: None,
            techniques: Vec::new(),
            policy: Policy::default(),
        });
        let spec = serde_json::json!({
            "name": "a", "dir": "d", "steps": 9, "epochs": null, "gpu_range": [1],
            "profile_key": "a", "is_rest": false,
        });
        let task = TaskId(0);
        let node = Node::new("n", 9, "cpu");
        let mut records = vec![
            Record::NodeJoined { node: NodeId(0), spec: node, host_memory_bytes: None },
            Record::TaskAdded { task, spec: serde_json::from_value(spec).unwrap() },
        ];
        for (number, micro_batch) in (0_u32..).zip(micro_batches) {
            records.push(Record::Launched {
                attempt: AttemptId(u64::from(number)),
                task,
                purpose: Purpose::Train,
                strategy: strategy(*micro_batch),
                gang: vec![Placement { node: 0, devices: vec![number] }],
                until_step: None,
            });
        }
        for record in &records {
            state.apply(record, 0.0);
        }
        state
    }

    fn tried(micro_batch: u64, outcome: TrialOutcome) -> Record {
        let (group, gpu_type) = ("a".to_owned(), "cpu".to_owned());
        Record::Tried { group, gpu_type, strategy: strategy(micro_batch), outcome }
    }

    fn measured(step_s: f64) -> TrialOutcome {
        TrialOutcome::Measured {
            step_s,
            setup_s: 1.0,
            checkpoint_s: None,
            peak_memory_bytes: 1,
            relative_error: None,
            warmup_s: None,
            variation: None,
            batches_per_epoch: None,
            evaluation_s: None,
            timed_steps: 2,
        }
    }

    fn clocked(attempt: u64, step_s: f64) -> Record {
        let trained = Trained { step_s, steps: 10, relative_error: 0.0, measured_unix_s: None };
        Record::Clocked { attempt: AttemptId(attempt), trained }
    }

    #[test]
    fn training_is_compared_with_the_trial_of_its_own_knobs() {
        let state = state(&[8, 2]);
        let mut errors = TrialErrors::default();
        let mut record = |record: &Record| {
            errors.record(&state, record);
            errors.ratios().collect::<Vec<f64>>()
        };
        record(&tried(8, measured(1.0)));
        assert_eq!(record(&clocked(0, 1.1)), [1.1]);
        assert_eq!(record(&clocked(1, 9.0)), [1.1], "it was not tried with these knobs");
        // After a resume with less memory the trial is repeated, and finds thriftier knobs.
        assert_eq!(record(&tried(2, measured(2.0))), [1.1], "what was found stays true");
        assert_eq!(record(&clocked(1, 2.0)), [1.1, 1.0]);
        assert_eq!(record(&clocked(0, 9.0)), [1.1, 1.0], "an old attempt");
        let outcome = TrialOutcome::OutOfMemory { detail: "too large".to_owned() };
        assert_eq!(record(&tried(2, outcome)), [1.1, 1.0]);
        assert_eq!(record(&clocked(1, 9.0)), [1.1, 1.0], "that trial was taken back");
    }
}
