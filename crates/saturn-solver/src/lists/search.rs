//! The anytime search over lists: greedy first, then rounds of annealing until a limit is reached.
//!
//! Small problems are annealed whole and often (`small`). Large problems are filled, annealed and
//! mended piecemeal (`large`). The work of each round follows from the seed and the rounds before
//! ([`Course`]).

use crate::bounds::area::AreaBound;
use crate::course::clock::Deadline;
use crate::course::rounds::{Course, Limits};
use crate::lists::greedy::{HASTES, ORDERS, Recipe, greedy};
use crate::lists::large::Large;
use crate::lists::list::{Lists, makespan};
use crate::lists::progress::Progress;
use crate::lists::settle::{Incumbent, settled};
use crate::lists::small::Small;
use crate::problem::model::Model;

/// Up to this many tasks and nodes a problem is small.
const SMALL_TASKS: usize = 50;
const SMALL_NODES: usize = 16;

/// Targets of greedy plans, in bounds.
const TARGETS: [f64; 7] = [1.01, 1.03, 1.0, 1.06, 1.12, 1.25, 1.4];

/// A search for lists of small makespan. Every task must have a narrow mode, but for those that
/// `Model::ready` accounts for.
pub(crate) struct Search<'a> {
    progress: Progress<'a>,
    stage: Stage,
}

enum Stage {
    Small(Small),
    Large(Box<Large>),
}

impl<'a> Search<'a> {
    /// Begins with greedy lists, or with `starts` if they are better.
    pub(crate) fn new(
        model: &'a Model,
        bound: &'a AreaBound,
        course: Course,
        starts: Vec<Lists>,
        deadline: Deadline,
    ) -> Self {
        let best = construct(model, bound, deadline);
        let mut progress = Progress { model, bound, course, best };
        for lists in starts {
            progress.take(settled(model, lists));
        }
        let is_small = model.tasks.len() <= SMALL_TASKS && model.nodes.len() <= SMALL_NODES;
        let stage = if is_small {
            Stage::Small(Small::new(&progress))
        } else {
            Stage::Large(Box::new(Large::new(&progress)))
        };
        Self { progress, stage }
    }

    /// Goes on until a limit is reached.
    pub(crate) fn advance(&mut self, limits: &Limits) {
        let Self { progress, stage } = self;
        while !progress.is_optimal(limits) && !progress.course.is_over(limits) {
            match stage {
                Stage::Small(small) => small.round(progress, limits),
                Stage::Large(large) => large.round(progress, limits),
            }
        }
    }

    /// Whether no lists are better.
    pub(crate) fn is_optimal(&self, limits: &Limits) -> bool {
        self.progress.is_optimal(limits)
    }

    /// The best lists so far.
    pub(crate) fn lists(&self) -> &Lists {
        &self.progress.best.lists
    }

    /// The makespan of the best lists, seconds.
    pub(crate) fn value(&self) -> f64 {
        self.progress.best.value
    }

    /// Moves of all whole rounds.
    pub(crate) fn num_moves(&self) -> u64 {
        self.progress.course.num_moves()
    }
}

/// The best of some greedy plans; fewer of them where there are many tasks. Where tasks run, a few
/// of these plans move what may be moved.
fn construct(model: &Model, bound: &AreaBound, deadline: Deadline) -> Incumbent {
    let num_recipes = (30_000 / model.tasks.len().max(1)).clamp(2, 60);
    let num_moving = if model.has_running() { num_recipes / 4 } else { 0 };
    let moving = recipes(bound.makespan, false).take(num_moving);
    let mut best: Option<Incumbent> = None;
    for recipe in recipes(bound.makespan, true).take(num_recipes).chain(moving) {
        let lists = greedy(model, &bound.prices, recipe);
        if best.as_ref().is_none_or(|best| makespan(model, &lists) < best.value) {
            let found = settled(model, lists);
            best = Some(found);
        }
        if deadline.is_over() {
            break;
        }
    }
    best.unwrap_or_else(|| Incumbent { value: f64::INFINITY, lists: Lists::new() })
}

/// Recipes, the most promising first; `stays` says whether running tasks stay.
fn recipes(least: f64, stays: bool) -> impl Iterator<Item = Recipe> {
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
