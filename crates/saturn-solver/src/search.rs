//! The anytime search over lists: greedy first, then annealing until the limits are reached.
//!
//! Small problems are annealed whole and often (`small`), large ones once and then mended piecemeal
//! (`large`). In both, threads meet after a fixed number of moves, so that a result depends on the
//! seed and the number of moves, not on timing.

use std::thread;

use crate::bounds::area::AreaBound;
use crate::clock::Deadline;
use crate::greedy::{HASTES, ORDERS, Recipe, greedy};
use crate::lists::{Entry, Lists, makespan, play};
use crate::model::Model;
use crate::settle::settle;
use crate::{large, small};

/// Up to this many tasks and nodes a problem is small.
const SMALL_TASKS: usize = 50;
const SMALL_NODES: usize = 16;

/// Targets of greedy plans, in bounds.
const TARGETS: [f64; 7] = [1.01, 1.03, 1.0, 1.06, 1.12, 1.25, 1.4];

/// What a search works on and within.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub(crate) model: &'a Model,
    pub(crate) bound: &'a AreaBound,
    pub(crate) deadline: Deadline<'a>,
    pub(crate) max_moves: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// A makespan that is reason to stop when beaten; 0 for none.
    pub(crate) enough: f64,
}

/// The best lists so far and their makespan.
#[derive(Debug, Clone)]
pub(crate) struct Incumbent {
    pub(crate) value: f64,
    pub(crate) lists: Lists,
}

impl Search<'_> {
    /// Searches until a limit is reached or the makespan meets its bound.
    ///
    /// Every task must have a narrow mode, but for those that `Model::ready` accounts for.
    pub(crate) fn run(&self, warm: Option<Lists>) -> Incumbent {
        let mut best = self.construct();
        let cold = best.value;
        if let Some(lists) = warm {
            self.improve(&mut best, lists);
        }
        let is_warm = best.value < cold;
        let is_small =
            self.model.tasks.len() <= SMALL_TASKS && self.model.nodes.len() <= SMALL_NODES;
        if is_small {
            small::search(self, &mut best);
        } else {
            large::search(self, &mut best, is_warm);
        }
        self.settle(&mut best);
        best
    }

    pub(crate) fn value(&self, lists: &Lists) -> f64 {
        makespan(self.model, lists)
    }

    /// Lets running tasks stay that were moved for nothing.
    fn settle(&self, best: &mut Incumbent) {
        let end_of = |(node, list): &(usize, Vec<Entry>)| {
            let ready = &self.model.ready[*node];
            play(&mut vec![0.0; ready.len()], ready, list).end
        };
        let value = best.value;
        settle(self.model, &mut best.lists, |_, after| {
            after.iter().all(|change| end_of(change) <= value)
        });
        best.value = self.value(&best.lists);
    }

    pub(crate) fn improve(&self, best: &mut Incumbent, lists: Lists) {
        let value = self.value(&lists);
        if value < best.value {
            *best = Incumbent { value, lists };
        }
    }

    /// The best of some greedy plans; fewer of them where there are many tasks. Where tasks run, a few
    /// of these plans move what may be moved.
    fn construct(&self) -> Incumbent {
        let num_recipes = (30_000 / self.model.tasks.len().max(1)).clamp(2, 60);
        let num_moving = if self.model.has_running() { num_recipes / 4 } else { 0 };
        let moving = self.recipes(false).take(num_moving);
        let mut best: Option<Incumbent> = None;
        for recipe in self.recipes(true).take(num_recipes).chain(moving) {
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

    /// Recipes, the most promising first; `stays` says whether running tasks stay.
    fn recipes(&self, stays: bool) -> impl Iterator<Item = Recipe> {
        let least = self.bound.makespan;
        HASTES.iter().flat_map(move |haste| {
            TARGETS.iter().flat_map(move |target| {
                ORDERS.iter().map(move |order| Recipe {
                    target: least * target,
                    haste: *haste,
                    order: *order,
                    stays,
                })
            })
        })
    }

    /// Whether to stop: at a limit, or at the bound.
    pub(crate) fn is_done(&self, best: &Incumbent, num_moves: u64) -> bool {
        best.value <= self.bound.makespan * (1.0 + 1e-9)
            || best.value < self.enough
            || self.deadline.is_over()
            || self.max_moves.is_some_and(|limit| num_moves >= limit)
    }

    /// The share of the limits that is used up since `begun_s`, from 0 to 1.
    pub(crate) fn share_done(&self, num_moves: u64, begun_s: f64) -> f64 {
        let share = if let Some(limit) = self.max_moves {
            num_moves as f64 / limit.max(1) as f64
        } else {
            let spent = self.deadline.elapsed_s() - begun_s;
            spent / (spent + self.deadline.left_s()).max(1e-9)
        };
        share.min(1.0)
    }
}

/// Does `work` on each item, one thread each, the first on this one; results with the moves counted.
pub(crate) fn in_threads<T: Send, R: Send>(
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
