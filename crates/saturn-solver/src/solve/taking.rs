//! How gangs that a search or the exact program placed become the plan.

use saturn_core::{Objective, Plan, Problem, Reason, SolveEnd};

use crate::bounds::program::Effort;
use crate::course::clock::Deadline;
use crate::exact::milp::{self, Aim, Solution};
use crate::general::instance::{Instance, TaskFacts};
use crate::general::play::{Placed, rounding};
use crate::general::soft::tardiness;
use crate::general::wait::shift_gangs;
use crate::problem::grade::grade;
use crate::problem::schedule::{Step, assignments};
use crate::problem::tardiness::compare_tardiness;

/// The share of the time of the exact program for the least tardiness, where that is not known.
const TARDINESS: f64 = 0.5;

/// The results of the exact program before the deadline: for the tardiness, if the plan may be
/// tardier than it must be, and then for the objective.
pub(crate) fn exactly(
    instance: &Instance,
    plan: &Plan,
    deadline: Deadline,
    max_nodes: Option<i32>,
) -> Vec<(Aim, Solution)> {
    let within = |deadline| Effort { max_nodes, ..Effort::until(deadline) };
    let mut best = plan.is_usable().then_some(Known {
        tardiness: plan.tardiness,
        makespan: plan.makespan_s,
        completion: plan.completion_s,
    });
    let mut all = Vec::new();
    let is_least = |one: Known| compare_tardiness(one.tardiness, plan.tardiness_bound).is_le();
    if instance.has_soft_deadlines() && !best.is_some_and(is_least) {
        let until = deadline.within(deadline.left_s() * TARDINESS);
        let horizon = instance.horizon() * (1.0 + 1e-9);
        let low = plan.tardiness_bound;
        let found = milp::solve(instance, Aim::Tardiness, low, horizon, within(until));
        let is_over = matches!(found, Solution::Infeasible);
        if let Solution::Known { placed: Some(placed), .. } = &found
            && keeps_times(instance, placed)
        {
            let one = Known::of(instance, placed);
            let is_better = |best: Known| compare_tardiness(one.tardiness, best.tardiness).is_lt();
            if best.is_none_or(is_better) {
                best = Some(one);
            }
        }
        all.push((Aim::Tardiness, found));
        if is_over {
            return all;
        }
    }
    let most_tardy = best.map_or(f64::INFINITY, |best| best.tardiness);
    let horizon = horizon(instance, best);
    let aim = Aim::Value { most_tardy };
    let found = milp::solve(instance, aim, plan.bound(), horizon, within(deadline));
    all.push((aim, found));
    all
}

/// What is known of the best plan so far.
#[derive(Debug, Clone, Copy)]
struct Known {
    tardiness: f64,
    makespan: f64,
    completion: f64,
}

impl Known {
    fn of(instance: &Instance, placed: &[Placed]) -> Self {
        let weighted = placed.iter().map(|one| instance.tasks[one.task].weight * one.end());
        Self {
            tardiness: tardiness(instance, placed),
            makespan: placed.iter().map(Placed::end).fold(0.0, f64::max),
            completion: weighted.sum(),
        }
    }
}

/// A time by which some best plan ends that is no tardier than the plan known, seconds.
fn horizon(instance: &Instance, best: Option<Known>) -> f64 {
    let any = instance.horizon();
    let Some(best) = best else { return any * (1.0 + 1e-9) };
    let latest = match instance.objective {
        Objective::Makespan => best.makespan,
        Objective::Completion => {
            // All other tasks end no earlier than they can.
            let least: f64 =
                instance.tasks.iter().map(|task| task.weight * task.earliest_end).sum();
            let last = |task: &TaskFacts| {
                task.earliest_end + (best.completion - least).max(0.0) / task.weight
            };
            instance.tasks.iter().map(last).fold(0.0, f64::max)
        }
        Objective::Cost => any,
    };
    latest.min(any) * (1.0 + 1e-9)
}

/// Takes the exact program's solutions into the plan.
pub(crate) fn take_solutions(
    problem: &Problem,
    instance: &Instance,
    plan: &mut Plan,
    found: Vec<(Aim, Solution)>,
) {
    for (aim, found) in found {
        take_solution(problem, instance, plan, aim, found);
    }
}

fn take_solution(
    problem: &Problem,
    instance: &Instance,
    plan: &mut Plan,
    aim: Aim,
    found: Solution,
) {
    match found {
        Solution::Infeasible if !plan.is_usable() => {
            let reason = "no order of the tasks keeps every deadline and window, by the exact program, \
                          whose word can't be checked";
            plan.reasons = vec![Reason::unproven(None, reason)];
            plan.ended = SolveEnd::Complete;
        }
        // A plan is at hand, so only improving it is infeasible, within tolerances.
        Solution::Infeasible => {}
        Solution::Known { bound, placed } => {
            let known = match instance.objective {
                _ if aim == Aim::Tardiness => &mut plan.tardiness_bound,
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
    if !plan.is_usable() || found.beats(plan) {
        plan.set_assignments(problem, found.assignments);
    }
    grade(plan);
}
