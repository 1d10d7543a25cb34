//! A start for large problems: the plan of what is left of a problem without its facts.
//!
//! The search over lists plays a thousand times more gangs a second than the general one. It knows
//! when devices fall free for the first time and which tasks run already, so that arrivals of nodes
//! and gangs that stay are kept; releases, precedence, departures, deadlines and places are not. Its
//! plan is then played anew with all of them, in its order of starts.

use super::instance::Instance;
use super::play::{Choice, Genome};
use crate::bounds::area::AreaBound;
use crate::clock::Deadline;
use crate::lists::Lists;
use crate::options::{Aim, Options};
use crate::search::Search;
use crate::timeline::place;

/// With fewer tasks that have a choice the general search needs no such start.
const FEW: usize = 8;

/// The genome, after `share` of the time left; `None` for a problem with few tasks, or one with gangs
/// that need several nodes.
pub(super) fn start(
    instance: &Instance,
    aim: Aim,
    bound: &AreaBound,
    options: &Options,
    threads: usize,
    deadline: Deadline,
    share: f64,
) -> Option<Genome> {
    let mut model = instance.model.clone();
    for (ready, node) in model.ready.iter_mut().zip(&instance.nodes) {
        ready.fill(node.from);
    }
    let mut num_free = 0;
    for task in &mut model.tasks {
        task.wide.clear();
        if let Some(stay) = task.stay.take_if(|stay| stay.home().is_none()) {
            // On several nodes it is left as it is.
            for (node, gpus) in stay.parts() {
                place(&mut model.ready[node], gpus as usize, stay.runtime);
            }
            task.modes.iter_mut().for_each(Vec::clear);
        } else if task.modes.iter().any(|modes| !modes.is_empty()) {
            num_free += 1;
        } else if task.stay.is_none() {
            return None;
        }
    }
    if num_free < FEW {
        return None;
    }
    let search = Search {
        model: &model,
        objective: aim,
        bound,
        deadline: deadline.within(deadline.left_s() * share),
        max_moves: options.max_moves.map(|moves| moves / 2),
        seed: options.seed,
        threads,
        enough: 0.0,
    };
    Some(genome(instance, &model.ready, &search.run(None).lists))
}

/// The lists as one order by start; tasks on none of them stay.
fn genome(instance: &Instance, ready: &[Vec<f64>], lists: &Lists) -> Genome {
    let mut choices = vec![Choice::Stay; instance.tasks.len()];
    let mut order: Vec<(f64, usize)> = Vec::with_capacity(instance.tasks.len());
    for (node, list) in lists.iter().enumerate() {
        let mut free = ready[node].clone();
        for entry in list {
            let task = entry.task as usize;
            let start = place(&mut free, usize::from(entry.gpus), entry.runtime);
            choices[task] = entry.mode().map_or(Choice::Stay, |mode| Choice::Narrow { node, mode });
            order.push((start, task));
        }
    }
    order.retain(|(_, task)| !instance.tasks[*task].is_fixed);
    order.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    Genome { order: order.into_iter().map(|(_, task)| task).collect(), choices }
}
