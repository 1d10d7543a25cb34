//! Playing gangs whose nodes are given, such as those of another solver.

use crate::general::caps::CapCalendars;
use crate::general::instance::Instance;
use crate::general::play::{Placed, calendars};
use crate::problem::calendar::{earliest_on_all, earliest_with_memory};

/// Places gangs in order of start. Each starts as early as it can, but no more than `early` seconds
/// before the given start. So tolerances in the given starts don't matter, and gangs can't overlap.
pub(crate) fn replay(instance: &Instance, mut gangs: Vec<Placed>, early: f64) -> Vec<Placed> {
    gangs.sort_by(|left, right| {
        right
            .stays
            .cmp(&left.stays)
            .then(left.start.total_cmp(&right.start))
            .then(left.task.cmp(&right.task))
    });
    let (mut calendars, mut memories) = calendars(instance);
    let mut caps = CapCalendars::new(instance);
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
        let on_node = |node: usize, gpus: u32, from| {
            let (calendar, gpus) = (&calendars[node], u64::from(gpus));
            match memories.get(node) {
                None => calendar.earliest(gpus, from, gang.lasts),
                Some(memory) => {
                    earliest_with_memory((calendar, gpus), (memory, gang.host), from, gang.lasts)
                }
            }
        };
        let gpus = gang.parts.iter().map(|(_, gpus)| gpus).sum();
        let on_nodes = |from| earliest_on_all(&gang.parts, from, on_node);
        let start = caps.earliest((gang.task, gpus), ready, gang.lasts, on_nodes);
        gang.start = if gang.stays { 0.0 } else { start };
        ends[gang.task] = gang.end();
        for (node, gpus) in &gang.parts {
            calendars[*node].hold(u64::from(*gpus), gang.start, gang.end());
            if let Some(memory) = memories.get_mut(*node) {
                memory.hold(gang.host, gang.start, gang.end());
            }
        }
        caps.hold(gang.task, gpus, gang.start, gang.end());
        placed.push(gang);
    }
    placed
}
