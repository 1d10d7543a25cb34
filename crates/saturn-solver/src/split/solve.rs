//! One solve with switches: the best plan of whole tasks, bounds, then the search.

use saturn_core::{Node, Plan, Problem, ProblemTask};

use crate::bounds::area::area_bound;
use crate::bounds::config_lp;
use crate::course::beside::side_by_side;
use crate::course::clock::Deadline;
use crate::course::rounds::Limits;
use crate::lists::search as lists;
use crate::lists::solve::Solve;
use crate::problem::grade::grade;
use crate::problem::model::Model;
use crate::problem::options::{Backend, Options};
use crate::split::search::Search;

/// The share of the limits for a plan without switches, if lists can't express it.
const WHOLE_SHARE: f64 = 0.15;
/// The share of the remaining limits for the bound.
const BOUND_SHARE: f64 = 0.25;

/// Whether a solve may plan switches: some task may be switched, and no task waits or has a time to
/// keep.
pub(crate) fn applies(problem: &Problem, model: &Model, options: &Options) -> bool {
    let is_timed_node =
        |node: &Node| node.available_from_s > 0.0 || node.available_until_s.is_some();
    let is_timed_task = |task: &ProblemTask| {
        task.release_s > 0.0 || !task.after.is_empty() || task.deadline_s.is_some()
    };
    options.max_switches > 0
        && problem.tasks.iter().any(|task| task.switch_cost_s.is_some())
        && problem.deadline_s.is_none()
        && !problem.cluster.nodes.iter().any(is_timed_node)
        && !problem.tasks.iter().any(is_timed_task)
        && !model.has_places()
}

/// The options for a plan without switches, if lists can't express it, and the deadline for it.
pub(crate) fn whole<'a>(options: &Options, deadline: Deadline<'a>) -> (Options, Deadline<'a>) {
    let options = Options {
        backend: Backend::Search,
        max_switches: 0,
        max_moves: options.max_moves.map(|moves| moves.div_ceil(4)),
        ..options.clone()
    };
    (options, deadline.within(deadline.left_s() * WHOLE_SHARE))
}

/// A lower bound on the makespan of every plan with switches, without the configuration linear
/// program. That program takes seconds with many tasks and gains little there.
pub(crate) fn quick_bound(model: &Model, deadline: Deadline) -> f64 {
    let no_prices = || vec![1.0; model.num_kinds];
    let prices = if model.has_modes() { area_bound(model, deadline).prices } else { no_prices() };
    config_lp::area_of_free_switches(&model.without_switch_costs(), &prices)
}

/// Plans with switches within the limits of `solve`. The plan at hand has whole tasks. There is
/// none yet if `whole` looks for such a plan.
pub(crate) fn solve<'a>(solve: &'a Solve<'a>, whole: Option<lists::Search<'a>>, plan: &mut Plan) {
    let model = &solve.model.without_switch_costs();
    // Bounds that hold for whole tasks alone are no bounds here.
    plan.lower_bound_s = config_lp::area_of_free_switches(model, &solve.bound.prices);
    (plan.completion_bound_s, plan.cost_bound) = (0.0, 0.0);
    if let Some(whole) = &whole {
        solve.adopt(plan, whole.lists());
    }
    if !plan.is_usable() {
        return;
    }
    grade(plan);
    let mut without = plan.clone();
    if solve.deadline.is_over() {
        return;
    }
    let low = plan.lower_bound_s;
    if let Some(mut search) = Search::new(solve, whole, model, low, &mut without) {
        let limits = Limits { low, ..solve.limits() };
        let bounding = solve.deadline.within(solve.deadline.left_s() * BOUND_SHARE);
        let prices = &solve.bound.prices;
        let raise = |until: Deadline| config_lp::bound(model, prices, until);
        let bound = if limits.max_moves.is_none() && limits.threads > 1 {
            let limits = Limits { deadline: bounding, ..limits };
            let search = |limits: &Limits| {
                search.advance(limits);
                search.is_optimal(limits)
            };
            side_by_side(&limits, 1.0, search, raise)
        } else {
            raise(bounding)
        };
        plan.lower_bound_s = plan.lower_bound_s.max(bound);
        search.advance(&Limits { low: plan.lower_bound_s, ..limits });
        search.adopt(plan);
    }
    plan.lower_bound_s = plan.lower_bound_s.min(plan.makespan_s);
    let enough_s = without.makespan_s * (1.0 - solve.options.min_switch_gain);
    if plan.makespan_s > enough_s {
        *plan = Plan { lower_bound_s: plan.lower_bound_s, ..without };
    }
    grade(plan);
}
