//! What a change of the devices' memory limit makes of what is known.
//!
//! A trial's outcome speaks for the limit under which it ran. A wider limit reopens what ran out of
//! memory; a narrower one reopens what needed more than it leaves. Everything else stays: a strategy
//! that fits less often than its trial says is excluded when it fails, as always.

use saturn_core::TrialOutcome;

use crate::ids::TaskId;
use crate::state::{State, TaskStatus};

impl State {
    /// Takes over the limit of a resumed run, and reopens the trials that it puts in doubt.
    pub(crate) fn limit_device_memory(&mut self, limit: Option<u64>) {
        let before = std::mem::replace(&mut self.config.device_memory_bytes, limit);
        if before == limit {
            return;
        }
        let is_wider = before.is_some_and(|before| limit.is_none_or(|limit| limit > before));
        for index in 0..self.trials.len() {
            let is_in_doubt = match &self.trials[index].outcome {
                Some(TrialOutcome::OutOfMemory { .. }) => is_wider,
                Some(TrialOutcome::Measured { peak_memory_bytes, .. }) => {
                    limit.is_some_and(|limit| *peak_memory_bytes > limit)
                }
                _ => false,
            };
            if is_in_doubt && self.is_wanted(self.trials[index].task) {
                self.trials[index].outcome = None;
                self.trials[index].reused = false;
            }
        }
        if is_wider {
            for task in &mut self.tasks {
                task.excluded.clear();
            }
        }
    }

    /// Whether some task that a trial of `group` speaks for is still to be trained.
    fn is_wanted(&self, group: TaskId) -> bool {
        self.tasks_like(group).any(|task| !matches!(self.task(task).status, TaskStatus::Ended(_)))
    }
}
