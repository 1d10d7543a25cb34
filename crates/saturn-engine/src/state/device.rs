//! The nodes of the pool and their devices.

use std::sync::Arc;

use crate::facts::ids::{AttemptId, TaskId};

/// A device of the pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceState {
    /// The attempt that holds it.
    pub held_by: Option<AttemptId>,
    /// Why it is not used, where it is set aside.
    pub set_aside: Option<String>,
    /// Tasks that failed on the device in a way that a bad machine could cause, one entry for each
    /// failure. The list is cleared when a task does well on the device.
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
    /// What its attempts leave there, kept up.
    pub(crate) occupancy: Occupancy,
}

/// What the attempts of a node leave there.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Occupancy {
    /// Devices that can be used and that no attempt holds, ascending.
    pub(crate) free: Arc<Vec<u32>>,
    /// Devices that trials and stopping attempts hold, and that are free soon.
    pub(crate) lent: u32,
    /// All devices that can be used.
    pub(crate) usable: u32,
    /// Host memory that the node's attempts are expected to take, bytes; 0 without a limit.
    pub(crate) host_bytes: u64,
    /// The part of it that training attempts take which do not stop.
    pub(crate) trained_bytes: u64,
}

impl Occupancy {
    /// Devices that are free, or will be soon.
    pub(crate) fn soon(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX).saturating_add(self.lent)
    }
}

/// The slowness of a node: by which factor its steps take longer than before, and since when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowness {
    /// The factor by which steps take longer.
    pub factor: f64,
    /// Since when the node is slow, seconds.
    pub since_s: f64,
    /// When the node was last seen to be slow, seconds.
    pub seen_s: f64,
    /// Whether only gangs across nodes show the slowness: then another of their nodes may be slow.
    pub is_guess: bool,
}

impl Slowness {
    /// Until when the node is expected to be slow: for as long again as it has been slow so far.
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
