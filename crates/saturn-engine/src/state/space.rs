//! An attempt that met a full disk, and until when its like is not tried again.

use crate::facts::ids::TaskId;

/// How long a task waits for a full disk if nobody says that there is room again, seconds.
pub(crate) const NO_SPACE_WAIT_S: f64 = 60.0;

/// An attempt met a full disk, and none of its kind has been launched since.
#[derive(Debug, Clone, PartialEq)]
pub struct NoSpace {
    /// The task of the attempt.
    pub task: TaskId,
    /// What could not be written, and where.
    pub error: String,
    /// When it ended, seconds.
    pub since_s: f64,
}

impl NoSpace {
    /// When it is tried again, unless there is room before.
    pub fn until_s(&self) -> f64 {
        self.since_s + NO_SPACE_WAIT_S
    }
}
