//! One solve by lists: how the search begins, where it stops, and how its lists become a plan.

use saturn_core::{Plan, Problem};

use crate::bounds::area::AreaBound;
use crate::course::clock::Deadline;
use crate::course::rounds::{Course, Limits};
use crate::lists::list::{self, Lists};
use crate::lists::search::Search;
use crate::lists::warm;
use crate::problem::grade::grade;
use crate::problem::model::Model;
use crate::problem::options::Options;
use crate::problem::schedule::{Schedule, assignments};

/// One solve by lists at work.
pub(crate) struct Solve<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) options: &'a Options,
    pub(crate) model: &'a Model,
    pub(crate) bound: AreaBound,
    pub(crate) deadline: Deadline<'a>,
}

impl Solve<'_> {
    /// The anytime search over lists, at its beginning.
    pub(crate) fn begin(&self) -> Search<'_> {
        let course = Course::new(self.options.seed, self.options.threads);
        let warm = self.options.warm_start.as_ref();
        let warm = warm.and_then(|plan| warm::lists(self.problem, self.model, plan));
        let starts = warm.into_iter().collect();
        Search::new(self.model, &self.bound, course, starts, self.deadline)
    }

    /// The limits that the options set.
    pub(crate) fn limits(&self) -> Limits<'_> {
        let Options { max_moves, threads, .. } = *self.options;
        Limits { low: self.bound.makespan, ..Limits::new(self.deadline, max_moves, threads) }
    }

    /// Takes lists into the plan if they are better than what is there.
    pub(crate) fn adopt(&self, plan: &mut Plan, lists: &Lists) {
        self.adopt_schedule(plan, &list::schedule(self.model, lists));
    }

    /// Takes a schedule into the plan if it is better than what is there.
    pub(crate) fn adopt_schedule(&self, plan: &mut Plan, schedule: &Schedule) {
        let assignments = assignments(self.problem, self.model, schedule);
        let found = Plan::of(self.problem, self.options.objective, assignments);
        if plan.assignments.is_empty() || found.value() < plan.value() {
            plan.set_assignments(self.problem, found.assignments);
        }
        grade(plan);
    }
}
