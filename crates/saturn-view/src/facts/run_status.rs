//! The status of a run as a whole.

use saturn_engine::{RunEnd, State};
use serde::{Deserialize, Serialize};

use crate::facts::history::History;

/// The status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Every task has ended (in a search: every trial).
    Complete,
    /// A person stopped it; it can be resumed.
    Interrupted,
    /// Its driver died without recording an end; it can be resumed.
    Died,
    /// A driver drives it.
    Unfinished,
}

impl RunStatus {
    /// Its word in files and for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Interrupted => "interrupted",
            Self::Died => "died",
            Self::Unfinished => "unfinished",
        }
    }

    /// Whether the run was stopped, or its driver died, before all its tasks had come: more
    /// may come once it is resumed, as a search then goes on to suggest tasks.
    pub fn lacks_tasks(self, is_closed: bool) -> bool {
        matches!(self, Self::Interrupted | Self::Died) && !is_closed
    }

    /// The status of a run.
    pub fn of(state: &State, history: &History) -> Self {
        match state.ended {
            _ if history.has_died => Self::Died,
            Some(RunEnd::Complete) => Self::Complete,
            Some(RunEnd::Interrupted) => Self::Interrupted,
            None => Self::Unfinished,
        }
    }
}
