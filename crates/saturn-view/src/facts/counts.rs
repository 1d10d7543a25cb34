//! How many tasks are at each stage, and how many trials have which outcome.

use saturn_core::TrialOutcome;
use saturn_engine::{Stage, State};

/// Tasks by stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TaskCounts {
    /// All tasks.
    pub all: usize,
    /// No strategy has been measured, and no inspection or trial runs.
    #[serde(default)]
    pub unmeasured: usize,
    /// Their group's model is being inspected.
    #[serde(default)]
    pub inspecting: usize,
    /// No strategy has been measured, and a trial runs.
    pub measuring: usize,
    /// They could train, and wait.
    pub waiting: usize,
    /// Training.
    pub running: usize,
    /// Paused.
    pub paused: usize,
    /// Held by the stopper.
    #[serde(default)]
    pub held: usize,
    /// Trained to their end.
    pub done: usize,
    /// Trained to their end, where the loss was not a finite number.
    #[serde(default)]
    pub diverged: usize,
    /// Given up after failures.
    pub failed: usize,
    /// Cancelled by the user.
    pub cancelled: usize,
    /// Ended by the stopper.
    #[serde(default)]
    pub stopped: usize,
}

impl TaskCounts {
    /// Counts the tasks of a run.
    pub fn of(state: &State) -> Self {
        let mut counts = Self { all: state.tasks.len(), ..Self::default() };
        for task in state.task_ids() {
            *match state.stage(task) {
                Stage::Unmeasured => &mut counts.unmeasured,
                Stage::Inspecting => &mut counts.inspecting,
                Stage::Measuring => &mut counts.measuring,
                Stage::Waiting => &mut counts.waiting,
                Stage::Running => &mut counts.running,
                Stage::Paused => &mut counts.paused,
                Stage::Done => &mut counts.done,
                Stage::Diverged => &mut counts.diverged,
                Stage::Failed => &mut counts.failed,
                Stage::Cancelled => &mut counts.cancelled,
                Stage::Held => &mut counts.held,
                Stage::Stopped => &mut counts.stopped,
            } += 1;
        }
        counts
    }

    /// Tasks that have not ended.
    pub fn open(&self) -> usize {
        let unmeasured = self.unmeasured + self.inspecting + self.measuring;
        unmeasured + self.waiting + self.running + self.paused + self.held
    }
}

/// Trials by outcome. Trials on types of device that are gone count too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TrialCounts {
    /// Trials that measured a strategy.
    pub measured: usize,
    /// Trials whose technique refused the task.
    pub not_applicable: usize,
    /// Trials that ran out of memory.
    pub out_of_memory: usize,
    /// Trials that failed.
    pub failed: usize,
    /// How many of all these are known from an earlier run.
    pub reused: usize,
    /// How many of all these never ran, since an inspection gave the outcome.
    #[serde(default)]
    pub ruled_out: usize,
    /// Trials that run now.
    pub running: usize,
    /// Trials that are still to run.
    pub open: usize,
}

impl TrialCounts {
    /// Counts the trials of a run.
    pub fn of(state: &State) -> Self {
        let mut counts = Self { open: state.num_open_trials(), ..Self::default() };
        let trials = state
            .groups
            .iter()
            .flat_map(|group| group.trials.iter().map(move |(key, trial)| (group, key, trial)));
        for (group, key, trial) in trials {
            let Some(outcome) = &trial.outcome else {
                counts.running += usize::from(trial.attempt.is_some());
                continue;
            };
            counts.reused += usize::from(trial.reused.is_some());
            counts.ruled_out += usize::from(trial.reused.is_none() && group.is_ruled_out(key));
            *match outcome {
                TrialOutcome::Measured { .. } => &mut counts.measured,
                TrialOutcome::NotApplicable { .. } => &mut counts.not_applicable,
                TrialOutcome::OutOfMemory { .. } => &mut counts.out_of_memory,
                TrialOutcome::Failed { .. } => &mut counts.failed,
            } += 1;
        }
        counts
    }

    /// Trials that ran and have an outcome, in an earlier run or this one.
    pub fn known(&self) -> usize {
        self.measured + self.not_applicable + self.out_of_memory + self.failed - self.ruled_out
    }

    /// How many of this run's own trials have an outcome, and how many there are.
    pub fn progress(&self) -> (usize, usize) {
        let known = self.known() - self.reused;
        (known, known + self.running + self.open)
    }
}
