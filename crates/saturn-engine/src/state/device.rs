//! The nodes of the pool and their devices.

use crate::facts::ids::{AttemptId, TaskId};

/// A device of the pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceState {
    /// The attempt that holds it.
    pub held_by: Option<AttemptId>,
    /// Why it is not used, where it is set aside.
    pub set_aside: Option<String>,
    /// Tasks that failed on it as a machine's fault makes them fail, one entry for each failure,
    /// since a task last did well on it.
    pub suspects: Vec<TaskId>,
}

/// A node of the pool, at present or once.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeState {
    /// It is in the pool.
    pub is_there: bool,
    /// Its devices.
    pub devices: Vec<DeviceState>,
    /// Its slowness, live; `None` while it is well.
    pub slowness: Option<Slowness>,
}

/// How much longer all steps on a node take than elsewhere and before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowness {
    /// The factor by which steps take longer.
    pub factor: f64,
    /// Since when the node is slow, seconds.
    pub since_s: f64,
    /// When the node was last seen to be slow, seconds.
    pub seen_s: f64,
    /// Only gangs across nodes say so, and another of their nodes may be the slow one.
    pub is_guess: bool,
}

impl Slowness {
    /// Until when the node is expected to be slow: nobody knows, so as long again as it was.
    pub fn until_s(&self) -> f64 {
        2.0 * self.seen_s - self.since_s
    }

    /// Seconds that work takes from `from_s` on that takes `work_s` on a node that is well.
    pub(crate) fn stretched_s(&self, from_s: f64, work_s: f64) -> f64 {
        let slow_s = (self.until_s() - from_s).max(0.0);
        let done_s = slow_s / self.factor;
        if work_s < done_s { work_s * self.factor } else { slow_s + work_s - done_s }
    }
}
