//! What a driver has been told of programs other than Saturn, and which devices were left to them.

use std::collections::BTreeSet;

use saturn_core::Gang;
use saturn_engine::{DeviceId, NodeId, devices};

/// What a driver has been told of other programs.
#[derive(Debug, Default)]
pub(super) struct Outside {
    pub(super) used: BTreeSet<DeviceId>,
    /// Devices that were set aside for them.
    pub(super) left: BTreeSet<DeviceId>,
    /// Devices that were taken back while others used them, as a person may say.
    pub(super) shared: BTreeSet<DeviceId>,
}

impl Outside {
    /// A device is set aside. Returns whether that is for the others.
    pub(super) fn is_left_to_others(&mut self, id: DeviceId) -> bool {
        self.is_to_be_left(&id) && self.left.insert(id)
    }

    /// Whether others use a device that nobody has said to share with them.
    pub(super) fn is_to_be_left(&self, id: &DeviceId) -> bool {
        self.used.contains(id) && !self.shared.contains(id)
    }

    /// Whether others use devices of a gang: `Some(true)` if all of these devices are shared.
    pub(super) fn are_beside(&self, gang: &Gang) -> Option<bool> {
        let mut used = devices(gang).filter(|id| self.used.contains(id)).peekable();
        used.peek()?;
        Some(used.all(|id| self.shared.contains(&id)))
    }

    /// A device is used again.
    pub(super) fn taken_back(&mut self, id: DeviceId) {
        if self.left.remove(&id) && self.used.contains(&id) {
            self.shared.insert(id);
        }
    }

    /// A node goes: its devices are others when it comes again.
    pub(super) fn node_left(&mut self, node: NodeId) {
        self.used.retain(|id| id.node != node);
        self.left.retain(|id| id.node != node);
        self.shared.retain(|id| id.node != node);
    }
}
