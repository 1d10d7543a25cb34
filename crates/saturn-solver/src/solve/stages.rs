//! The stages of planning: bounds, the backend, switches, the plan at hand, early ends.
//!
//! A problem that lists can say (every gang fits into a node, and there is nothing beside devices,
//! runtimes and running tasks) goes by [`lists`](crate::lists), any other by
//! [`general`](crate::general); switches are added by [`split`].

use saturn_core::{Node, Objective, Plan, PlanStatus, Problem, ProblemTask};

use crate::bounds::area::{AreaBound, area_bound};
use crate::course::clock::Deadline;
use crate::course::rounds::Limits;
use crate::lists::search::Search;
use crate::lists::solve::Solve;
use crate::problem::grade::grade;
use crate::problem::model::Model;
use crate::problem::options::{Backend, Options};
use crate::solve::auto;
use crate::solve::general::{self, Exact};
use crate::solve::warm;
use crate::split::early;
use crate::split::solve::{self as split, After};

/// The most share of the time for prices. Prices decide where the search goes, so cutting them
/// short gives another search.
const PRICES: f64 = 0.5;
/// The share of the time for a search before the exact program.
const FIRST_SEARCH: f64 = 0.05;
/// The share of the time for early ends within the makespan.
const EARLY: f64 = 0.05;

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
    warm::take(problem, options, deadline, plan);
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
        if general::may_begin(options, deadline, plan) {
            let solve = Solve { problem, options, model, bound, deadline };
            if !may_switch {
                by_lists(&solve, solve.begin(), plan);
            } else if let After::WholeTasks(Some(whole)) =
                split::solve(&solve, Some(solve.begin()), plan)
            {
                by_lists(&solve, whole, plan);
            }
        }
    } else if may_switch {
        let (whole, until) = split::whole(options, deadline);
        general::solve(problem, &whole, model, &bound.prices, until, plan);
        let solve = Solve { problem, options, model, bound, deadline };
        match split::solve(&solve, None, plan) {
            After::Nothing => {}
            After::WholeTasks(_) => {
                let found = whole_again(&solve, plan);
                plan.lower_bound_s = plan.lower_bound_s.max(found.lower_bound_s);
                grade(plan);
            }
            After::WideGang => {
                whole_again(&solve, plan);
            }
        }
    } else {
        general::solve(problem, options, model, &bound.prices, deadline, plan);
    }
}

/// Goes on without switches from the plan at hand, and takes a better plan. Returns what was found:
/// its bound holds for whole tasks alone.
fn whole_again(solve: &Solve, plan: &mut Plan) -> Plan {
    let Solve { problem, model, deadline, .. } = *solve;
    let options = split::whole_again(solve.options, plan);
    let mut found = Plan::none(options.objective);
    if options.max_moves != Some(0) {
        general::solve(problem, &options, model, &solve.bound.prices, deadline, &mut found);
    }
    if found.is_usable() && found.beats(plan) {
        plan.set_assignments(problem, found.assignments.clone());
        grade(plan);
    }
    found
}

/// Whether the search over lists makes the makespan small by itself. Then every gang fits into a
/// node, and the problem's only facts are devices, runtimes, running tasks, places, and host memory
/// and owners' caps that don't bind.
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
        && !model.host_binds
        && !model.caps.bind()
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
        general::solve_exactly(&Exact::of(solve, solve.deadline), plan);
    }
}
