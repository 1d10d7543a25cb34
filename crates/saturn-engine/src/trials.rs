//! Which trial runs when, and what its end means.
//!
//! All trials form one queue, wide ones first. Whenever devices are free, the first trial in the
//! queue that fits into them starts: a narrow trial may overtake a wide one that has to wait, and no
//! two ever share a device.

use saturn_core::{Knobs, Placement, TrialOutcome};

use crate::engine::Engine;
use crate::event::{FailureKind, RankFailure};
use crate::ids::AttemptId;
use crate::record::{AttemptEnd, Purpose, Record};

/// The signal that the kernel sends when memory has run out.
const SIGKILL: i32 = 9;
/// What a process says in its last words when memory runs out where nobody catches it: in a thread
/// of a library's own.
const OUT_OF_MEMORY_WORDS: [&str; 2] = ["std::bad_alloc", "can't allocate memory"];

impl Engine {
    pub(crate) fn launch_trials(&mut self, now_s: f64) {
        let mut free = self.free_devices();
        for index in 0..self.state.trials.len() {
            let trial = &self.state.trials[index];
            let is_running = self
                .state
                .live_attempts()
                .any(|(_, attempt)| attempt.purpose == Purpose::Trial(index));
            if is_running || !self.state.is_open(trial) {
                continue;
            }
            let gpus = trial.strategy.gpus as usize;
            let nodes = 0..self.state.config.cluster.nodes.len();
            let fits = nodes
                .map(|node| {
                    let on_node = free.iter().filter(|device| device.0 == node);
                    (node, on_node.map(|device| device.1).take(gpus).collect::<Vec<u32>>())
                })
                .find(|(_, devices)| devices.len() == gpus);
            let Some((node, devices)) = fits else { continue };
            free.retain(|device| device.0 != node || !devices.contains(&device.1));
            let (task, strategy) = (trial.task, trial.strategy.clone());
            let gang = vec![Placement { node, devices }];
            self.launch(task, Purpose::Trial(index), strategy, (gang, None), now_s);
        }
    }

    pub(crate) fn trial_reported(
        &mut self,
        attempt: AttemptId,
        knobs: Knobs,
        outcome: TrialOutcome,
        now_s: f64,
    ) {
        let Some(state) = self.state.attempts.get_mut(&attempt) else { return };
        let Purpose::Trial(trial) = state.purpose else { return };
        state.completed = true;
        let mut strategy = state.strategy.clone();
        strategy.knobs = knobs;
        if self.state.trials[trial].outcome.is_none() {
            self.commit(Record::Tried { trial, strategy, outcome }, now_s);
        }
    }

    /// A trial whose gang is gone without an outcome failed. Where that may not be its own doing, it
    /// is tried once more before it counts.
    pub(crate) fn trial_failed(
        &mut self,
        attempt: AttemptId,
        trial: usize,
        failure: RankFailure,
        now_s: f64,
    ) {
        let Some(state) = self.state.attempts.get(&attempt) else { return };
        let strategy = state.strategy.clone();
        let num_failed = self
            .state
            .attempts
            .values()
            .filter(|attempt| attempt.purpose == Purpose::Trial(trial))
            .filter(|attempt| matches!(attempt.ended, Some((AttemptEnd::Failed { .. }, _))))
            .count();
        let may_be_chance = matches!(
            failure.kind,
            FailureKind::Killed | FailureKind::Machine | FailureKind::PeerLost
        );
        if may_be_chance && num_failed < 2 {
            return;
        }
        let outcome = match failure.kind {
            FailureKind::OutOfMemory | FailureKind::Killed => {
                TrialOutcome::OutOfMemory { detail: failure.error }
            }
            FailureKind::NotApplicable => TrialOutcome::NotApplicable { reason: failure.error },
            _ => TrialOutcome::Failed { error: failure.error, traceback: failure.traceback },
        };
        if self.state.trials[trial].outcome.is_none() {
            self.commit(Record::Tried { trial, strategy, outcome }, now_s);
        }
    }
}

impl crate::state::Attempt {
    /// What a rank's death without a word means.
    pub(crate) fn died(rank: u32, code: i32, last_words: String) -> RankFailure {
        let (kind, error) = if code == -SIGKILL {
            let error = "killed by signal 9, as the kernel does when memory runs out".to_owned();
            (FailureKind::Killed, error)
        } else if let Some(words) =
            OUT_OF_MEMORY_WORDS.into_iter().find(|words| code < 0 && last_words.contains(words))
        {
            let error = format!("the process died of signal {}: {words}", -code);
            (FailureKind::OutOfMemory, error)
        } else if code < 0 {
            (FailureKind::Died, format!("the process died of signal {}", -code))
        } else {
            (FailureKind::Died, format!("the process exited with code {code} without a word"))
        };
        RankFailure { rank, kind, error, traceback: last_words }
    }
}
