//! The state of the search: for each node, its gangs in the order in which they are placed.
//!
//! A list determines its node's timeline: each gang starts as soon as enough devices are free
//! behind the gangs before it. Any list is a valid plan for its node, so the search never has to
//! repair overlaps.
//!
//! Running tasks that stay are at the head of their node's list, and so start at 0: they hold
//! devices of their own. [`stays_first`] restores that after a change.

use crate::problem::model::{Model, Stay};
use crate::problem::modes::Mode;
use crate::problem::schedule::{Schedule, Step};
use crate::problem::timeline::place;

/// The mode of a task that stays as it runs.
const STAY: u16 = u16::MAX;

/// A gang on a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entry {
    pub(crate) runtime: f64,
    pub(crate) task: u32,
    /// Devices; GPU counts are below 65536 by `saturn_core::Problem`'s invariants.
    pub(crate) gpus: u16,
    /// Index into the task's modes on the node's kind, or `STAY`.
    mode: u16,
}

impl Entry {
    #[expect(clippy::cast_possible_truncation, reason = "counts are bounded by the problem")]
    #[inline]
    pub(crate) fn new(task: usize, index: usize, mode: &Mode) -> Self {
        Self {
            runtime: mode.runtime,
            task: task as u32,
            gpus: mode.gpus as u16,
            mode: index as u16,
        }
    }

    /// A running task left as it is; on its own node only.
    #[expect(clippy::cast_possible_truncation, reason = "counts are bounded by the problem")]
    pub(crate) fn staying(task: usize, stay: &Stay) -> Self {
        let gpus = stay.held() as u16;
        Self { runtime: stay.runtime, task: task as u32, gpus, mode: STAY }
    }

    /// Whether it is a running task left as it is.
    #[inline]
    pub(crate) fn stays(&self) -> bool {
        self.mode == STAY
    }

    /// Index into the task's modes on the node's kind, unless it stays.
    #[inline]
    pub(crate) fn mode(&self) -> Option<usize> {
        (self.mode != STAY).then_some(usize::from(self.mode))
    }

    /// GPU-seconds.
    #[inline]
    pub(crate) fn area(&self) -> f64 {
        f64::from(self.gpus) * self.runtime
    }
}

/// Brings gangs that stay to the front, everything else in its order.
#[inline]
pub(crate) fn stays_first(list: &mut [Entry]) {
    let mut first = 0;
    for at in 0..list.len() {
        if list[at].stays() {
            list[first..=at].rotate_right(1);
            first += 1;
        }
    }
}

/// Gangs by node.
pub(crate) type Lists = Vec<Vec<Entry>>;

/// The load of a list.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    /// When the last gang ends, seconds.
    pub(crate) end: f64,
    /// GPU-seconds held.
    pub(crate) area: f64,
}

/// Plays a list on a node whose devices fall free at `ready`; `free` is scratch space.
///
/// The area counts the time before a device is ready, so that a node never ends before its area
/// over its width.
#[inline]
pub(crate) fn play(free: &mut [f64], ready: &[f64], list: &[Entry]) -> Load {
    let free = &mut free[..ready.len()];
    free.copy_from_slice(ready);
    let mut load = Load { area: ready.iter().sum(), ..Load::default() };
    for entry in list {
        place(free, usize::from(entry.gpus), entry.runtime);
        load.area += entry.area();
    }
    load.end = free.last().copied().unwrap_or(0.0);
    load
}

/// When the devices of each node fall free behind its list, ascending.
pub(crate) fn free(model: &Model, lists: &Lists) -> Vec<Vec<f64>> {
    let mut free = model.ready.clone();
    for (free, list) in free.iter_mut().zip(lists) {
        for entry in list {
            place(free, usize::from(entry.gpus), entry.runtime);
        }
    }
    free
}

/// The load of each node's list.
pub(crate) fn loads(model: &Model, lists: &Lists) -> Vec<Load> {
    let mut free = Vec::new();
    lists
        .iter()
        .zip(&model.ready)
        .map(|(list, ready)| {
            free.resize(ready.len(), 0.0);
            play(&mut free, ready, list)
        })
        .collect()
}

/// The lists' makespan, seconds.
pub(crate) fn makespan(model: &Model, lists: &Lists) -> f64 {
    loads(model, lists).iter().map(|load| load.end).fold(0.0, f64::max)
}

/// The schedule that plays the lists node by node.
pub(crate) fn schedule(model: &Model, lists: &Lists) -> Schedule {
    let mut steps = Vec::with_capacity(model.tasks.len());
    for (node, list) in lists.iter().enumerate() {
        for entry in list {
            steps.extend(step(model, node, entry));
        }
    }
    steps
}

fn step(model: &Model, node: usize, entry: &Entry) -> Option<Step> {
    let task = entry.task as usize;
    match entry.mode() {
        None => model.tasks[task].stay.as_ref().map(|stay| Step::staying(task, stay)),
        Some(mode) => {
            let mode = model.tasks[task].modes[model.nodes[node].kind][mode];
            Some(Step::on_node(task, mode.strategy, node, mode.gpus))
        }
    }
}
