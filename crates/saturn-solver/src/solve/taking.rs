//! How gangs that a search or the exact program placed become the plan.

use saturn_core::{Objective, Plan, PlanStatus, Problem, Reason};

use crate::bounds::program::Effort;
use crate::course::clock::Deadline;
use crate::exact::milp::{self, Solution};
use crate::general::instance::{Instance, TaskFacts};
use crate::general::play::{Placed, rounding};
use crate::general::wait::shift_gangs;
use crate::problem::grade::grade;
use crate::problem::schedule::{Step, assignments};

/// The result of the exact program before the deadline.
pub(crate) fn exactly(
    instance: &Instance,
    plan: &Plan,
    deadline: Deadline,
    max_nodes: Option<i32>,
) -> Solution {
    let effort = Effort { max_nodes, ..Effort::until(deadline) };
    milp::solve(instance, plan.bound(), horizon(instance, plan), effort)
}

/// A time by which some best plan ends, seconds.
fn horizon(instance: &Instance, plan: &Plan) -> f64 {
    let any = instance.horizon();
    if !plan.is_usable() {
        return any * (1.0 + 1e-9);
    }
    let latest = match instance.objective {
        Objective::Makespan => plan.makespan_s,
        Objective::Completion => {
            // All other tasks end no earlier than they can.
            let least: f64 =
                instance.tasks.iter().map(|task| task.weight * task.earliest_end).sum();
            let last = |task: &TaskFacts| {
                task.earliest_end + (plan.completion_s - least).max(0.0) / task.weight
            };
            instance.tasks.iter().map(last).fold(0.0, f64::max)
        }
        Objective::Cost => any,
    };
    latest.min(any) * (1.0 + 1e-9)
}

/// Takes the exact program's solution into the plan.
pub(crate) fn take_solution(
    problem: &Problem,
    instance: &Instance,
    plan: &mut Plan,
    found: Solution,
) {
    match found {
        Solution::Infeasible if !plan.is_usable() => {
            let reason = "no order of the tasks keeps every deadline and window: proven by the exact \
                          program";
            plan.reasons = vec![Reason { task: None, reason: reason.to_owned() }];
            plan.status = PlanStatus::Infeasible;
        }
        // A plan is at hand, so only improving it is infeasible, within tolerances.
        Solution::Infeasible => {}
        Solution::Known { bound, placed } => {
            let known = match instance.objective {
                Objective::Makespan => &mut plan.lower_bound_s,
                Objective::Completion => &mut plan.completion_bound_s,
                Objective::Cost => &mut plan.cost_bound,
            };
            *known = known.max(bound);
            if let Some(mut placed) = placed
                && keeps_times(instance, &placed)
            {
                if instance.objective == Objective::Cost {
                    shift_gangs(instance, &mut placed);
                }
                take(problem, instance, plan, placed);
            } else if plan.is_usable() {
                grade(plan);
            }
        }
    }
}

/// Whether gangs keep deadlines and departures.
pub(crate) fn keeps_times(instance: &Instance, placed: &[Placed]) -> bool {
    let makespan = placed.iter().map(Placed::end).fold(0.0, f64::max);
    let slack = rounding(makespan);
    placed.iter().all(|one| {
        let untils = one.parts.iter().map(|(node, _)| instance.nodes[*node].until);
        one.end() <= untils.fold(instance.tasks[one.task].due, f64::min) + slack
    })
}

/// Gangs with their starts, in order of them.
fn steps(mut placed: Vec<Placed>) -> Vec<Step> {
    placed
        .sort_by(|left, right| left.start.total_cmp(&right.start).then(left.task.cmp(&right.task)));
    let step = |one: Placed| {
        let Placed { task, strategy, parts, start: from, stays, .. } = one;
        Step { task, strategy, parts, from, stays }
    };
    placed.into_iter().map(step).collect()
}

/// Takes gangs into the plan if they are better.
pub(crate) fn take(problem: &Problem, instance: &Instance, plan: &mut Plan, placed: Vec<Placed>) {
    let steps = steps(placed);
    let assignments = assignments(problem, instance.model, &steps);
    let found = Plan::of(problem, instance.objective, assignments);
    if !plan.is_usable() || found.value() < plan.value() {
        plan.set_assignments(problem, found.assignments);
    }
    grade(plan);
}
