//! The status of a plan, from its value and its bounds.

use saturn_core::{OPTIMAL_GAP, Plan, PlanStatus};

/// Sets the status of a plan that exists, and keeps its bounds below what it is worth.
pub(crate) fn grade(plan: &mut Plan) {
    plan.lower_bound_s = plan.lower_bound_s.min(plan.makespan_s);
    plan.completion_bound_s = plan.completion_bound_s.min(plan.completion_s);
    plan.cost_bound = plan.cost_bound.min(plan.cost);
    plan.tardiness_bound = plan.tardiness_bound.min(plan.tardiness);
    let is_least_tardy = plan.tardiness <= plan.tardiness_bound * (1.0 + OPTIMAL_GAP);
    let is_proven = is_least_tardy && plan.gap() <= OPTIMAL_GAP;
    plan.status = if is_proven { PlanStatus::Optimal } else { PlanStatus::Feasible };
}

#[cfg(test)]
mod tests {
    use saturn_core::Objective;

    use super::*;

    fn graded(objective: Objective, over: f64, tardiness: f64, known: f64) -> PlanStatus {
        let value = 100.0 * (1.0 + over);
        let mut plan = Plan {
            makespan_s: value,
            completion_s: value,
            cost: value,
            lower_bound_s: 100.0,
            completion_bound_s: 100.0,
            cost_bound: 100.0,
            tardiness,
            tardiness_bound: known,
            ..Plan::none(objective)
        };
        grade(&mut plan);
        plan.status
    }

    #[test]
    fn optimal_means_a_bound_within_a_millionth() {
        for &objective in Objective::ALL {
            assert_eq!(graded(objective, 0.99e-6, 0.0, 0.0), PlanStatus::Optimal);
            assert_eq!(graded(objective, 1.01e-6, 0.0, 0.0), PlanStatus::Feasible);
            assert_eq!(graded(objective, 0.0, 5.0, 5.0 * (1.0 - 0.99e-6)), PlanStatus::Optimal);
            assert_eq!(graded(objective, 0.0, 5.0, 5.0 * (1.0 - 1.01e-6)), PlanStatus::Feasible);
        }
    }
}
