//! What people do without Saturn, and what came before it: the yardsticks of a plan.
//!
//! - `current-practice`: each node runs one task at a time on all its GPUs, by the technique that is
//!   fastest at that width; tasks go in the order given to the node that can end them first
//!   ("current practice" of Saturn, arXiv 2309.01226, section 5).
//! - `max` and `min`: every task as wide as a node, or as narrow as it can be, the longest first
//!   ("Max-Heuristic" and "Min-Heuristic" there).
//! - `optimus`: every task starts with its least GPU count; then GPUs go, one step of a task's
//!   ladder at a time, to the task whose remaining time falls most per GPU, while there are any
//!   (section 4.2 of Optimus, Peng et al., EuroSys 2018; "Optimus-Greedy" of Saturn). With at least
//!   as many tasks as GPUs nothing is left to hand out, and it is `min`.
//! - `random`: a strategy, a node and a place in the order at random.
//!
//! A task without a strategy for one node runs under its shortest wide one.

use crate::model::{Mode, Model};
use crate::random::Random;
use crate::sequence::{Choice, Gang, Sequence, rest_after};
use crate::timeline::place;

/// A yardstick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Baseline {
    CurrentPractice,
    Optimus,
    Max,
    Min,
    Random,
}

/// The GPU count at which each task runs, 0 for a task of wide modes alone; `None` for the baselines
/// that have no such rule.
pub(crate) fn gpu_counts(model: &Model, baseline: Baseline) -> Option<Vec<u32>> {
    match baseline {
        Baseline::CurrentPractice | Baseline::Random => None,
        Baseline::Max => Some(levels(model, Level::Widest)),
        Baseline::Min => Some(levels(model, Level::Narrowest)),
        Baseline::Optimus => Some(marginal_gains(model)),
    }
}

/// The plan of a baseline; every task must have a mode.
pub(crate) fn baseline(model: &Model, baseline: Baseline, seed: u64) -> Sequence {
    match baseline {
        Baseline::CurrentPractice => one_at_a_time(model),
        Baseline::Random => at_random(model, seed),
        Baseline::Max | Baseline::Min | Baseline::Optimus => {
            let counts = gpu_counts(model, baseline).unwrap_or_default();
            list_schedule(model, longest_first(model, &counts))
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Widest,
    Narrowest,
}

/// GPU counts that a task has narrow modes for on any kind, ascending.
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

/// Optimus: GPUs to the largest marginal gain while there are any.
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

/// Tasks with their GPU counts (0: wide), the longest first.
fn longest_first(model: &Model, counts: &[u32]) -> Vec<(usize, u32)> {
    let runtime = |task: usize| match counts[task] {
        0 => model.tasks[task].shortest(),
        count => runtime_at(model, task, count),
    };
    let mut order: Vec<(usize, u32)> = counts.iter().copied().enumerate().collect();
    order.sort_by(|left, right| {
        runtime(right.0).total_cmp(&runtime(left.0)).then(left.0.cmp(&right.0))
    });
    order
}

/// The shortest wide mode of a task.
fn shortest_wide(model: &Model, task: usize) -> Option<Choice> {
    let modes = model.tasks[task].wide.iter().enumerate();
    let shortest = modes.min_by(|left, right| left.1.runtime.total_cmp(&right.1.runtime));
    shortest.map(|(mode, _)| Choice::Wide { mode, lead: None })
}

/// Each task with its GPU count to the node where it ends first, wide ones before all others.
fn list_schedule(model: &Model, order: Vec<(usize, u32)>) -> Sequence {
    dispatch(model, order.into_iter(), |model, node, task, gpus| {
        model.modes_on(task, node).iter().position(|mode| mode.gpus == gpus)
    })
}

/// Each node one task at a time, on all its GPUs.
fn one_at_a_time(model: &Model) -> Sequence {
    let mut ends: Vec<f64> = vec![0.0; model.nodes.len()];
    let mut wide: Sequence = Vec::new();
    let mut narrow: Sequence = Vec::new();
    for task in 0..model.tasks.len() {
        let options = (0..model.nodes.len()).filter_map(|node| {
            // The modes of a task get faster with width: the last is the fastest that fits.
            let mode = model.modes_on(task, node).len().checked_sub(1)?;
            Some((ends[node] + model.modes_on(task, node)[mode].runtime, node, mode))
        });
        match options.min_by(|left, right| left.0.total_cmp(&right.0)) {
            Some((end, node, mode)) => {
                ends[node] = end;
                narrow.push(Gang { task, choice: Choice::Narrow { node, mode } });
            }
            None => wide.extend(shortest_wide(model, task).map(|choice| Gang { task, choice })),
        }
    }
    wide.append(&mut narrow);
    wide
}

fn dispatch(
    model: &Model,
    order: impl Iterator<Item = (usize, u32)>,
    mode_on: impl Fn(&Model, usize, usize, u32) -> Option<usize>,
) -> Sequence {
    let mut wide: Sequence = Vec::new();
    let mut narrow: Vec<(usize, u32)> = Vec::new();
    for (task, gpus) in order {
        match shortest_wide(model, task) {
            Some(choice) if gpus == 0 => wide.push(Gang { task, choice }),
            _ => narrow.push((task, gpus)),
        }
    }
    let mut free = rest_after(model, &wide).ready;
    let mut sequence = wide;
    for (task, gpus) in narrow {
        let options = (0..model.nodes.len()).filter_map(|node| {
            let index = mode_on(model, node, task, gpus)?;
            let Mode { gpus, runtime, .. } = model.modes_on(task, node)[index];
            Some((free[node][gpus as usize - 1] + runtime, node, index))
        });
        if let Some((_, node, mode)) = options.min_by(|left, right| left.0.total_cmp(&right.0)) {
            let Mode { gpus, runtime, .. } = model.modes_on(task, node)[mode];
            place(&mut free[node], gpus as usize, runtime);
            sequence.push(Gang { task, choice: Choice::Narrow { node, mode } });
        }
    }
    sequence
}

fn at_random(model: &Model, seed: u64) -> Sequence {
    let mut random = Random::new(seed, 0);
    let mut sequence: Sequence = (0..model.tasks.len())
        .filter_map(|task| {
            let mut options: Vec<Choice> = (0..model.nodes.len())
                .flat_map(|node| {
                    (0..model.modes_on(task, node).len())
                        .map(move |mode| Choice::Narrow { node, mode })
                })
                .collect();
            options.extend(
                (0..model.tasks[task].wide.len()).map(|mode| Choice::Wide { mode, lead: None }),
            );
            (!options.is_empty()).then(|| {
                let choice = options[random.below(options.len())];
                Gang { task, choice }
            })
        })
        .collect();
    random.shuffle(&mut sequence);
    sequence
}
