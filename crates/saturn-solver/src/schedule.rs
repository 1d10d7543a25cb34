//! Schedules: gangs in the order in which they are placed, and the plan that follows from them.
//!
//! This is the one place where devices are handed out. A gang starts when the last of its devices
//! falls free, so gangs on one device can't overlap whatever the order says; an order read off
//! another solver's start times decodes to starts no later than those.

use saturn_core::{Assignment, Placement, Problem, WHOLE};

use crate::model::{Model, WideMode};

/// Where a gang goes: a node, or the wide mode's nodes with the devices taken on each.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Place {
    Node(usize),
    Nodes(Vec<(usize, u32)>),
}

/// One gang of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) task: usize,
    pub(crate) strategy: usize,
    pub(crate) place: Place,
}

/// Gangs in the order in which they are placed; every task once.
pub(crate) type Schedule = Vec<Step>;

/// A device and when it falls free.
type Device = (f64, u32);

/// Whether gangs may share a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A gang starts when enough devices are free.
    Packed,
    /// A gang starts when its nodes are wholly free.
    OneAtATime,
}

/// The assignments of a schedule, by start.
pub(crate) fn assignments(problem: &Problem, schedule: &[Step], pace: Pace) -> Vec<Assignment> {
    let mut free: Vec<Vec<Device>> = problem
        .cluster
        .nodes
        .iter()
        .map(|node| (0..node.gpus).map(|device| (0.0, device)).collect())
        .collect();
    let mut placed: Vec<Assignment> = schedule
        .iter()
        .map(|step| {
            let strategy = &problem.tasks[step.task].strategies[step.strategy];
            let parts = match &step.place {
                Place::Node(node) => vec![(*node, strategy.gpus)],
                Place::Nodes(parts) => parts.clone(),
            };
            let start_s = parts
                .iter()
                .filter_map(|(node, gpus)| match pace {
                    Pace::Packed => free[*node].get(*gpus as usize - 1),
                    Pace::OneAtATime => free[*node].last(),
                })
                .map(|(time, _)| *time)
                .fold(0.0, f64::max);
            let end_s = start_s + strategy.runtime_s;
            let mut gang: Vec<Placement> = parts
                .iter()
                .map(|(node, gpus)| Placement {
                    node: *node,
                    devices: take(&mut free[*node], *gpus as usize, start_s, end_s),
                })
                .collect();
            gang.sort_by_key(|part| part.node);
            let Step { task, strategy, .. } = *step;
            Assignment { task, strategy, gang, share: WHOLE, start_s, end_s }
        })
        .collect();
    placed.sort_by(|left, right| {
        left.start_s.total_cmp(&right.start_s).then(left.task.cmp(&right.task))
    });
    placed
}

/// Takes the `gpus` devices that fell free last by `start`; `free` is ascending and stays so.
fn take(free: &mut Vec<Device>, gpus: usize, start: f64, end: f64) -> Vec<u32> {
    let beyond = free.partition_point(|(time, _)| *time <= start);
    let mut devices: Vec<u32> =
        free.drain(beyond - gpus..beyond).map(|(_, device)| device).collect();
    devices.sort_unstable();
    let at = free.partition_point(|(time, _)| *time <= end);
    free.splice(at..at, devices.iter().map(|device| (end, *device)));
    devices
}

/// The nodes that would let a wide gang start first, with the devices taken on each.
///
/// `free` holds the ascending free times of each node's devices. Whole nodes by the time at which
/// they are wholly free; those that turn out superfluous are dropped; with `pack` the last is the
/// node that can spare the rest first. `lead`, if of the kind, comes before all others: the first
/// nodes to fall free are not always the best.
pub(crate) fn nodes_for(
    model: &Model,
    free: &[Vec<f64>],
    mode: &WideMode,
    lead: Option<usize>,
) -> Vec<(usize, u32)> {
    let whole_free = |node: usize| {
        let is_lead = lead == Some(node);
        if is_lead { -1.0 } else { free[node].last().copied().unwrap_or(0.0) }
    };
    let mut nodes: Vec<usize> =
        (0..model.nodes.len()).filter(|node| model.nodes[*node].kind == mode.kind).collect();
    nodes.sort_by(|left, right| whole_free(*left).total_cmp(&whole_free(*right)));
    let mut chosen: Vec<usize> = Vec::new();
    let mut held = 0;
    for &node in &nodes {
        if held >= mode.gpus {
            break;
        }
        chosen.push(node);
        held += model.nodes[node].gpus;
    }
    chosen.retain(|node| {
        let is_superfluous = held - model.nodes[*node].gpus >= mode.gpus;
        if is_superfluous {
            held -= model.nodes[*node].gpus;
        }
        !is_superfluous
    });
    if !mode.pack || held == mode.gpus {
        return chosen.into_iter().map(|node| (node, model.nodes[node].gpus)).collect();
    }
    let Some(last) = chosen.pop() else { return Vec::new() };
    let rest = mode.gpus - (held - model.nodes[last].gpus);
    let spare = nodes
        .into_iter()
        .filter(|node| !chosen.contains(node) && model.nodes[*node].gpus >= rest)
        .min_by(|left, right| {
            free[*left][rest as usize - 1].total_cmp(&free[*right][rest as usize - 1])
        })
        .unwrap_or(last);
    let mut parts: Vec<(usize, u32)> =
        chosen.into_iter().map(|node| (node, model.nodes[node].gpus)).collect();
    parts.push((spare, rest));
    parts
}
