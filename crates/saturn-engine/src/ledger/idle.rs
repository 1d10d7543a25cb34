//! Devices for which the plan in force has nothing left to do, and tasks without a place in it.

use std::collections::BTreeSet;

use crate::facts::ids::{DeviceId, TaskId};

/// Devices for which the plan in force has nothing left to do, and tasks without a place in it.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    pub(crate) devices: BTreeSet<DeviceId>,
    /// All tasks that have not ended and have no open place in the plan in force, and perhaps
    /// others.
    pub(crate) without_place: BTreeSet<TaskId>,
    /// Something has changed since `following` last looked whether a task could start on these
    /// devices.
    pub(crate) is_to_look: bool,
}

impl Idle {
    /// The plan in force has nothing left to do on a device.
    pub(crate) fn add(&mut self, device: DeviceId) {
        self.devices.insert(device);
        self.is_to_look = true;
    }

    /// The plan in force has work for a device, or the device can't be used.
    pub(crate) fn remove(&mut self, device: DeviceId) {
        self.devices.remove(&device);
    }

    /// A task has no place in the plan in force.
    pub(crate) fn note_without_place(&mut self, task: TaskId) {
        self.without_place.insert(task);
        self.is_to_look = true;
    }

    /// Asks `following` to look again.
    pub(crate) fn look_again(&mut self) {
        self.is_to_look = true;
    }
}
