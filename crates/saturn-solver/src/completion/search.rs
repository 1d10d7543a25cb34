//! The anytime search: priced lists, then rounds of annealing until a limit is reached.
//!
//! What a round does depends on the seed, the number of threads and the rounds before, never on the
//! limits: they only say where the search stops. A stretch of moves between two meetings of the
//! threads counts only if it was finished, or for the best lists that it met on the way. So a
//! search with a higher limit passes through every plan that one with a lower limit could have
//! answered, and its answer is no worse.

use super::build::{Guide, Recipe, build};
use super::queue::{Fine, Merit, Queue};
use super::region::{Cooling, MOVES_PER_LOOK, Region};
use crate::clock::Deadline;
use crate::lists::{Entry, Lists};
use crate::random::Random;
use crate::search::in_threads;
use crate::settle::settle;

/// Up to so many tasks every thread anneals the whole problem by itself.
const FEW_TASKS: usize = 30;
/// With fewer nodes for each thread than this as well.
const FEW_NODES: usize = 4;
/// Modes times nodes looked at for the first lists, about, and the most lists.
const EFFORT: usize = 20_000_000;
const MOST_LISTS: usize = 20;

/// Moves for each task of the first round by which all threads anneal one plan together, and how
/// much longer each round is than the one before.
const TOGETHER_PER_TASK: u64 = 1_500;
const GROWTH: f64 = 1.4;
/// Moves of a thread between two deals of the nodes, and deals in a round at least.
const LONGEST_STRETCH: u64 = 20_000;
const DEALS: u64 = 16;
/// First and last temperature of such a round, in mean costs of a task; later rounds may begin
/// hotter.
const HOT: f64 = 0.02;
const COLD: f64 = 0.0005;
const HOTTER: f64 = 3.0;

/// Moves of the first rounds in which every thread anneals by itself, for each task and at most;
/// and after how many rounds they are twice as long.
const ALONE_PER_TASK: u64 = 1_000;
const FIRST_ALONE: u64 = 20_000;
const LONGEST_ALONE: u64 = 8_000_000;
const ROUNDS_PER_LENGTH: u64 = 6;

/// What a second of lateness costs, in mean weights: at first, at least and at most.
const FINE: f64 = 30.0;
const LEAST_FINE: f64 = 15.0;
const MOST_FINE: f64 = 1e6;
/// What a gang costs that ends too late at all, in seconds of lateness for each second of the mean
/// end.
const FEE: f64 = 0.002;

/// The best lists so far and what they come to.
#[derive(Debug, Clone)]
struct Incumbent {
    merit: Merit,
    lists: Lists,
}

/// What a search works on and within.
pub(crate) struct Search<'a> {
    pub(crate) queue: &'a Queue<'a>,
    pub(crate) guide: &'a Guide,
    pub(crate) deadline: Deadline<'a>,
    /// Of all threads together.
    pub(crate) max_moves: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// No plan is worth less.
    pub(crate) bound: f64,
}

