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
}
