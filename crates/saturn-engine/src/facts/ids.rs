//! Newtypes for the numbers that name things within a run.
//!
//! Each number is given out once, by the record that brings the thing into being, and never again.
//! So a journal keeps its meaning, however later code numbers things.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A task, in the order in which tasks came to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub usize);

/// A node, in the order in which nodes joined the run. Placements name it by this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub usize);

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

/// A device: its node and its number on that node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceId {
    /// The node.
    pub node: NodeId,
    /// The device's number on it.
    pub device: u32,
}

/// All devices of a gang.
pub fn devices(gang: &saturn_core::Gang) -> impl Iterator<Item = DeviceId> + '_ {
    gang.iter().flat_map(|placement| {
        let node = NodeId(placement.node);
        placement.devices.iter().map(move |device| DeviceId { node, device: *device })
    })
}
