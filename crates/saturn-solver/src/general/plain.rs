//! A start for large problems: the plan of what is left of a problem without its facts.
//!
//! The search over lists plays a thousand times more gangs a second than the general one. It knows
//! when devices fall free for the first time, so that arrivals of nodes and tasks that can't be moved
//! are kept; releases, precedence, departures, deadlines and places are not. Its plan is then built
//! anew in its order of starts with all of them, each task as it was there where it may be.

use super::construct::{Recipe, Rule, construct};
use super::instance::Instance;
use super::play::{Choice, Genome, Player};
use crate::bounds::area::AreaBound;
use crate::clock::Deadline;
use crate::lists::Lists;
use crate::options::{Aim, Options};
use crate::schedule::Pace;
use crate::search::Search;
use crate::timeline::place;

/// With fewer tasks that have a choice the general search needs no such start.
const FEW: usize = 8;

/// The genomes, after `share` of the time left; none for a problem with few tasks, or one with gangs
/// that need several nodes.
pub(super) fn start(
    instance: &Instance,
    aim: Aim,
    bound: &AreaBound,
    options: &Options,
    threads: usize,
    deadline: Deadline,
    share: f64,
) -> Vec<Genome> {
    let mut model = instance.model.clone();
    for (ready, node) in model.ready.iter_mut().zip(&instance.nodes) {
        ready.fill(node.from);
    }
    model.tasks.iter_mut().for_each(|task| task.wide.clear());
    let mut num_free = 0;
    for (task, facts) in instance.tasks.iter().enumerate() {
        let Some(stay) = facts.stay.as_ref().filter(|_| facts.is_fixed) else {
            num_free += 1;
            if model.tasks[task].modes.iter().all(Vec::is_empty) {
                return Vec::new();
            }
            continue;
        };
        for (node, gpus) in stay.parts() {
            place(&mut model.ready[node], gpus as usize, stay.runtime);
        }
        model.tasks[task].modes.iter_mut().for_each(Vec::clear);
    }
    if num_free < FEW {
        return Vec::new();
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
    let lists = search.run(None).lists;
    let (starts, choices) = read(instance, &model.ready, &lists);
    let allows = |task: usize, choice: Choice| choices[task] == Some(choice);
    let mut player = Player::new(instance, Pace::Packed);
    let mut build = |is_prompt| {
        let recipe = Recipe { rule: Rule::Head, target: 0.0, thrift: 1.0, is_prompt };
        construct(&mut player, recipe, &starts, deadline, &allows, false)
    };
    [false, true].into_iter().filter_map(&mut build).collect()
}

/// When each task starts on the lists, and as what.
fn read(instance: &Instance, ready: &[Vec<f64>], lists: &Lists) -> (Vec<f64>, Vec<Option<Choice>>) {
    let mut starts = vec![0.0; instance.tasks.len()];
    let mut choices = vec![None; instance.tasks.len()];
    for (node, list) in lists.iter().enumerate() {
        let mut free = ready[node].clone();
        for entry in list {
            let task = entry.task as usize;
            starts[task] = place(&mut free, usize::from(entry.gpus), entry.runtime);
            choices[task] = Some(Choice::Narrow { node, mode: usize::from(entry.mode) });
        }
    }
    (starts, choices)
}
