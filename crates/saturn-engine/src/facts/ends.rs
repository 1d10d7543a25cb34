//! How attempts and tasks end, and why an attempt is asked to.

use saturn_core::measure;
use serde::{Deserialize, Serialize};

use crate::facts::failure::RankFailure;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum AttemptEnd {
    /// It did all that it was launched for.
    Finished,
    /// It stopped at a checkpoint when asked to.
    Stopped,
    /// It was killed because it is no longer wanted.
    Killed,
    /// The driver, or a node of the attempt, went away while the attempt ran.
    Lost,
    /// Its processes were killed and live on. Its devices are set aside.
    Abandoned,
    /// A rank failed.
    Failed {
        /// The cause: the first failure that is not an echo of another.
        failure: RankFailure,
    },
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum TaskEnd {
    /// All its steps are trained, or its own code ended the training early.
    Done {
        /// Loss of the last step; where it is no finite number, the task has diverged.
        #[serde(default, with = "measure::optional")]
        loss: Option<f64>,
    },
    /// It was given up.
    Failed {
        /// One line.
        error: String,
        /// The worker's own traceback, or empty.
        traceback: String,
    },
    /// It is not wanted any more.
    Cancelled {
        /// By whom, or because of what.
        reason: String,
    },
    /// The stopper ended it, at a checkpoint.
    Stopped {
        /// Why.
        reason: String,
    },
}

impl TaskEnd {
    /// The end of a task that is given up for this failure.
    pub(crate) fn of_failure(failure: &RankFailure) -> Self {
        let RankFailure { error, traceback, .. } = failure.clone();
        Self::Failed { error, traceback }
    }
}

/// Why a running attempt is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The plan in force has the task go on elsewhere, under another strategy, or later.
    Replan,
    /// The person stops the run.
    Interrupt,
    /// The attempt has done its part of the task in the plan.
    Switch,
    /// A trial that is expected to save more needs its devices.
    Trial,
    /// The first trial of a person who holds nothing needs its devices.
    FirstTrial,
    /// The person pauses the task.
    Pause,
    /// Its devices are to be used no more.
    SetAside,
    /// The stopper holds the task, or ends it.
    Judged,
}

impl StopReason {
    /// Whether the stop is for a better plan or for a trial. Nobody asked for it, and nothing failed.
    #[must_use]
    pub fn is_for_gain(self) -> bool {
        matches!(self, Self::Replan | Self::Trial | Self::FirstTrial)
    }
}
