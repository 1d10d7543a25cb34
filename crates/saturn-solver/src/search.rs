//! The anytime search over lists: greedy first, then annealing until the limits are reached.
//!
//! Small problems are annealed many times over with random targets, temperatures and starts, each
//! thread on its own; large ones once, in short epochs, each thread on its own half of the nodes,
//! which are dealt anew every epoch. In both, threads meet after a fixed number of moves, so that a
//! result depends on the seed and the number of moves, not on timing.

use std::thread;

use crate::anneal::{Cooling, Region};
use crate::bounds::area::AreaBound;
use crate::clock::Deadline;
use crate::greedy::{HASTES, ORDERS, Order, Recipe, greedy};
use crate::lists::{Lists, completion, makespan};
use crate::model::Model;
use crate::options::Objective;
use crate::random::Random;

/// Up to this many tasks and nodes a problem is annealed whole, many times.
const SMALL_TASKS: usize = 50;
const SMALL_NODES: usize = 16;
/// Moves of the first rounds of a small problem; the length doubles every few rounds.
const FIRST_ROUND: u64 = 50_000;
const LONGEST_ROUND: u64 = 8_000_000;
const ROUNDS_PER_LENGTH: u64 = 6;
/// Moves of each thread in an epoch of a large problem.
const EPOCH: u64 = 60_000;

/// What a search works on and within.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub(crate) model: &'a Model,
    pub(crate) objective: Objective,
    pub(crate) bound: &'a AreaBound,
    pub(crate) deadline: Deadline<'a>,
    pub(crate) max_moves: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
}

/// The best lists so far and what they are worth under the objective.
#[derive(Debug, Clone)]
pub(crate) struct Incumbent {
    pub(crate) value: f64,
    pub(crate) lists: Lists,
}

