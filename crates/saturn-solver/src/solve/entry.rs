//! One solve: checks of the problem and of the plan, and how the solve ended.

use std::sync::atomic::{AtomicBool, Ordering};

use saturn_core::{Plan, PlanStatus, Problem, Reason, Refutation, SolveEnd, check, verified};

use crate::course::clock::{Clock, Deadline};
use crate::problem::error::SolveError;
use crate::problem::options::Options;
use crate::solve::robust;
use crate::solve::staying;
use crate::solve::tail;

/// About how many seconds it takes, for each task, to make assignments of a search's gangs and to check
/// them. The search ends earlier by this time.
const ANSWER_S: f64 = 5e-6;
/// The largest share of the time limit by which a search ends earlier.
const MOST_FOR_ANSWER: f64 = 0.1;

/// Plans `problem`: the best plan found within the limits of `options`, with the proofs about it.
///
/// A problem without a plan, and a limit reached before any plan was found, are answers, not
/// errors: see `PlanStatus`. Every plan has passed `saturn_core::check`. If the warm start is a
/// plan of this problem, no backend but the baselines gives a worse plan.
pub fn solve(problem: &Problem, options: &Options, clock: &dyn Clock) -> Result<Plan, SolveError> {
    problem.validate()?;
    options.validate()?;
    if options.draws > 0 && !robust::has_errors(problem) {
        return Err(SolveError::Option {
            option: "draws",
            found: options.draws.to_string(),
            expected: "0, or strategies that state a `relative_error`",
        });
    }
    let is_counted = options.max_moves.is_some();
    let was_over = AtomicBool::new(false);
    let answer_s = ANSWER_S * problem.tasks.len() as f64;
    let search_s = options.time_limit_s - answer_s.min(options.time_limit_s * MOST_FOR_ANSWER);
    let deadline = Deadline::new(clock, search_s);
    let deadline = deadline.counted(is_counted).noted_in(&was_over);
    let mut plan = Plan::none(options.objective);
    let unplaceable = problem.unplaceable();
    let mut was_optimal = false;
    if unplaceable.is_empty() {
        was_optimal = plan_placeable(problem, options, deadline, &mut plan);
    } else {
        let refutation = Some(Refutation::NoPlace);
        let reason =
            |(task, reason)| Reason { task: Some(task), reason, refutation: refutation.clone() };
        plan.reasons = unplaceable.into_iter().map(reason).collect();
    }
    if !plan.is_usable() && is_proven(problem, options, &plan.reasons) {
        plan.status = PlanStatus::Infeasible;
    }
    let is_done = matches!(plan.status, PlanStatus::Optimal | PlanStatus::Infeasible)
        || was_optimal
        || !plan.is_usable() && plan.ended == SolveEnd::Complete
        || options.backend.baseline().is_some() && !deadline.is_over();
    let has_met_limit = deadline.is_over() || was_over.load(Ordering::Relaxed) || is_counted;
    plan.ended = if is_done {
        SolveEnd::Complete
    } else if clock.is_interrupted() {
        SolveEnd::Interrupted
    } else if has_met_limit {
        SolveEnd::Limit
    } else {
        // The search gave up: it had nothing left to try.
        SolveEnd::Complete
    };
    plan.solve_s = clock.elapsed_s();
    check(problem, &plan).map_err(SolveError::Wrong)?;
    Ok(plan)
}

/// Plans a problem each of whose tasks fits the cluster. Returns whether the best plan was optimal,
/// where drawn runtimes chose another.
fn plan_placeable(
    problem: &Problem,
    options: &Options,
    deadline: Deadline,
    plan: &mut Plan,
) -> bool {
    let with_tail = tail::with_tail(problem, options, deadline);
    let planned = with_tail.as_ref().unwrap_or(problem);
    staying::plan(planned, options, robust::before(options, deadline), plan);
    let was_optimal = plan.status == PlanStatus::Optimal;
    robust::choose(planned, options, deadline, plan);
    let is_replaced = was_optimal && plan.status != PlanStatus::Optimal;
    if with_tail.is_some() {
        tail::without_tail(problem, plan);
    }
    is_replaced
}

/// Whether reasons prove that the problem has no plan that the options allow.
fn is_proven(problem: &Problem, options: &Options, reasons: &[Reason]) -> bool {
    let may_switch =
        options.max_switches > 0 && problem.tasks.iter().any(|task| task.switch_cost_s.is_some());
    let holds = |one: &Reason| !may_switch || one.refutation == Some(Refutation::NoPlace);
    // With a tail, the search has verified the reasons for a problem with other deadlines.
    verified(problem, reasons).iter().any(holds)
}
