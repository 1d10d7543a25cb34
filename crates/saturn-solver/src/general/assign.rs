//! Handing out devices to gangs whose nodes and starts are known.

use saturn_core::{Assignment, Placement, WHOLE};

use super::instance::Instance;
use super::play::Placed;

/// Differences of times that are rounding, relative to the makespan.
const ROUNDING: f64 = 1e-11;

/// The assignments of gangs that fit at their times, by start.
///
/// Gangs that stay have their devices; each of the others in turn by start takes those of the free
/// devices that fell free last. There are always enough: a device is free unless some gang holds it.
pub(crate) fn assignments(instance: &Instance, mut placed: Vec<Placed>) -> Vec<Assignment> {
    placed.sort_by(|left, right| {
        right
            .stays
            .cmp(&left.stays)
            .then(left.start.total_cmp(&right.start))
            .then(left.task.cmp(&right.task))
    });
    let makespan = placed.iter().map(Placed::end).fold(0.0, f64::max);
    let slack = ROUNDING * (1.0 + makespan);
    // For each node, when its devices fall free.
    let mut free: Vec<Vec<f64>> =
        instance.model.nodes.iter().map(|node| vec![0.0; node.gpus as usize]).collect();
    let mut all: Vec<Assignment> = placed
        .iter()
        .map(|one| {
            let stay = instance.tasks[one.task].stay.as_ref();
            let mut gang: Vec<Placement> = match stay.filter(|_| one.stays) {
                Some(stay) => stay.gang.clone(),
                None => one
                    .parts
                    .iter()
                    .map(|(node, gpus)| Placement {
                        node: *node,
                        devices: latest_free(&free[*node], *gpus as usize, one.start + slack),
                    })
                    .collect(),
            };
            gang.sort_by_key(|part| part.node);
            // Moved to where it is, it isn't moved.
            let is_there = !one.stays
                && one.start == 0.0
                && stay.is_some_and(|stay| stay.strategy == one.strategy && stay.gang == gang);
            let end_s = match stay {
                Some(stay) if is_there => stay.runtime,
                _ => one.end(),
            };
            for part in &gang {
                for device in &part.devices {
                    free[part.node][*device as usize] = end_s;
                }
            }
            let Placed { task, strategy, start: start_s, .. } = *one;
            Assignment { task, strategy, gang, share: WHOLE, start_s, end_s }
        })
        .collect();
    all.sort_by(|left, right| {
        left.start_s.total_cmp(&right.start_s).then(left.task.cmp(&right.task))
    });
    all
}

/// The `gpus` devices that fall free last by `start`, or where they are too few, first after it.
fn latest_free(free: &[f64], gpus: usize, start: f64) -> Vec<u32> {
    let mut devices: Vec<(f64, u32)> = free.iter().copied().zip(0..).collect();
    devices.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    let beyond = devices.partition_point(|(time, _)| *time <= start).max(gpus);
    let mut taken: Vec<u32> =
        devices[beyond - gpus..beyond].iter().map(|(_, device)| *device).collect();
    taken.sort_unstable();
    taken
}
