//! The plan in force as queues: which places each device has before it, in order.
//!
//! A place may start when it is the first in the queues of all of its devices. What is over, or can't
//! be followed any more, is passed over when the device is looked at; and only devices where something
//! has changed are, so that the work of most events does not grow with the plan.

use std::collections::{BTreeMap, BTreeSet};

use crate::changes::apply::is_excluded;
use crate::facts::ids::{DeviceId, TaskId, devices};
use crate::facts::record::Place;
use crate::state::by_device::ByDevice;
use crate::state::run::State;

/// How far the devices have come in their queues.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// How many places of its queue each device is through with.
    passed: ByDevice<usize>,
    /// Devices to look at: something about them, or about what waits for them, has changed.
    changed: BTreeSet<DeviceId>,
}

impl Queues {
    /// A plan has come into force: its queues begin. What was to be looked at still is.
    pub(crate) fn begin(&mut self, state: &State) {
        // Devices that had places before may have none now.
        let passed = std::mem::replace(&mut self.passed, ByDevice::of(state));
        self.changed.extend(passed.devices());
        self.changed.extend(state.order.devices());
    }

    /// Notes that something about a device has changed.
    pub(crate) fn touch(&mut self, device: DeviceId) {
        self.changed.insert(device);
    }

    /// Notes that something about a task has changed, and so about the devices that it waits for.
    pub(crate) fn touch_task(&mut self, state: &State, task: TaskId) {
        let Some(plan) = &state.plan else { return };
        for index in state.order.of_task(task) {
            self.changed.extend(devices(&plan.places[*index].gang));
        }
    }

    /// A device to look at.
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

impl State {
    /// Where a task stands in the plan in force: its first place that its newest checkpoint is not
    /// beyond; `None` where it has none that can be followed.
    pub(crate) fn place_of(&self, task: TaskId) -> Option<usize> {
        let plan = self.plan.as_ref()?;
        let saved_step = self.task(task).checkpoint_step;
        let mut places = self.order.of_task(task).iter();
        let place = places.find(|index| !plan.places[**index].is_done_at(saved_step))?;
        self.is_place_open(&plan.places[*place]).then_some(*place)
    }

    /// Whether a task has a place that is open.
    pub(crate) fn has_place(&self, task: TaskId) -> bool {
        self.place_of(task).is_some()
    }
}

/// Whether nothing more is to be done in a place.
pub(crate) fn is_over(state: &State, place: &Place) -> bool {
    state.has_ended(place.task) || place.is_done_at(state.task(place.task).checkpoint_step)
}

/// Tasks with a place that can't be followed as things stand: they are paused, its strategy is
/// excluded, its devices can't be used.
pub(crate) fn stale(state: &State, places: &[Place]) -> BTreeSet<TaskId> {
    let open = places.iter().filter(|place| !is_over(state, place));
    let is_stale = |place: &&Place| {
        let task = state.task(place.task);
        task.is_to_rest()
            || is_excluded(&task.excluded, &place.strategy)
            || !state.can_hold(&place.gang)
    };
    open.filter(is_stale).map(|place| place.task).collect()
}

/// Waiting tasks that have a place before what they must come after has all of its own: on one device
/// each would wait for the other. Nor is there a place for what comes after a task that has none.
pub(crate) fn too_early(state: &State, places: &[Place]) -> BTreeSet<TaskId> {
    let mut too_early = BTreeSet::new();
    if !places.iter().any(|place| state.waits_for(place.task).next().is_some()) {
        return too_early;
    }
    let mut last: BTreeMap<TaskId, usize> = BTreeMap::new();
    for (index, place) in places.iter().enumerate() {
        last.insert(place.task, index);
    }
    // Places are in an order in which what is too early makes only what is behind it so.
    for (index, place) in places.iter().enumerate() {
        if state.attempt_of(place.task).is_some() || is_over(state, place) {
            continue;
        }
        let is_early = |before: TaskId| {
            too_early.contains(&before) || last.get(&before).is_none_or(|last| *last > index)
        };
        if state.waits_for(place.task).any(is_early) {
            too_early.insert(place.task);
        }
    }
    too_early
}