impl Search<'_> {
    /// Searches until a limit is reached or the makespan meets its bound.
    ///
    /// Every task must have a narrow mode.
    pub(crate) fn run(&self, warm: Option<Lists>) -> Incumbent {
        let mut best = self.construct();
        if let Some(lists) = warm {
            self.improve(&mut best, lists);
        }
        let is_small =
            self.model.tasks.len() <= SMALL_TASKS && self.model.nodes.len() <= SMALL_NODES;
        if is_small {
            self.restarts(&mut best);
        } else {
            self.epochs(&mut best);
        }
        best
    }

    fn value(&self, lists: &Lists) -> f64 {
        match self.objective {
            Objective::Makespan => makespan(self.model, lists),
            Objective::Completion => completion(self.model, lists),
        }
    }

    fn improve(&self, best: &mut Incumbent, lists: Lists) {
        let value = self.value(&lists);
        if value < best.value {
            *best = Incumbent { value, lists };
        }
    }

    /// The best of some greedy plans; fewer of them where there are many tasks.
    pub(crate) fn construct(&self) -> Incumbent {
        let num_recipes = (150_000 / self.model.tasks.len().max(1)).clamp(4, 60);
        let mut best: Option<Incumbent> = None;
        for recipe in self.recipes().take(num_recipes) {
            let lists = greedy(self.model, &self.bound.prices, recipe);
            let value = self.value(&lists);
            if best.as_ref().is_none_or(|incumbent| value < incumbent.value) {
                best = Some(Incumbent { value, lists });
            }
            if self.deadline.is_over() {
                break;
            }
        }
        best.unwrap_or_else(|| Incumbent { value: f64::INFINITY, lists: Lists::new() })
    }

    /// Recipes, the most promising first.
    fn recipes(&self) -> impl Iterator<Item = Recipe> {
        let least = self.bound.makespan;
        let orders: &[Order] = match self.objective {
            Objective::Makespan => &ORDERS,
            Objective::Completion => &[Order::Smallest],
        };
        let targets: &[f64] = match self.objective {
            Objective::Makespan => &[1.01, 1.03, 1.0, 1.06, 1.12, 1.25, 1.4],
            Objective::Completion => &[1.0, 2.0, 4.0, f64::INFINITY],
        };
        HASTES.iter().flat_map(move |haste| {
            targets.iter().flat_map(move |target| {
                orders.iter().map(move |order| Recipe {
                    target: least * target,
                    haste: *haste,
                    order: *order,
                })
            })
        })
    }

    fn is_done(&self, best: &Incumbent, num_moves: u64) -> bool {
        let is_optimal = self.objective == Objective::Makespan
            && best.value <= self.bound.makespan * (1.0 + 1e-9);
        is_optimal
            || self.deadline.is_over()
            || self.max_moves.is_some_and(|limit| num_moves >= limit)
    }

    /// Anneals the whole problem again and again.
    fn restarts(&self, best: &mut Incumbent) {
        let nodes: Vec<usize> = (0..self.model.nodes.len()).collect();
        let mut randoms: Vec<Random> =
            (0..self.threads as u64).map(|stream| Random::new(self.seed, stream)).collect();
        let mut num_moves = 0;
        let mut round = 0;
        let mut length = FIRST_ROUND;
        while !self.is_done(best, num_moves) {
            round += 1;
            if round % ROUNDS_PER_LENGTH == 0 {
                length = (length * 2).min(LONGEST_ROUND);
            }
            let share = self
                .max_moves
                .map_or(u64::MAX, |limit| (limit - num_moves).div_ceil(self.threads as u64));
            let results = in_threads(&mut randoms, |random, moves| {
                self.restart(best, &nodes, length.min(share), random, moves)
            });
            for (found, moves) in results {
                num_moves += moves;
                if let Some((_, lists)) = found {
                    self.improve(best, lists);
                }
            }
        }
    }

    /// One annealing of the whole problem from a random start.
    fn restart(
        &self,
        best: &Incumbent,
        nodes: &[usize],
        num_moves: u64,
        random: &mut Random,
        moves: &mut u64,
    ) -> Option<(f64, Lists)> {
        let least = self.bound.makespan;
        let is_fresh = random.below(2) == 0;
        let (target, scale, coldest) = match self.objective {
            Objective::Makespan => {
                (least + (best.value - least) * (0.3 + 0.7 * random.unit()), least, 0.001)
            }
            Objective::Completion => (f64::INFINITY, best.value / nodes.len() as f64, 0.0002),
        };
        let lists = if is_fresh {
            let order = match self.objective {
                Objective::Makespan => ORDERS[random.below(ORDERS.len())],
                Objective::Completion => Order::Smallest,
            };
            let haste = HASTES[random.below(HASTES.len())];
            greedy(self.model, &self.bound.prices, Recipe { target, haste, order })
        } else {
            best.lists.clone()
        };
        let warmest = random.log_between(if is_fresh { 0.05 } else { 0.03 }, 0.5);
        let cooling = Cooling { from: scale * warmest, to: scale * coldest, num_moves };
        let mut region = Region::new(
            self.model,
            self.objective,
            &self.bound.prices,
            nodes.to_vec(),
            lists,
            target,
        );
        region.run(cooling, Some(best.value), self.deadline, random, moves)
    }

    /// Anneals a large problem once, in epochs.
    fn epochs(&self, best: &mut Incumbent) {
        let num_regions = self.threads.min(self.model.nodes.len()).max(1);
        let mut randoms: Vec<Random> =
            (0..num_regions as u64).map(|stream| Random::new(self.seed, stream)).collect();
        let mut dealer = Random::new(self.seed, u64::MAX - 1);
        let mut nodes: Vec<usize> = (0..self.model.nodes.len()).collect();
        let mut current = best.lists.clone();
        let mut num_moves = 0;
        let begun_s = self.deadline.elapsed_s();
        let least = self.bound.makespan;
        let (hot, cold) = match self.objective {
            Objective::Makespan => (least * 0.01, least * 0.0002),
            Objective::Completion => {
                let mean = best.value / self.model.tasks.len() as f64;
                (mean * 0.02, mean * 0.0002)
            }
        };
        while !self.is_done(best, num_moves) {
            let done = self.share_done(num_moves, begun_s);
            let temperature = hot * (cold / hot).powf(done);
            let target = match self.objective {
                Objective::Makespan => least + (best.value - least) * 0.5,
                Objective::Completion => f64::INFINITY,
            };
            dealer.shuffle(&mut nodes);
            let share = nodes.len().div_ceil(num_regions);
            let mut regions: Vec<Region> = nodes
                .chunks(share)
                .map(|part| {
                    let lists =
                        part.iter().map(|node| std::mem::take(&mut current[*node])).collect();
                    Region::new(
                        self.model,
                        self.objective,
                        &self.bound.prices,
                        part.to_vec(),
                        lists,
                        target,
                    )
                })
                .collect();
            let cooling = Cooling { from: temperature, to: temperature, num_moves: EPOCH };
            let mut parts: Vec<(&mut Region, &mut Random)> =
                regions.iter_mut().zip(&mut randoms).collect();
            let results = in_threads(&mut parts, |(region, random), moves| {
                region.run(cooling, None, self.deadline, random, moves);
            });
            num_moves += results.iter().map(|((), moves)| moves).sum::<u64>();
            let value = match self.objective {
                Objective::Makespan => regions.iter().map(Region::end).fold(0.0, f64::max),
                Objective::Completion => regions.iter().map(Region::sum_of_ends).sum(),
            };
            for region in regions {
                for (node, list) in region.nodes.into_iter().zip(region.lists) {
                    current[node] = list;
                }
            }
            if value < best.value {
                *best = Incumbent { value, lists: current.clone() };
            }
        }
    }

    /// The share of the limits that is used up, from 0 to 1.
    fn share_done(&self, num_moves: u64, begun_s: f64) -> f64 {
        let share = if let Some(limit) = self.max_moves {
            num_moves as f64 / limit.max(1) as f64
        } else {
            let spent = self.deadline.elapsed_s() - begun_s;
            spent / (spent + self.deadline.left_s()).max(1e-9)
        };
        share.min(1.0)
    }
}

/// Does `work` on each item, one thread each; the first on this thread.
fn in_threads<T: Send, R: Send>(
    items: &mut [T],
    work: impl Fn(&mut T, &mut u64) -> R + Sync,
) -> Vec<(R, u64)> {
    let counted = |item: &mut T| {
        let mut moves = 0;
        let result = work(item, &mut moves);
        (result, moves)
    };
    let Some((first, rest)) = items.split_first_mut() else { return Vec::new() };
    thread::scope(|scope| {
        let others: Vec<_> = rest.iter_mut().map(|item| scope.spawn(|| counted(item))).collect();
        let mut results = vec![counted(first)];
        for other in others {
            match other.join() {
                Ok(result) => results.push(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    })
}
