//! The baselines: planning as people do without Saturn, and by methods that came before it.
//!
//! - `current-practice`: each node runs one task at a time on all its GPUs, by the fastest
//!   technique at that width. Tasks go in the order given to the node that can end them first
//!   ("current practice" of Saturn, arXiv 2309.01226, section 5).
//! - `max` and `min`: every task as wide as a node, or as narrow as it can be, the longest first
//!   ("Max-Heuristic" and "Min-Heuristic" of the same paper).
//! - `optimus`: every task starts with its least GPU count. Then the remaining GPUs go, one step of
//!   a task's ladder at a time, to the task whose remaining time falls most per GPU (section 4.2 of
//!   Optimus, Peng et al., EuroSys 2018; "Optimus-Greedy" of Saturn). With at least as many tasks
//!   as GPUs no GPU remains, and `optimus` is `min`.
//! - `random`: a strategy, a node and a place in the order at random.
//!
//! A task without a strategy for one node runs under its shortest wide strategy. This file decides
//! how many GPUs each task gets, and whether gangs may share a node. `general/yardsticks` builds
//! the plans.

use crate::problem::model::Model;

/// Whether gangs may share a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A gang starts when enough devices are free.
    Packed,
    /// A gang starts when its nodes are wholly free.
    OneAtATime,
}

/// A baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Baseline {
    CurrentPractice,
    Optimus,
    Max,
    Min,
    Random,
}

/// The GPU count at which each task runs, 0 for a task of wide modes alone. `None` for the
/// baselines that have no such rule.
pub(crate) fn gpu_counts(model: &Model, baseline: Baseline) -> Option<Vec<u32>> {
    match baseline {
        Baseline::CurrentPractice | Baseline::Random => None,
        Baseline::Max => Some(levels(model, Level::Widest)),
        Baseline::Min => Some(levels(model, Level::Narrowest)),
        Baseline::Optimus => Some(marginal_gains(model)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Widest,
    Narrowest,
}

/// The GPU counts of a task's narrow modes on any kind, ascending.
fn ladder(model: &Model, task: usize) -> Vec<u32> {
    let mut counts: Vec<u32> =
        model.tasks[task].modes.iter().flatten().map(|mode| mode.gpus).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn levels(model: &Model, level: Level) -> Vec<u32> {
    (0..model.tasks.len())
        .map(|task| {
            let counts = ladder(model, task);
            match level {
                Level::Widest => counts.last().copied().unwrap_or(0),
                Level::Narrowest => counts.first().copied().unwrap_or(0),
            }
        })
        .collect()
}

/// The shortest runtime of a task on exactly `gpus` devices, over kinds.
pub(crate) fn runtime_at(model: &Model, task: usize, gpus: u32) -> f64 {
    model.tasks[task]
        .modes
        .iter()
        .flatten()
        .filter(|mode| mode.gpus == gpus)
        .map(|mode| mode.runtime)
        .fold(f64::INFINITY, f64::min)
}

/// Optimus: GPUs go to the largest marginal gain while any remain.
fn marginal_gains(model: &Model) -> Vec<u32> {
    let mut counts = levels(model, Level::Narrowest);
    let mut left = model.num_gpus() - counts.iter().map(|count| f64::from(*count)).sum::<f64>();
    let next = |task: usize, count: u32| {
        ladder(model, task).into_iter().find(|wider| *wider > count).map(|wider| {
            let gain = runtime_at(model, task, count) - runtime_at(model, task, wider);
            (gain / f64::from(wider - count), wider)
        })
    };
    let mut offers: Vec<Option<(f64, u32)>> =
        counts.iter().enumerate().map(|(task, count)| next(task, *count)).collect();
    loop {
        let affordable = offers.iter().enumerate().filter_map(|(task, offer)| {
            let (gain, wider) = (*offer)?;
            (f64::from(wider - counts[task]) <= left && gain > 0.0).then_some((gain, task, wider))
        });
        let Some((_, task, wider)) =
            affordable.max_by(|left, right| left.0.total_cmp(&right.0).then(right.1.cmp(&left.1)))
        else {
            return counts;
        };
        left -= f64::from(wider - counts[task]);
        counts[task] = wider;
        offers[task] = next(task, wider);
    }
}
