//! Newtypes for the numbers that name things within a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A task: its position in the run's workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub usize);

/// One launch of a gang. Numbers only grow within a run, across resumes too, so that a late word
/// from an earlier attempt can't be mistaken for the present one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptId(pub u64);

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
