//! One solve: bounds, the chosen backend, the check.
//!
//! A problem that lists can say (every gang fits into a node, and there is nothing beside devices,
//! runtimes and running tasks) goes by [`lists`](crate::lists), any other by
//! [`general`](crate::general); switches are added by [`split`]. Every plan has passed
//! `saturn_core::check` before it is returned.

use saturn_core::{
    Node, Objective, Plan, PlanStatus, Problem, ProblemTask, Reason, SolveEnd, check,
};

use crate::bounds::area::{AreaBound, area_bound};
use crate::course::clock::{Clock, Deadline};
use crate::course::rounds::Limits;
use crate::problem::error::SolveError;
use crate::problem::model::Model;
use crate::problem::options::{Backend, Options};
use crate::solve::auto;
use crate::solve::general::{self, Exact};
use crate::solve::staying;
use crate::split::early;
use crate::split::solve as split;

use crate::lists::search::Search;
use crate::lists::solve::Solve;
use crate::problem::grade::grade;
/// The most share of the time for prices. Prices decide where the search goes, so cutting them
/// short gives another search.
const PRICES: f64 = 0.5;
/// The share of the time for a search before the exact program.
const FIRST_SEARCH: f64 = 0.05;
/// The share of the time for early ends within the makespan.
const EARLY: f64 = 0.05;
/// A plan that is better by less than this, relative, is not better.
const ROUNDING: f64 = 1e-12;

/// Plans `problem`: the best plan found within the limits of `options`, with the proofs about it.
///
/// A problem without a plan, and a limit reached before any plan was found, are answers, not
/// errors: see `PlanStatus`. Every plan has passed `saturn_core::check`. If the warm start is a
/// plan of this problem, no backend but the baselines gives a worse plan.
pub fn solve(problem: &Problem, options: &Options, clock: &dyn Clock) -> Result<Plan, SolveError> {
    problem.validate()?;
    options.validate()?;
    let deadline = Deadline::new(clock, options.time_limit_s);
    let mut plan = Plan::none(options.objective);
    let unplaceable = problem.unplaceable();
    if unplaceable.is_empty() {
        staying::plan(problem, options, deadline, &mut plan);
    } else {
        let reason = |(task, reason)| Reason { task: Some(task), reason };
        plan.reasons = unplaceable.into_iter().map(reason).collect();
        plan.status = PlanStatus::Infeasible;
    }
    let is_done = matches!(plan.status, PlanStatus::Optimal | PlanStatus::Infeasible)
        || options.backend.baseline().is_some() && !deadline.is_over();
    plan.ended = if is_done {
        SolveEnd::Complete
    } else if clock.is_interrupted() {
        SolveEnd::Interrupted
    } else {
        SolveEnd::Limit
    };
    plan.solve_s = clock.elapsed_s();
    check(problem, &plan).map_err(SolveError::Wrong)?;
    Ok(plan)
}

/// Plans a problem each of whose tasks fits the cluster: for its objective, and then, if that is the
/// makespan, for early ends within it.
pub(crate) fn plan_early(
    problem: &Problem,
    options: &Options,
    deadline: Deadline,
    plan: &mut Plan,
) {
    let model = Model::new(problem);
    // Only a makespan leaves open when the other tasks end.
    let has_early =
        options.has_early_ends && is_for_lists(problem, &model, options) && !model.has_places();
    let share = if has_early { 1.0 - EARLY } else { 1.0 };
    plan_tasks(problem, options, &model, deadline.within(deadline.left_s() * share), plan);
    take_warm_start(problem, options, plan);
    if has_early && plan.is_usable() && !deadline.is_over() {
        early::end_early(problem, options, &model, deadline, plan);
    }
}

