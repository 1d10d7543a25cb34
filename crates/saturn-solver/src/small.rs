//! Small problems: annealed whole, again and again.
//!
//! Each round every thread anneals once, from the best plan or from a greedy one, with a random
//! target between the bound and the best makespan and a random first temperature; rounds get
//! longer, from a length that suits the number of tasks: a few tasks are better annealed often than long,
//! since a cold annealing never leaves where it starts. A target below what is possible is no waste: different targets make different modes
//! attractive.

use crate::anneal::{Cooling, Region};
use crate::greedy::{HASTES, ORDERS, Recipe, greedy};
use crate::lists::Lists;
use crate::random::Random;
use crate::search::{Incumbent, Search, in_threads};

/// Moves of the first rounds, for each task and at most; the length doubles every few rounds.
const FIRST_ROUND_PER_TASK: u64 = 1_000;
const FIRST_ROUND: u64 = 20_000;
const LONGEST_ROUND: u64 = 8_000_000;
const ROUNDS_PER_LENGTH: u64 = 6;

/// Improves `best` until a limit is reached.
pub(crate) fn search(search: &Search, best: &mut Incumbent) {
    let nodes: Vec<usize> = (0..search.model.nodes.len()).collect();
    let mut randoms: Vec<Random> =
        (0..search.threads as u64).map(|stream| Random::new(search.seed, stream)).collect();
    let mut num_moves = 0;
    let mut round = 0;
    let mut length = FIRST_ROUND.min(FIRST_ROUND_PER_TASK * search.model.tasks.len() as u64);
    while !search.is_done(best, num_moves) {
        round += 1;
        if round % ROUNDS_PER_LENGTH == 0 {
            length = (length * 2).min(LONGEST_ROUND);
        }
        let share = search
            .max_moves
            .map_or(u64::MAX, |limit| (limit - num_moves).div_ceil(search.threads as u64));
        let results = in_threads(&mut randoms, |random, moves| {
            anneal(search, best, &nodes, length.min(share), random, moves)
        });
        for (found, moves) in results {
            num_moves += moves;
            if let Some((_, lists)) = found {
                search.improve(best, lists);
            }
        }
    }
}

/// One annealing of the whole problem from a random start.
fn anneal(
    search: &Search,
    best: &Incumbent,
    nodes: &[usize],
    num_moves: u64,
    random: &mut Random,
    moves: &mut u64,
) -> Option<(f64, Lists)> {
    let Search { model, bound, deadline, .. } = *search;
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
    let mut region = Region::new(model, &bound.prices, nodes.to_vec(), lists, target);
    region.run(cooling, Some(best.value), deadline, random, moves)
}
