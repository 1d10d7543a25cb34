//! Schedules: gangs in the order in which they are placed, and the plan that follows from them.
//!
//! This is the only place that hands out devices. Gangs that stay hold their own. Each other gang
//! starts when the last of its devices becomes free, so gangs on one device can't overlap, in any
//! order. An order read off another solver's start times decodes to starts no later than those.

use saturn_core::{Assignment, Gang, Placement, Problem, WHOLE};

use crate::problem::model::{Model, Stay};

/// One gang of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) task: usize,
    pub(crate) strategy: usize,
    /// Its nodes, with the devices taken on each.
    pub(crate) parts: Vec<(usize, u32)>,
    /// It starts no earlier, seconds.
    pub(crate) from: f64,
    /// Whether it runs already and is left as it is.
    pub(crate) stays: bool,
}

impl Step {
    /// A gang on one node that starts as soon as it can.
    pub(crate) fn on_node(task: usize, strategy: u32, node: usize, gpus: u32) -> Self {
        let parts = vec![(node, gpus)];
        Self { task, strategy: strategy as usize, parts, from: 0.0, stays: false }
    }

    /// A running task that is left as it is.
    pub(crate) fn staying(task: usize, stay: &Stay) -> Self {
        let parts = stay.parts().collect();
        Self { task, strategy: stay.strategy, parts, from: 0.0, stays: true }
    }
}

/// Gangs in the order in which they are placed; every task once.
pub(crate) type Schedule = Vec<Step>;

/// A device and when it falls free.
type Device = (f64, u32);

/// The assignments of a schedule, by start. Gangs that stay may stand anywhere in it.
pub(crate) fn assignments(problem: &Problem, model: &Model, schedule: &[Step]) -> Vec<Assignment> {
    let mut free: Vec<Vec<Device>> = problem
        .cluster
        .nodes
        .iter()
        .map(|node| (0..node.gpus).map(|device| (0.0, device)).collect())
        .collect();
    let (staying, others): (Vec<&Step>, Vec<&Step>) = schedule.iter().partition(|step| step.stays);
    let mut placed: Vec<Assignment> = Vec::with_capacity(schedule.len());
    for Step { task, strategy, .. } in staying {
        let Some(stay) = &model.tasks[*task].stay else { continue };
        for part in &stay.gang {
            hold(&mut free[part.node], &part.devices, stay.runtime);
        }
        let (gang, end_s) = (stay.gang.clone(), stay.runtime);
        let (task, strategy) = (*task, *strategy);
        placed.push(Assignment { task, strategy, gang, share: WHOLE, start_s: 0.0, end_s });
    }
    for step in others {
        let Step { task, strategy, parts, from, .. } = step;
        let first = |(node, gpus): &(usize, u32)| free[*node].get(*gpus as usize - 1);
        let firsts = parts.iter().filter_map(first);
        let start_s = firsts.map(|(time, _)| *time).fold(*from, f64::max);
        let mut gang: Gang = parts
            .iter()
            .map(|(node, gpus)| Placement {
                node: *node,
                devices: last_free(&free[*node], *gpus as usize, start_s),
            })
            .collect();
        gang.sort_by_key(|part| part.node);
        // A task that moved to its old place is not moved.
        let is_there =
            |stay: &&Stay| start_s == 0.0 && stay.strategy == *strategy && stay.gang == gang;
        let spec = &model.tasks[*task];
        let end_s = spec.stay.as_ref().filter(is_there).map_or_else(
            || start_s + (problem.tasks[*task].strategies[*strategy].runtime_s + spec.switch_cost),
            |stay| stay.runtime,
        );
        for part in &gang {
            hold(&mut free[part.node], &part.devices, end_s);
        }
        let (task, strategy) = (*task, *strategy);
        placed.push(Assignment { task, strategy, gang, share: WHOLE, start_s, end_s });
    }
    placed.sort_by(|left, right| {
        left.start_s.total_cmp(&right.start_s).then(left.task.cmp(&right.task))
    });
    placed
}

/// The `gpus` devices that fell free last by `start`; `free` is ascending.
fn last_free(free: &[Device], gpus: usize, start: f64) -> Vec<u32> {
    let beyond = free.partition_point(|(time, _)| *time <= start);
    let mut devices: Vec<u32> =
        free[beyond - gpus..beyond].iter().map(|(_, device)| *device).collect();
    devices.sort_unstable();
    devices
}

/// Takes these devices, which ascend, until `end`; `free` is ascending and stays so.
fn hold(free: &mut Vec<Device>, devices: &[u32], end: f64) {
    free.retain(|(_, device)| devices.binary_search(device).is_err());
    let at = free.partition_point(|(time, _)| *time <= end);
    free.splice(at..at, devices.iter().map(|device| (end, *device)));
}
