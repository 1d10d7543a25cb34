//! Playing gangs whose nodes are given, such as those of another solver.

use super::instance::Instance;
use super::play::{Placed, take};

/// Places gangs in order of start, each as early as it can, but no more than `early` seconds before the
/// start given: what tolerances made of a start doesn't matter, and gangs can't overlap.
pub(crate) fn replay(instance: &Instance, mut gangs: Vec<Placed>, early: f64) -> Vec<Placed> {
    gangs.sort_by(|left, right| {
        right
            .stays
            .cmp(&left.stays)
            .then(left.start.total_cmp(&right.start))
            .then(left.task.cmp(&right.task))
    });
    let mut free: Vec<Vec<f64>> = instance
        .model
        .nodes
        .iter()
        .zip(&instance.nodes)
        .map(|(node, facts)| vec![facts.from; node.gpus as usize])
        .collect();
    let mut ends = vec![f64::NAN; instance.tasks.len()];
    let mut placed = Vec::with_capacity(gangs.len());
    while !gangs.is_empty() {
        let is_ready = |gang: &Placed| {
            instance.tasks[gang.task].after.iter().all(|other| !ends[*other].is_nan())
        };
        // Starts that differ by less than a tolerance may be in the wrong order.
        let next = gangs.iter().position(is_ready).unwrap_or(0);
        let mut gang = gangs.remove(next);
        let facts = &instance.tasks[gang.task];
        let floor = facts.release.max(gang.start - early).max(0.0);
        let ready = facts.after.iter().map(|other| ends[*other]).fold(floor, f64::max);
        let start = gang
            .parts
            .iter()
            .map(|(node, gpus)| free[*node][*gpus as usize - 1])
            .fold(ready, f64::max);
        gang.start = if gang.stays { 0.0 } else { start };
        ends[gang.task] = gang.end();
        for (node, gpus) in &gang.parts {
            take(&mut free[*node], *gpus as usize, gang.start, gang.end());
        }
        placed.push(gang);
    }
    placed
}
