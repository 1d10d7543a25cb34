//! The state of the search: for each node, its gangs in the order in which they are placed.
//!
//! A list determines its node's timeline: each gang starts as soon as enough devices are free,
//! given those before it. Any list is a valid plan for its node, so the search never has to repair
//! overlaps.

use crate::model::{Mode, Model};
use crate::schedule::{Place, Schedule, Step};
use crate::timeline::place;

/// A gang on a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entry {
    pub(crate) runtime: f64,
    pub(crate) task: u32,
    /// Devices; GPU counts are below 65536 by `saturn_core::Problem`'s invariants.
    pub(crate) gpus: u16,
    /// Index into the task's modes on the node's kind.
    pub(crate) mode: u16,
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

    /// GPU-seconds.
    #[inline]
    pub(crate) fn area(&self) -> f64 {
        f64::from(self.gpus) * self.runtime
    }
}

/// Gangs by node.
pub(crate) type Lists = Vec<Vec<Entry>>;

/// What a list comes to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    /// When the last gang ends, seconds.
    pub(crate) end: f64,
    /// GPU-seconds held.
    pub(crate) area: f64,
    /// Sum of the gangs' ends, seconds.
    pub(crate) sum_of_ends: f64,
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
        let start = place(free, usize::from(entry.gpus), entry.runtime);
        load.sum_of_ends += start + entry.runtime;
        load.area += entry.area();
    }
    load.end = free.last().copied().unwrap_or(0.0);
    load
}

/// What each node's list comes to.
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

/// The lists' sum of completion times, seconds.
pub(crate) fn completion(model: &Model, lists: &Lists) -> f64 {
    loads(model, lists).iter().map(|load| load.sum_of_ends).sum()
}

/// The schedule that plays the lists node by node.
pub(crate) fn schedule(model: &Model, lists: &Lists) -> Schedule {
    let mut steps = Vec::with_capacity(model.tasks.len());
    for (node, list) in lists.iter().enumerate() {
        for entry in list {
            let task = entry.task as usize;
            let mode = model.tasks[task].modes[model.nodes[node].kind][usize::from(entry.mode)];
            steps.push(Step { task, strategy: mode.strategy as usize, place: Place::Node(node) });
        }
    }
    steps
}