impl Search<'_> {
    /// The best lists found, from lists of its own and from `warm`.
    pub(crate) fn run(&self, warm: Option<Lists>) -> Lists {
        let mut best = self.first_lists();
        if let Some(lists) = warm {
            let merit = self.queue.merit(&lists);
            self.take(&mut best, merit, lists);
        }
        let num_nodes = self.queue.model.nodes.len();
        let is_alone = self.queue.duties.len() <= FEW_TASKS
            || num_nodes < FEW_NODES * self.threads && self.threads > 1;
        if is_alone {
            self.anneal_alone(&mut best);
        } else {
            self.anneal_together(&mut best);
        }
        self.settle(&mut best);
        best.lists
    }

    fn take(&self, best: &mut Incumbent, merit: Merit, lists: Lists) {
        if self.queue.is_better(merit, best.merit) {
            *best = Incumbent { merit, lists };
        }
    }

    /// What lateness costs at `times` the mean weight a second.
    fn fine(&self, times: f64, value: f64) -> Fine {
        let mean = self.queue.mean_weight();
        let rate = mean * times;
        let mean_end = value / (mean * self.queue.duties.len().max(1) as f64);
        Fine { fee: rate * FEE * mean_end, rate }
    }

    /// The best of some lists built by the guide's prices; fewer of them where they take long.
    fn first_lists(&self) -> Incumbent {
        let model = self.queue.model;
        let num_ways: usize = model
            .tasks
            .iter()
            .map(|task| task.modes.iter().map(Vec::len).sum::<usize>() * model.nodes.len())
            .sum();
        let num_lists = (EFFORT / num_ways.max(1)).clamp(1, MOST_LISTS);
        let mut random = Random::new(self.seed, u64::MAX - 3);
        let fine = self.fine(FINE, self.bound);
        let worst = Merit { missed: f64::INFINITY, value: f64::INFINITY };
        let mut best = Incumbent { merit: worst, lists: Lists::new() };
        for stays in [true, false].into_iter().take(1 + usize::from(model.has_running())) {
            let recipes = [1.0, 0.85, 1.2, 0.7].into_iter().flat_map(|thrift| {
                [0.5, 0.0, 1.0, 0.25, 0.75].map(|point| Recipe {
                    point,
                    thrift,
                    stays,
                    jitter: 0.0,
                })
            });
            for recipe in recipes.take(num_lists) {
                let lists = build(self.queue, self.guide, fine, recipe, &mut random);
                self.take(&mut best, self.queue.merit(&lists), lists);
                if self.deadline.is_over() {
                    return best;
                }
            }
        }
        best
    }

    fn is_done(&self, best: &Incumbent, num_moves: u64) -> bool {
        let is_optimal =
            best.merit.missed <= self.queue.slack && best.merit.value <= self.bound * (1.0 + 1e-9);
        // A stretch shorter than a look at the lists is none.
        let least = MOVES_PER_LOOK * self.threads as u64;
        is_optimal
            || self.deadline.is_over()
            || self.max_moves.is_some_and(|limit| num_moves + least > limit)
    }

    /// Moves that each thread may still make.
    fn left(&self, num_moves: u64) -> u64 {
        let left = self.max_moves.map_or(u64::MAX, |limit| limit.saturating_sub(num_moves));
        left / self.threads as u64
    }

    /// The fine of the next round: higher while the best plan is late, or else lower.
    fn next_fine(&self, fine: f64, best: &Incumbent) -> f64 {
        if best.merit.missed > self.queue.slack {
            (fine * 2.0).min(MOST_FINE)
        } else {
            (fine * 0.8).max(LEAST_FINE)
        }
    }

    /// Rounds in which every thread anneals the whole problem from the best lists or from new ones.
    fn anneal_alone(&self, best: &mut Incumbent) {
        let mut randoms: Vec<Random> =
            (0..self.threads as u64).map(|stream| Random::new(self.seed, stream)).collect();
        let num_tasks = self.queue.duties.len() as u64;
        let mut length = FIRST_ALONE.min(ALONE_PER_TASK * num_tasks);
        let (mut num_moves, mut round, mut fine) = (0, 0, FINE);
        while !self.is_done(best, num_moves) {
            round += 1;
            if round % ROUNDS_PER_LENGTH == 0 {
                length = (length * 2).min(LONGEST_ALONE);
            }
            let span = length.min(self.left(num_moves) / MOVES_PER_LOOK * MOVES_PER_LOOK);
            let results = in_threads(&mut randoms, |random, moves| {
                self.anneal_once(best, fine, length, span, random, moves)
            });
            let mut found = Vec::new();
            for (one, moves) in results {
                num_moves += moves.max(1);
                found.extend(one);
            }
            for (merit, lists) in found {
                self.take(best, merit, lists);
            }
            fine = self.next_fine(fine, best);
        }
    }

    /// One annealing of the whole: `span` of its `length` moves.
    fn anneal_once(
        &self,
        best: &Incumbent,
        fine: f64,
        length: u64,
        span: u64,
        random: &mut Random,
        moves: &mut u64,
    ) -> Option<(Merit, Lists)> {
        let num_tasks = self.queue.duties.len();
        let unit = best.merit.value / num_tasks.max(1) as f64;
        let fine = self.fine(fine, best.merit.value);
        let lists = if random.below(2) == 0 {
            let recipe = Recipe {
                point: random.unit(),
                thrift: random.log_between(0.5, 1.5),
                stays: random.below(4) > 0,
                jitter: 0.5 * random.unit(),
            };
            build(self.queue, self.guide, fine, recipe, random)
        } else {
            best.lists.clone()
        };
        // A task is a large share of the whole where there are few.
        let hottest = if num_tasks <= FEW_TASKS / 2 { 0.5 } else { 0.1 };
        let cooling = Cooling {
            from: unit * random.log_between(0.01, hottest),
            to: unit * COLD * 0.5,
            num_moves: length,
        };
        let nodes: Vec<usize> = (0..lists.len()).collect();
        let mut region = Region::new(self.queue, fine, &nodes, lists);
        region.run(cooling, 0..span, Some(best.merit), self.deadline, random, moves)
    }

    /// Rounds in which the threads anneal the best lists together, each its share of the nodes,
    /// dealt anew after every stretch of moves.
    fn anneal_together(&self, best: &mut Incumbent) {
        let num_threads = self.threads as u64;
        let mut threads: Vec<Random> =
            (0..num_threads).map(|stream| Random::new(self.seed, stream)).collect();
        let mut dealer = Random::new(self.seed, u64::MAX - 1);
        let num_tasks = self.queue.duties.len() as u64;
        let mut length = (TOGETHER_PER_TASK * num_tasks) as f64;
        let (mut num_moves, mut hotter, mut fine) = (0, 1.0, FINE);
        while !self.is_done(best, num_moves) {
            let unit = best.merit.value / num_tasks as f64;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
            let each = (length as u64).div_ceil(num_threads);
            let cooling = Cooling { from: unit * HOT * hotter, to: unit * COLD, num_moves: each };
            let stretch = each.div_ceil(DEALS).clamp(1, LONGEST_STRETCH);
            let mut current = best.lists.clone();
            let mut done = 0;
            while done < each && !self.is_done(best, num_moves) {
                let span = done..each.min(done + stretch);
                if span.end - span.start > self.left(num_moves) {
                    return;
                }
                let of_round = self.fine(fine, best.merit.value);
                let mut shares = deal(&mut current, &mut threads, &mut dealer);
                let results = in_threads(&mut shares, |share, moves| {
                    let lists = std::mem::take(&mut share.lists);
                    let mut region = Region::new(self.queue, of_round, &share.nodes, lists);
                    let (span, deadline) = (span.clone(), self.deadline);
                    region.run(cooling, span, None, deadline, share.random, moves);
                    share.lists = region.into_lists();
                });
                num_moves += results.iter().map(|((), moves)| moves).sum::<u64>();
                for share in shares {
                    for (node, list) in share.nodes.into_iter().zip(share.lists) {
                        current[node] = list;
                    }
                }
                done = span.end;
                if self.deadline.is_over() {
                    return;
                }
                let merit = self.queue.merit(&current);
                if self.queue.is_better(merit, best.merit) {
                    *best = Incumbent { merit, lists: current.clone() };
                }
            }
            length *= GROWTH;
            hotter = dealer.log_between(1.0, HOTTER);
            fine = self.next_fine(fine, best);
        }
    }

    /// Lets running tasks stay that were moved for nothing.
    fn settle(&self, best: &mut Incumbent) {
        let queue = self.queue;
        let all = |changes: &[(usize, Vec<Entry>)]| {
            let mut merit = Merit::default();
            for (node, list) in changes {
                merit += queue.merit_of(*node, list);
            }
            merit
        };
        settle(queue.model, &mut best.lists, |before, after| {
            !queue.is_better(all(before), all(after))
        });
    }
}

/// The nodes that one thread works on, with their lists.
struct Share<'a> {
    nodes: Vec<usize>,
    lists: Vec<Vec<Entry>>,
    random: &'a mut Random,
}

/// Deals the nodes and their lists to the threads at random.
fn deal<'a>(current: &mut Lists, threads: &'a mut [Random], dealer: &mut Random) -> Vec<Share<'a>> {
    let mut nodes: Vec<usize> = (0..current.len()).collect();
    dealer.shuffle(&mut nodes);
    let size = nodes.len().div_ceil(threads.len());
    let shares = nodes.chunks(size).zip(threads);
    shares
        .map(|(nodes, random)| Share {
            nodes: nodes.to_vec(),
            lists: nodes.iter().map(|node| std::mem::take(&mut current[*node])).collect(),
            random,
        })
        .collect()
}
