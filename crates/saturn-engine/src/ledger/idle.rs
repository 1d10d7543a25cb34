//! Devices that nothing waits for, and tasks that wait without a place in the plan in force.

use std::collections::BTreeSet;

use crate::facts::ids::{DeviceId, TaskId};

/// Devices that have nothing before them.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    pub(crate) devices: BTreeSet<DeviceId>,
    /// Among these are all tasks that have not ended and have no open place in the plan in force.
    pub(crate) without_place: BTreeSet<TaskId>,
    /// Something has changed since it was last looked whether anything could start there.
    pub(crate) is_to_look: bool,
}

impl Idle {
    /// A device has nothing before it.
    pub(crate) fn add(&mut self, device: DeviceId) {
        self.devices.insert(device);
        self.is_to_look = true;
    }

    /// A device has something before it, or can't be used.
    pub(crate) fn remove(&mut self, device: DeviceId) {
        self.devices.remove(&device);
    }

    /// A task has no place in the plan in force.
    pub(crate) fn note_without_place(&mut self, task: TaskId) {
        self.without_place.insert(task);
        self.is_to_look = true;
    }

    /// It is time to look again.
    pub(crate) fn look_again(&mut self) {
        self.is_to_look = true;
    }
}
