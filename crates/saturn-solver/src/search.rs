//! The anytime search over lists: greedy first, then rounds of annealing until a limit is reached.
//!
//! Small problems are annealed whole and often (`small`). Large problems are filled, annealed and
//! mended piecemeal (`large`). The work of each round follows from the seed and the rounds before
//! ([`Course`]).

use crate::bounds::area::AreaBound;
use crate::clock::Deadline;
use crate::greedy::{HASTES, ORDERS, Recipe, greedy};
use crate::large::Large;
use crate::lists::{Lists, makespan};
use crate::model::Model;
use crate::rounds::{Course, Limits};
use crate::settle::settled;
use crate::small::Small;

/// Up to this many tasks and nodes a problem is small.
const SMALL_TASKS: usize = 50;
const SMALL_NODES: usize = 16;

/// Targets of greedy plans, in bounds.
const TARGETS: [f64; 7] = [1.01, 1.03, 1.0, 1.06, 1.12, 1.25, 1.4];

/// A search for lists of small makespan. Every task must have a narrow mode, but for those that
/// `Model::ready` accounts for.
pub(crate) struct Search<'a> {
    pub(crate) model: &'a Model,
    pub(crate) bound: &'a AreaBound,
    pub(crate) course: Course,
    pub(crate) best: Incumbent,
    stage: Option<Stage>,
}

enum Stage {
    Small(Small),
    Large(Box<Large>),
}

/// The best lists so far and their makespan.
#[derive(Debug, Clone)]
pub(crate) struct Incumbent {
    pub(crate) value: f64,
    pub(crate) lists: Lists,
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
        let is_small = model.tasks.len() <= SMALL_TASKS && model.nodes.len() <= SMALL_NODES;
        let mut search = Self { model, bound, course, best, stage: None };
        let built = search.best.value;
        for lists in starts {
            let start = settled(model, lists);
            search.take(start);
        }
        search.stage = Some(if is_small {
            Stage::Small(Small::new(&search))
        } else {
            Stage::Large(Box::new(Large::new(&search, search.best.value < built)))
        });
        search
    }

    /// Goes on until a limit is reached.
    pub(crate) fn advance(&mut self, limits: &Limits) {
        // The stage changes the search that holds it, so it is taken out, and put back at the end.
        let Some(mut stage) = self.stage.take() else { return };
        while !self.is_optimal(limits) && !self.course.is_over(limits) {
            match &mut stage {
                Stage::Small(small) => small.round(self, limits),
                Stage::Large(large) => large.round(self, limits),
            }
        }
        self.stage = Some(stage);
    }

    /// Whether no lists are better.
    pub(crate) fn is_optimal(&self, limits: &Limits) -> bool {
        limits.are_met_by(self.best.value)
    }

    pub(crate) fn take(&mut self, found: Incumbent) {
        if found.value < self.best.value {
            self.best = found;
        }
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
