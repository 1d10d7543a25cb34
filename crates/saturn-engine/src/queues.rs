//! The plan in force as queues: which places each device has before it, in order.
//!
//! A place may start when it is the first in the queues of all of its devices. What is over is
//! taken from the front when the device is looked at; and only devices where something has changed
//! are, so that the work of most events does not grow with the plan. What can't be followed any more
//! leaves the plan itself, and then the queues are laid out anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::apply::is_excluded;
use crate::ids::{DeviceId, TaskId, devices};
use crate::record::{Place, RunPlan};
use crate::state::State;

/// The queues of a plan; empty without one.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    num_places: usize,
    by_device: BTreeMap<DeviceId, VecDeque<usize>>,
    by_task: BTreeMap<TaskId, Vec<usize>>,
    /// Devices to look at: something about them, or about what waits for them, has changed.
    changed: BTreeSet<DeviceId>,
}

impl Queues {
    /// The queues of a plan, all of them to be looked at.
    pub(crate) fn of(plan: &RunPlan) -> Self {
        let mut queues = Self { num_places: plan.places.len(), ..Self::default() };
        for (index, place) in plan.places.iter().enumerate() {
            queues.by_task.entry(place.task).or_default().push(index);
            for device in devices(&place.gang) {
                queues.by_device.entry(device).or_default().push_back(index);
            }
        }
        queues.changed = queues.by_device.keys().copied().collect();
        queues
    }

    /// How many places the plan had that these are of.
    pub(crate) fn num_places(&self) -> usize {
        self.num_places
    }

    /// Notes that something about a device has changed.
    pub(crate) fn touch(&mut self, device: DeviceId) {
        self.changed.insert(device);
    }

    /// Notes that the devices of other queues are to be looked at.
    pub(crate) fn touch_all_of(&mut self, other: Self) {
        self.changed.extend(other.changed);
        self.changed.extend(other.by_device.into_keys());
    }

    /// Notes that something about a task has changed, and so about the devices that it waits for.
    pub(crate) fn touch_task(&mut self, state: &State, task: TaskId) {
        let Some(plan) = &state.plan else { return };
        for place in self.by_task.get(&task).into_iter().flatten() {
            self.changed.extend(devices(&plan.places[*place].gang));
        }
    }

    /// A device to look at.
    pub(crate) fn take_changed(&mut self) -> Option<DeviceId> {
        self.changed.pop_first()
    }

    /// The first place of a device that is not over.
    pub(crate) fn front(&mut self, state: &State, device: DeviceId) -> Option<usize> {
        let plan = state.plan.as_ref()?;
        let queue = self.by_device.get_mut(&device)?;
        while let Some(index) = queue.front().copied() {
            if !is_over(state, &plan.places[index]) {
                return Some(index);
            }
            queue.pop_front();
        }
        None
    }

    /// Whether a place is the first of all of its devices.
    pub(crate) fn is_first(&mut self, state: &State, index: usize) -> bool {
        let Some(plan) = &state.plan else { return false };
        devices(&plan.places[index].gang).all(|device| self.front(state, device) == Some(index))
    }

    /// Where a task stands in the plan: its first place that its newest checkpoint is not beyond;
    /// `None` where it has none that can be followed.
    pub(crate) fn place_of(&self, state: &State, task: TaskId) -> Option<usize> {
        let plan = state.plan.as_ref()?;
        let saved_step = state.task(task).checkpoint_step;
        let places = self.by_task.get(&task)?;
        let place = places.iter().find(|index| !plan.places[**index].is_done_at(saved_step))?;
        (!is_over(state, &plan.places[*place])).then_some(*place)
    }

    /// Whether a task has a place that is not over.
    pub(crate) fn has_place(&self, state: &State, task: TaskId) -> bool {
        self.place_of(state, task).is_some()
    }

    /// Places that are not over, in the plan's order.
    pub(crate) fn open_places(state: &State) -> Vec<Place> {
        let places = state.plan.iter().flat_map(|plan| &plan.places);
        places.filter(|place| !is_over(state, place)).cloned().collect()
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
        task.is_paused
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
