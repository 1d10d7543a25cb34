//! The status of a plan, from its value and its bounds.

use saturn_core::{Plan, PlanStatus};

/// Up to this gap a plan counts as proven optimal.
const OPTIMAL_GAP: f64 = 1e-6;

/// Sets the status of a plan that exists, and keeps its bounds below what it is worth.
pub(crate) fn grade(plan: &mut Plan) {
    plan.lower_bound_s = plan.lower_bound_s.min(plan.makespan_s);
    plan.completion_bound_s = plan.completion_bound_s.min(plan.completion_s);
    plan.cost_bound = plan.cost_bound.min(plan.cost);
    let is_proven = plan.gap() <= OPTIMAL_GAP;
    plan.status = if is_proven { PlanStatus::Optimal } else { PlanStatus::Feasible };
}
