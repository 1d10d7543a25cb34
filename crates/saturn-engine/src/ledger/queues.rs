//! The plan in force as queues: which places each device has before it, in order.
//!
//! A place may start when it is the first in the queues of all of its devices. A place that is
//! over, or that can't be followed any more, is passed over when the device is looked at. Only
//! devices about which something has changed are looked at, so that the work of most events does
//! not grow with the plan.

use std::collections::BTreeSet;

use saturn_core::Gang;

use crate::facts::ids::{DeviceId, TaskId, devices};
use crate::state::by_device::ByDevice;
use crate::state::run::State;

/// How far the devices have come in their queues.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// How many places of its queue each device has passed.
    passed: ByDevice<usize>,
    /// Devices to look at: something has changed about them, or about a task that waits for them.
    changed: BTreeSet<DeviceId>,
    /// The same devices, for the tasks that wait for host memory.
    changed_for_waiters: BTreeSet<DeviceId>,
}

impl Queues {
    /// A plan has come into force: its queues begin. Devices that were to be looked at still are.
    pub(crate) fn begin(&mut self, state: &State) {
        // Devices that had places before may have none now.
        let passed = std::mem::replace(&mut self.passed, ByDevice::of(&state.nodes));
        self.changed.extend(passed.devices());
        self.changed.extend(state.order.devices());
        self.changed_for_waiters.extend(passed.devices());
        self.changed_for_waiters.extend(state.order.devices());
    }

    /// Notes that something about a device has changed.
    pub(crate) fn touch(&mut self, device: DeviceId) {
        self.changed.insert(device);
        self.changed_for_waiters.insert(device);
    }

    /// Notes that something about a task has changed, and so about the devices that it waits for.
    pub(crate) fn touch_task(&mut self, state: &State, task: TaskId) {
        let Some(plan) = &state.plan else { return };
        for index in state.order.of_task(task) {
            self.changed.extend(devices(&plan.places[*index].gang));
            self.changed_for_waiters.extend(devices(&plan.places[*index].gang));
        }
    }

    /// A task waits for host memory on a gang from now on.
    pub(crate) fn note_waiter(&mut self, gang: &Gang) {
        self.changed_for_waiters.extend(devices(gang));
    }

    /// Takes out the devices about which something has changed since this was asked last.
    pub(crate) fn take_changed_for_waiters(&mut self) -> BTreeSet<DeviceId> {
        std::mem::take(&mut self.changed_for_waiters)
    }

    /// Takes out a device to look at.
    pub(crate) fn take_changed(&mut self) -> Option<DeviceId> {
        self.changed.pop_first()
    }

    /// The first open place of a device.
    pub(crate) fn front(&mut self, state: &State, device: DeviceId) -> Option<usize> {
        let plan = state.plan.as_ref()?;
        let queue = state.order.on_device(device);
        let passed = self.passed.slot(device)?.get_or_insert(0);
        while let Some(index) = queue.get(*passed).copied() {
            if state.is_place_open(&plan.places[index]) {
                return Some(index);
            }
            *passed += 1;
        }
        None
    }

    /// Whether a place is the first of all of its devices.
    pub(crate) fn is_first(&mut self, state: &State, index: usize) -> bool {
        let Some(plan) = &state.plan else { return false };
        devices(&plan.places[index].gang).all(|device| self.front(state, device) == Some(index))
    }
}
