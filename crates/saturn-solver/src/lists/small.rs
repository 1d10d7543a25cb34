//! Small problems: annealed whole, again and again.
//!
//! Each annealing begins at the best plan or at a greedy plan. Its target is random between the
//! bound and the best makespan, and its first temperature is random. Rounds get longer: a few tasks
//! are better annealed often than long, since a cold annealing never leaves its start. A target
//! below the possible is no waste: different targets make different modes attractive.

use crate::bounds::area::AreaBound;
use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::course::rounds::Limits;
use crate::lists::anneal::{Cooling, Region};
use crate::lists::greedy::{HASTES, ORDERS, Recipe, greedy};
use crate::lists::progress::Progress;
use crate::lists::settle::Incumbent;
use crate::problem::model::Model;

/// Moves of the first annealings. Their number doubles in each round up to so many for each task,
/// or so many, and every few rounds from there on.
const FIRST: u64 = 256;
const SHORT_PER_TASK: u64 = 1_000;
const SHORT: u64 = 20_000;
const LONGEST: u64 = 8_000_000;
const ROUNDS_PER_LENGTH: u64 = 2;

/// How far the search of a small problem has come.
pub(crate) struct Small {
    length: u64,
    short: u64,
    /// Rounds of this length so far.
    num_rounds: u64,
}

impl Small {
    pub(crate) fn new(progress: &Progress) -> Self {
        let short = SHORT.min(SHORT_PER_TASK * progress.model.tasks.len() as u64);
        Self { length: FIRST.min(short), short, num_rounds: 0 }
    }

    /// One annealing on each stream.
    pub(crate) fn round(&mut self, progress: &mut Progress, limits: &Limits) {
        let length = self.length;
        let Progress { model, bound, best, course } = progress;
        let (model, bound, start, deadline) = (*model, *bound, &*best, limits.deadline);
        let items = vec![(); course.num_streams()];
        let round = course.round(limits, items, length, |(), random, most| {
            anneal(&Start { model, bound, best: start }, length, most, deadline, random)
        });
        for found in round.results.into_iter().flatten() {
            progress.take(found);
        }
        if round.is_whole {
            self.num_rounds += 1;
            if self.length < self.short || self.num_rounds == ROUNDS_PER_LENGTH {
                let most = if self.length < self.short { self.short } else { LONGEST };
                self.length = (self.length * 2).min(most);
                self.num_rounds = 0;
            }
        }
    }
}

/// What an annealing begins with.
struct Start<'a> {
    model: &'a Model,
    bound: &'a AreaBound,
    best: &'a Incumbent,
}

/// `most` moves of an annealing of the whole problem from a random start.
fn anneal(
    start: &Start,
    num_moves: u64,
    most: u64,
    deadline: Deadline,
    random: &mut Random,
) -> Option<Incumbent> {
    let Start { model, bound, best } = *start;
    let least = bound.makespan;
    let is_fresh = random.below(2) == 0;
    let target = least + (best.value - least) * (0.3 + 0.7 * random.unit());
    let lists = if is_fresh {
        let order = ORDERS[random.below(ORDERS.len())];
        let haste = HASTES[random.below(HASTES.len())];
        let stays = random.below(4) > 0;
        greedy(model, &bound.prices, Recipe { target, haste, order, stays })
    } else {
        best.lists.clone()
    };
    let warmest = random.log_between(0.01, 0.2);
    let cooling = Cooling { from: least * warmest, to: least * 0.001, num_moves };
    let nodes = (0..model.nodes.len()).collect();
    let mut region = Region::new(model, &bound.prices, nodes, lists, target);
    region.run(cooling, most, Some(best.value), deadline, random)
}
