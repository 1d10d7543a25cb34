//! Devices that programs other than Saturn use: left to them while they are free, and used again
//! afterwards.

use std::collections::BTreeSet;

use saturn_engine::{DeviceId, NodeId};

/// What a driver has been told of other programs.
#[derive(Debug, Default)]
pub(super) struct Outside {
    pub(super) used: BTreeSet<DeviceId>,
    /// Devices that this decision must set aside for them.
    pub(super) owed: BTreeSet<DeviceId>,
    /// Devices that were set aside for them.
    pub(super) left: BTreeSet<DeviceId>,
    /// Devices that were taken back while others used them, as a person may say.
    pub(super) shared: BTreeSet<DeviceId>,
}

impl Outside {
    /// A device is set aside. Returns whether that is for the others.
    pub(super) fn is_left_to_others(&mut self, id: DeviceId) -> bool {
        self.owed.remove(&id) && self.left.insert(id)
    }

    /// A device is used again.
    pub(super) fn taken_back(&mut self, id: DeviceId) {
        if self.left.remove(&id) && self.used.contains(&id) {
            self.shared.insert(id);
        }
    }

    /// A node goes: its devices are others when it comes again.
    pub(super) fn node_left(&mut self, node: NodeId) {
        self.left.retain(|id| id.node != node);
        self.shared.retain(|id| id.node != node);
    }
}
