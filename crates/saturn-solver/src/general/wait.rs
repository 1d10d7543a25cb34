//! Making a plan cheaper by letting gangs wait.
//!
//! A node is paid for while it holds anything, so a gang that overlaps another gang on its node
//! costs nothing. So a later start may be cheaper. In some cheapest plan every gang starts or ends
//! with another gang, or at a limit of its own. Any other plan can be shifted one way or the other
//! at no cost. So these starts are tried for one gang after the other, with the other gangs left in
//! place, until no start helps.

use crate::general::instance::Instance;
use crate::general::play::{Placed, covered};

/// With more gangs than this it takes too long.
const MANY: usize = 150;
const PASSES: usize = 6;

/// Shifts gangs to starts at which the plan is cheaper.
pub(crate) fn shift_gangs(instance: &Instance, placed: &mut [Placed]) {
    if placed.len() > MANY || instance.nodes.iter().all(|node| node.price == 0.0) {
        return;
    }
    let makespan = placed.iter().map(Placed::end).fold(0.0, f64::max);
    let slack = 1e-12 * (1.0 + makespan);
    for _ in 0..PASSES {
        let mut is_better = false;
        for index in 0..placed.len() {
            if !placed[index].stays {
                is_better |= shift_one(instance, placed, index, slack);
            }
        }
        if !is_better {
            return;
        }
    }
}

fn shift_one(instance: &Instance, placed: &mut [Placed], index: usize, slack: f64) -> bool {
    let one = placed[index].clone();
    let facts = &instance.tasks[one.task];
    let lasts = one.lasts;
    // No gang becomes tardier.
    let due = facts.due.min(facts.wished.max(one.end()));
    let (mut low, mut high) = (facts.release, due - lasts);
    for (node, _) in &one.parts {
        low = low.max(instance.nodes[*node].from);
        high = high.min(instance.nodes[*node].until - lasts);
    }
    let mut starts = Vec::new();
    for other in placed.iter().filter(|other| other.task != one.task) {
        if facts.after.contains(&other.task) {
            low = low.max(other.end());
        }
        if facts.before.contains(&other.task) {
            high = high.min(other.start - lasts);
        }
        starts.extend([other.start, other.end(), other.start - lasts, other.end() - lasts]);
    }
    starts.push(low);
    if high.is_finite() {
        starts.push(high);
    }
    starts.retain(|start| (low..=high).contains(start));
    let mut least = paid(instance, placed, &one.parts);
    let before = least;
    let mut best = None;
    for start in starts {
        placed[index].start = start;
        let cost = paid(instance, placed, &one.parts);
        if cost < least - 1e-12 * (1.0 + before) && fits(instance, placed, index, slack) {
            least = cost;
            best = Some(start);
        }
    }
    let start = best.unwrap_or(one.start);
    placed[index].start = start;
    best.is_some()
}

/// The cost of a plan.
pub(crate) fn cost(instance: &Instance, placed: &[Placed]) -> f64 {
    let all: Vec<(usize, u32)> = (0..instance.nodes.len()).map(|node| (node, 0)).collect();
    paid(instance, placed, &all)
}

/// The cost of some nodes.
fn paid(instance: &Instance, placed: &[Placed], parts: &[(usize, u32)]) -> f64 {
    parts
        .iter()
        .map(|(node, _)| {
            let on_node = placed.iter().filter(|one| one.parts.iter().any(|part| part.0 == *node));
            let mut spans: Vec<(f64, f64)> = on_node.map(|one| (one.start, one.end())).collect();
            instance.nodes[*node].price * covered(&mut spans)
        })
        .sum()
}

/// Whether enough devices and host memory are free for a gang all the time, and its owner's cap is kept.
/// Two gangs may overlap by `slack`, but by no more than a quarter of the shorter gang.
fn fits(instance: &Instance, placed: &[Placed], index: usize, slack: f64) -> bool {
    let one = &placed[index];
    let slack_of = |gang: &Placed| slack.min(0.25 * gang.lasts.min(one.lasts));
    let running_at = |at: f64| {
        placed.iter().enumerate().filter(move |(other, gang)| {
            let at = at + slack_of(gang);
            *other != index && gang.start <= at && at < gang.end()
        })
    };
    let inside = placed.iter().map(|gang| gang.start);
    let inside = inside.filter(|at| one.start < *at && *at + slack_of(one) < one.end());
    let mut times = inside.chain([one.start]);
    times.all(|at| {
        let is_free = one.parts.iter().all(|(node, gpus)| {
            let parts = running_at(at)
                .flat_map(|(_, gang)| gang.parts.iter().map(|part| (part, gang.host)));
            let on_node = parts.filter(|(part, _)| part.0 == *node);
            let (held, bytes) =
                on_node.fold((0, 0), |held, (part, host)| (held.0 + part.1, held.1 + host));
            let spec = instance.model.nodes[*node];
            held + gpus <= spec.gpus && (one.host == 0 || bytes + one.host <= spec.host)
        });
        is_free && keeps_cap(instance, one, running_at(at).map(|(_, gang)| gang))
    })
}

/// Whether a gang beside these gangs keeps its owner's cap.
fn keeps_cap<'a>(
    instance: &Instance,
    one: &Placed,
    beside: impl Iterator<Item = &'a Placed>,
) -> bool {
    let caps = &instance.model.caps;
    let Some(cap) = caps.of(one.task) else { return true };
    let gpus = |gang: &Placed| gang.parts.iter().map(|(_, gpus)| gpus).sum::<u32>();
    let of_cap = beside.filter(|gang| caps.of(gang.task) == Some(cap));
    of_cap.map(gpus).sum::<u32>() + gpus(one) <= caps.max_gpus[cap]
}
