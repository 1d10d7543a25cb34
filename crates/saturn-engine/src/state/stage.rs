//! Where a task stands, in the words of status, reports and scripts.

use serde::{Deserialize, Serialize};

/// Where a task stands, as people are told. Files name it by [`Stage::code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// No strategy of it has been measured yet, and no trial or inspection runs.
    Unmeasured,
    /// Its model, or the model of a task that performs alike, is being inspected.
    Inspecting,
    /// No strategy of it has been measured yet, and a trial runs.
    Measuring,
    /// It could train, and waits: for devices, or for the agent of its owner.
    Waiting,
    /// It trains.
    Running,
    /// It is paused.
    Paused,
    /// The stopper holds it.
    Held,
    /// All its steps are trained.
    Done,
    /// All its steps are trained, and the loss of the last is no finite number.
    Diverged,
    /// It was given up.
    Failed,
    /// It is not wanted any more.
    Cancelled,
    /// The stopper ended it.
    Stopped,
}

impl Stage {
    /// How files and scripts name it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unmeasured => "unmeasured",
            _ => self.word(),
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unmeasured => "to be measured",
            Self::Inspecting => "inspecting",
            Self::Measuring => "measuring",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Held => "held",
            Self::Done => "done",
            Self::Diverged => "diverged",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Stopped => "stopped",
        }
    }
}
