//! Computes a plan's makespan, weighted completion, cost and tardiness again, and checks that its bounds and
//! status agree with them.

use super::{Violation, slack};
use crate::objective::Objective;
use crate::plan::{OPTIMAL_GAP, Plan, PlanStatus};
use crate::problem::Problem;

const SECONDS_AN_HOUR: f64 = 3600.0;

pub(super) fn check_values(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    let makespan_s = plan.assignments.iter().map(|one| one.end_s).fold(0.0, f64::max);
    let mut ends_s = vec![0.0f64; problem.tasks.len()];
    for one in &plan.assignments {
        if let Some(end_s) = ends_s.get_mut(one.task) {
            *end_s = end_s.max(one.end_s);
        }
    }
    let weighted = problem.tasks.iter().zip(&ends_s).map(|(task, end_s)| task.weight * end_s);
    let completion_s: f64 = weighted.sum();
    let prices: f64 = problem.cluster.nodes.iter().map(|node| node.price_per_hour).sum();
    let weights: f64 = problem.tasks.iter().map(|task| task.weight).sum();
    let of_time = slack(makespan_s);
    let (mut tardiness, mut late_prices) = (0.0, 0.0);
    for (task, end_s) in problem.tasks.iter().zip(&ends_s) {
        if let (Some(deadline_s), Some(price)) = (task.deadline_s, task.late_price) {
            tardiness += price * (end_s - deadline_s).max(0.0);
            late_prices += price;
        }
    }
    let values = [
        ("makespan_s", plan.makespan_s, makespan_s, of_time),
        ("completion_s", plan.completion_s, completion_s, of_time * weights.max(1.0)),
        ("cost", plan.cost, cost(problem, plan), of_time * prices.max(1.0)),
        ("tardiness", plan.tardiness, tardiness, of_time * late_prices),
    ];
    for (what, stated, real, slack) in values {
        // The comparison is written so that NaN is refused.
        let agrees = (stated - real).abs() <= slack;
        if !agrees {
            violations.push(Violation::Value { what, stated, real });
        }
    }
}

/// The sum over all nodes of price times the time during which the node holds anything.
fn cost(problem: &Problem, plan: &Plan) -> f64 {
    let mut spans: Vec<Vec<(f64, f64)>> = vec![Vec::new(); problem.cluster.nodes.len()];
    for one in &plan.assignments {
        for part in &one.gang {
            if let Some(spans) = spans.get_mut(part.node) {
                spans.push((one.start_s, one.end_s));
            }
        }
    }
    let node_cost = |mut held: Vec<(f64, f64)>, price_per_hour: f64| {
        held.sort_by(|left, right| left.0.total_cmp(&right.0));
        let mut seconds = 0.0;
        let mut paid_until_s = 0.0f64;
        for (start_s, end_s) in held {
            seconds += (end_s - start_s.max(paid_until_s)).max(0.0);
            paid_until_s = paid_until_s.max(end_s);
        }
        price_per_hour * seconds / SECONDS_AN_HOUR
    };
    let nodes = problem.cluster.nodes.iter().zip(spans);
    nodes
        .filter(|(node, _)| node.price_per_hour > 0.0)
        .fold(0.0, |sum, (node, held)| sum + node_cost(held, node.price_per_hour))
}

/// Checks that each bound is a number, not negative, and not above the value that it bounds.
pub(super) fn check_bounds(plan: &Plan, violations: &mut Vec<Violation>) {
    let bounds = [
        ("makespan", plan.lower_bound_s, plan.makespan_s),
        ("completion", plan.completion_bound_s, plan.completion_s),
        ("cost", plan.cost_bound, plan.cost),
        ("tardiness", plan.tardiness_bound, plan.tardiness),
    ];
    for (what, bound, value) in bounds {
        let is_above = plan.is_usable() && bound > value + slack(value);
        if !bound.is_finite() || bound < 0.0 || is_above {
            violations.push(Violation::LowerBound { what, bound, value });
        }
    }
    // A plan that costs nothing is optimal without a positive bound.
    let is_free = plan.objective == Objective::Cost && plan.cost == 0.0;
    let is_proven = plan.gap() <= OPTIMAL_GAP && (plan.bound() > 0.0 || is_free);
    if plan.status == PlanStatus::Optimal && !is_proven {
        let reason = format!("its gap to the lower bound is {:e}", plan.gap());
        violations.push(Violation::Status { status: plan.status, reason });
    }
    let (tardiness, bound) = (plan.tardiness, plan.tardiness_bound);
    if plan.status == PlanStatus::Optimal && tardiness > bound * (1.0 + OPTIMAL_GAP) {
        let reason = format!("its tardiness is {tardiness}, and only {bound} is proven");
        violations.push(Violation::Status { status: plan.status, reason });
    }
}
