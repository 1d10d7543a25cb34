//! The plan at hand: a plan of the problem that a solve starts from, and falls back on.

use saturn_core::{Assignment, Objective, Plan, Problem, check};

use crate::course::clock::Deadline;
use crate::problem::grade::grade;
use crate::problem::model::Model;
use crate::problem::options::Options;
use crate::split::solve::quick_bound;

/// A plan that is better by less than this, relative, is not better.
const ROUNDING: f64 = 1e-12;

/// The warm start, if it is a plan of this problem.
pub(crate) fn valid(problem: &Problem, options: &Options) -> Option<Plan> {
    of_this_problem(problem, options).filter(|plan| check(problem, plan).is_ok())
}

/// The warm start, if its tasks are tasks of this problem. The plan itself is not checked.
fn of_this_problem(problem: &Problem, options: &Options) -> Option<Plan> {
    let warm = options.warm_start.as_ref()?;
    let is_known = |one: &Assignment| one.task < problem.tasks.len();
    if options.backend.baseline().is_some() || !warm.assignments.iter().all(is_known) {
        return None;
    }
    let mut num_segments = vec![0; problem.tasks.len()];
    for one in &warm.assignments {
        num_segments[one.task] += 1;
    }
    let plan = Plan::of(problem, options.objective, warm.assignments.clone());
    num_segments.iter().all(|segments| *segments <= options.max_switches + 1).then_some(plan)
}

/// The plan at hand is the answer if no better plan was found, even if none seemed to exist.
pub(crate) fn take(problem: &Problem, options: &Options, deadline: Deadline, plan: &mut Plan) {
    let Some(found) = of_this_problem(problem, options) else { return };
    let is_worth_less = found.value() < plan.value() * (1.0 - ROUNDING);
    let is_early =
        found.value() <= plan.value() && found.completion_s < plan.completion_s * (1.0 - ROUNDING);
    let is_tardier = plan.is_less_tardy_than(&found);
    let is_better = !plan.is_usable()
        || found.is_less_tardy_than(plan)
        || !is_tardier && (is_worth_less || is_early);
    // The check takes longest, so it comes last.
    if is_better && check(problem, &found).is_ok() {
        answer_with(problem, options, found, deadline, plan);
    }
}

/// Makes another plan of the problem the answer, under bounds that hold for it.
///
/// Where switches can't gain enough, the bound of an answer is that of plans without switches. The
/// other plan may switch, and end before that bound. If it doesn't, plans with switches may still end
/// before the bound by up to `min_switch_gain`.
pub(crate) fn answer_with(
    problem: &Problem,
    options: &Options,
    other: Plan,
    deadline: Deadline,
    plan: &mut Plan,
) {
    let switches = |plan: &Plan| plan.assignments.iter().any(Assignment::is_segment);
    let is_beaten = other.makespan_s < plan.lower_bound_s * (1.0 - ROUNDING);
    if plan.objective == Objective::Makespan {
        if is_beaten {
            plan.lower_bound_s = quick_bound(&Model::new(problem), deadline);
        } else if switches(&other) && !switches(plan) {
            plan.lower_bound_s *= 1.0 - options.min_switch_gain;
        }
    }
    plan.reasons.clear();
    plan.set_assignments(problem, other.assignments);
    grade(plan);
}
