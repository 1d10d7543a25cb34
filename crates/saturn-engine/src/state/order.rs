//! Which places of a plan each task and each device has, in order, and which tasks have lost
//! theirs.

use std::collections::BTreeSet;

use crate::facts::ids::{DeviceId, TaskId, devices};
use crate::facts::plan::RunPlan;
use crate::state::by_device::ByDevice;
use crate::state::device::NodeState;

/// The indices of a plan's places, by task and by device.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Order {
    of_tasks: Lists,
    on_devices: Lists,
    /// The number of each device's list.
    numbers: ByDevice<()>,
    /// Tasks whose places can't be followed any more.
    closed: BTreeSet<TaskId>,
    /// The same tasks, in the order in which they lost their places.
    closings: Vec<TaskId>,
}

impl Order {
    pub(crate) fn of(nodes: &[NodeState], plan: &RunPlan) -> Self {
        let places = || plan.places.iter().enumerate();
        let numbers = ByDevice::of(nodes);
        let of_tasks = || places().map(|(index, place)| (place.task.0, index));
        let mut on_devices = Vec::with_capacity(plan.places.len());
        for (index, place) in places() {
            let keys = devices(&place.gang).filter_map(|device| numbers.index(device));
            on_devices.extend(keys.map(|key| (key, index)));
        }
        Self {
            of_tasks: Lists::of(of_tasks),
            on_devices: Lists::of(|| on_devices.iter().copied()),
            numbers,
            closed: BTreeSet::new(),
            closings: Vec::new(),
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

    /// Closes all places of a task.
    pub(crate) fn close(&mut self, task: TaskId) {
        if self.closed.insert(task) {
            self.closings.push(task);
        }
    }

    /// Tasks that have lost their places, in the order in which they did, but for the first so many.
    pub(crate) fn closed_since(&self, number: usize) -> &[TaskId] {
        self.closings.get(number..).unwrap_or_default()
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