/// Plans a problem each of whose tasks fits the cluster: whole tasks first, then with switches.
fn plan_tasks(
    problem: &Problem,
    options: &Options,
    model: &Model,
    deadline: Deadline,
    plan: &mut Plan,
) {
    let bounding = deadline.within(deadline.left_s() * PRICES);
    // Types that fit no task can't be priced; those that do keep their prices.
    let bound = if model.has_modes() {
        area_bound(model, bounding)
    } else {
        AreaBound { makespan: 0.0, prices: vec![1.0; model.num_kinds] }
    };
    let may_switch = split::applies(problem, model, options);
    if is_for_lists(problem, model, options) {
        plan.lower_bound_s = bound.makespan;
        if !deadline.is_over() {
            let solve = Solve { problem, options, model, bound, deadline };
            if !may_switch {
                by_lists(&solve, solve.begin(), plan);
            } else if let Some(whole) = split::solve(&solve, Some(solve.begin()), plan) {
                by_lists(&solve, whole, plan);
            }
        }
    } else if may_switch {
        let (whole, until) = split::whole(options, deadline);
        general::solve(problem, &whole, model, &bound.prices, until, plan);
        let solve = Solve { problem, options, model, bound, deadline };
        split::solve(&solve, None, plan);
    } else {
        general::solve(problem, options, model, &bound.prices, deadline, plan);
    }
}

/// The plan in force is the answer if no better plan was found, even if none seemed to exist.
fn take_warm_start(problem: &Problem, options: &Options, plan: &mut Plan) {
    let Some(warm) = &options.warm_start else { return };
    let is_known = |one: &saturn_core::Assignment| one.task < problem.tasks.len();
    if options.backend.baseline().is_some() || !warm.assignments.iter().all(is_known) {
        return;
    }
    let mut num_segments = vec![0; problem.tasks.len()];
    for one in &warm.assignments {
        num_segments[one.task] += 1;
    }
    let found = Plan::of(problem, options.objective, warm.assignments.clone());
    let is_early =
        found.value() <= plan.value() && found.completion_s < plan.completion_s * (1.0 - ROUNDING);
    let is_better =
        !plan.is_usable() || found.value() < plan.value() * (1.0 - ROUNDING) || is_early;
    if is_better
        && num_segments.iter().all(|segments| *segments <= options.max_switches + 1)
        && check(problem, &found).is_ok()
    {
        plan.reasons.clear();
        plan.set_assignments(problem, found.assignments);
        grade(plan);
    }
}

/// Whether the search over lists makes the makespan small by itself. Then every gang fits into a
/// node, and the problem's only facts are devices, runtimes, running tasks and places.
fn is_for_lists(problem: &Problem, model: &Model, options: &Options) -> bool {
    let is_separable =
        model.is_separable() && model.has_modes() && options.backend.baseline().is_none();
    let is_plain_node =
        |node: &Node| node.available_from_s == 0.0 && node.available_until_s.is_none();
    let is_plain_task = |task: &ProblemTask| {
        task.release_s == 0.0 && task.after.is_empty() && task.deadline_s.is_none()
    };
    options.objective == Objective::Makespan
        && is_separable
        && problem.deadline_s.is_none()
        && problem.cluster.nodes.iter().all(is_plain_node)
        && problem.tasks.iter().all(is_plain_task)
}

/// A plan of a problem for lists, by the backend of the options, from a search that has begun.
fn by_lists(solve: &Solve, mut search: Search, plan: &mut Plan) {
    match solve.options.backend {
        Backend::Milp => by_program(solve, search, plan),
        Backend::Search => {
            search.advance(&solve.limits());
            solve.adopt(plan, search.lists());
        }
        _ => auto::solve(solve, search, plan),
    }
}

/// A plan by the exact program, from a heuristic one.
fn by_program(solve: &Solve, mut search: Search, plan: &mut Plan) {
    let first = solve.deadline.within(solve.deadline.left_s() * FIRST_SEARCH);
    search.advance(&Limits { deadline: first, ..solve.limits() });
    solve.adopt(plan, search.lists());
    if plan.status != PlanStatus::Optimal {
        general::solve_exactly(&exact(solve, solve.deadline), plan);
    }
}

/// The whole problem, to be put to the exact program.
pub(crate) fn exact<'a>(solve: &'a Solve, deadline: Deadline<'a>) -> Exact<'a> {
    Exact {
        problem: solve.problem,
        model: solve.model,
        prices: &solve.bound.prices,
        objective: solve.options.objective,
        deadline,
        max_nodes: None,
    }
}
