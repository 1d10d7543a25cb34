//! The plan in force as the state keeps it: which places each task and each device has, in order, and
//! which tasks have lost theirs.
//!
//! A plan is a fact and never changes. What can't be followed any more (places of paused tasks, under
//! excluded strategies, on devices that can't be used, before what they must come after) is closed, all
//! places of a task at once, and its task gets others by the next plan. A change of the world is
//! looked at only where it could close something: no look goes over the whole plan.

use std::collections::BTreeSet;

use crate::changes::apply::is_excluded;
use crate::facts::ids::{DeviceId, NodeId, TaskId, devices};
use crate::facts::record::{Place, RunPlan};
use crate::ledger::queues::is_over;
use crate::state::by_device::ByDevice;
use crate::state::group::TrialKey;
use crate::state::run::State;

/// Where the places of the plan in force stand, by their indices.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Order {
    of_tasks: Lists,
    on_devices: Lists,
    /// Which list is which device's.
    numbers: ByDevice<()>,
    /// Tasks whose places can't be followed any more.
    closed: BTreeSet<TaskId>,
}

impl Order {
    pub(crate) fn of(state: &State, plan: &RunPlan) -> Self {
        let places = || plan.places.iter().enumerate();
        let numbers = ByDevice::of(state);
        let of_tasks = || places().map(|(index, place)| (place.task.0, index));
        let on_devices = || {
            places().flat_map(|(index, place)| {
                let keys = devices(&place.gang).filter_map(|device| numbers.index(device));
                keys.map(move |key| (key, index))
            })
        };
        Self {
            of_tasks: Lists::of(of_tasks),
            on_devices: Lists::of(on_devices),
            numbers,
            closed: BTreeSet::new(),
        }
    }

    /// The places of a task, in the plan's order.
    pub(crate) fn of_task(&self, task: TaskId) -> &[usize] {
        self.of_tasks.get(task.0)
    }

    /// The places on a device, in the plan's order.
    pub(crate) fn on_device(&self, device: DeviceId) -> &[usize] {
        self.numbers.index(device).map_or(&[], |key| self.on_devices.get(key))
    }

    /// Devices with places.
    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        let keys = 0..self.on_devices.num_keys();
        keys.filter(|key| !self.on_devices.get(*key).is_empty()).map(|key| self.numbers.device(key))
    }

    /// Tasks that have lost their places.
    pub(crate) fn closed(&self) -> &BTreeSet<TaskId> {
        &self.closed
    }
}

/// A list of indices for each of many keys, all in one piece of memory.
#[derive(Debug, Clone, PartialEq, Default)]
struct Lists {
    /// Where each key's list starts; the last is where the last list ends.
    starts: Vec<usize>,
    items: Vec<usize>,
}

impl Lists {
    fn of<I: Iterator<Item = (usize, usize)>>(pairs: impl Fn() -> I) -> Self {
        let num_keys = pairs().map(|(key, _)| key + 1).max().unwrap_or(0);
        let mut starts = vec![0; num_keys + 1];
        for (key, _) in pairs() {
            starts[key + 1] += 1;
        }
        for key in 0..num_keys {
            starts[key + 1] += starts[key];
        }
        let mut next = starts.clone();
        let mut items = vec![0; starts[num_keys]];
        for (key, item) in pairs() {
            items[next[key]] = item;
            next[key] += 1;
        }
        Self { starts, items }
    }

    fn num_keys(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    fn get(&self, key: usize) -> &[usize] {
        match (self.starts.get(key), self.starts.get(key + 1)) {
            (Some(from), Some(to)) => &self.items[*from..*to],
            _ => &[],
        }
    }
}

impl State {
    /// Places of the plan in force in which something is still to be done, in its order, each with
    /// its index in the plan.
    pub fn open_places(&self) -> impl Iterator<Item = (usize, &Place)> {
        let places = self.plan.iter().flat_map(|plan| &plan.places).enumerate();
        places.filter(|(_, place)| self.is_place_open(place))
    }

    /// Whether a place of the plan in force is open: neither over nor impossible by now.
    pub(crate) fn is_place_open(&self, place: &Place) -> bool {
        !is_over(self, place) && !self.order.closed.contains(&place.task)
    }

    /// A task's open places of the plan in force.
    fn open_places_of(&self, task: TaskId) -> impl Iterator<Item = (usize, &Place)> {
        let places = self.plan.as_ref().map_or(&[][..], |plan| &plan.places);
        let of_task = self.order.of_task(task).iter().map(|index| (*index, &places[*index]));
        of_task.filter(|(_, place)| self.is_place_open(place))
    }

    /// Something has changed about these tasks: closes what of their places can't be followed any
    /// more, and what comes after that.
    pub(crate) fn close_places_of(&mut self, tasks: impl IntoIterator<Item = TaskId>) {
        let mut open: Vec<TaskId> = tasks.into_iter().collect();
        while let Some(task) = open.pop() {
            if self.is_stale(task) || self.is_too_early(task) {
                self.order.closed.insert(task);
                open.extend(self.followers.get(&task).into_iter().flatten());
            }
        }
    }

    /// Something has changed about these devices of a node.
    pub(crate) fn close_places_on(&mut self, node: NodeId, numbers: impl Iterator<Item = u32>) {
        let Some(plan) = &self.plan else { return };
        let mut tasks = BTreeSet::new();
        for device in numbers {
            let places = self.order.on_device(DeviceId { node, device });
            tasks.extend(places.iter().map(|index| plan.places[*index].task));
        }
        self.close_places_of(tasks);
    }

    /// Whether a task has an open place that can't be followed as things stand.
    fn is_stale(&self, task: TaskId) -> bool {
        let state = self.task(task);
        self.open_places_of(task).any(|(_, place)| {
            state.is_to_rest()
                || is_excluded(&state.excluded, &place.strategy)
                || !self.can_hold(&place.gang)
                || self.attempt_of(task).is_none()
                    && (!self.has_shape_for(&place.gang, place.strategy.gpus)
                        || self.is_too_large_for_host(state.group, place))
        })
    }

    fn is_too_large_for_host(&self, group: usize, place: &Place) -> bool {
        let gpu_type = self.gang_type(&place.gang).to_owned();
        let key = TrialKey { strategy: place.strategy.key(), gpu_type };
        self.why_too_large_for_host(group, &key).is_some()
    }

    /// Whether a waiting task has an open place before the last of what it must come after: on one
    /// device each would wait for the other.
    fn is_too_early(&self, task: TaskId) -> bool {
        if self.attempt_of(task).is_some() {
            return false;
        }
        let Some((first, _)) = self.open_places_of(task).next() else { return false };
        self.waits_for(task).any(|before| {
            let last = self.order.of_task(before).last();
            self.order.closed.contains(&before) || last.is_none_or(|last| *last > first)
        })
    }
}
