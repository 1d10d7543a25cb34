//! Problems of four to six tasks with any facts, under every objective: against all orders.

use proptest::prelude::*;
use saturn_core::{Objective, PlanStatus, Problem};
use saturn_solver::Backend;

use super::problems::problems;
use super::run;
use crate::completion::SIX;
use crate::completion::orders::least;
use crate::support::cases;

/// A plan of four to six tasks is neither better than all orders say nor wrongly called optimal, nor is a
/// bound higher, under each objective for which some best plan never waits.
pub(super) fn is_as_all_orders_say(problem: &Problem, proves: bool) -> Result<(), TestCaseError> {
    let backend = if proves { Backend::Auto } else { Backend::Search };
    for objective in [Objective::Makespan, Objective::Completion] {
        let plan = run(problem, backend, objective, 3_000);
        let Some(least) = least(problem, objective) else {
            prop_assert!(!plan.is_usable(), "{objective}: {plan:?}");
            continue;
        };
        let bad = run(problem, Backend::Random, objective, 1);
        for plan in [&plan, &bad] {
            prop_assert!(plan.status != PlanStatus::Infeasible, "{objective}: {plan:?}");
            prop_assert!(plan.bound() <= least * (1.0 + 1e-9) + 1e-9, "{plan:?} {least}");
            if plan.is_usable() {
                prop_assert!(plan.value() >= least * (1.0 - 1e-9), "{plan:?} {least}");
            }
            if plan.status == PlanStatus::Optimal {
                prop_assert!(plan.value() <= least * (1.0 + 2e-6) + 1e-9, "{plan:?} {least}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(250))]

    /// In the nightly tests, these are 10,000 problems.
    #[test]
    fn every_plan_and_bound_of_six_tasks_is_as_all_orders_say(
        problem in problems(SIX),
        proves in prop::bool::weighted(0.3),
    ) {
        let backend = if proves { Backend::Auto } else { Backend::Search };
        for &objective in Objective::ALL {
            let plan = run(&problem, backend, objective, 1_500);
            let Some(least) = least(&problem, objective) else {
                // No order keeps every limit, and waiting would not help to keep a limit.
                prop_assert!(!plan.is_usable(), "{objective}: {plan:?}");
                continue;
            };
            // A bound is reported as no more than the plan's value. Beside a bad plan it is not cut.
            let bad = run(&problem, Backend::Random, objective, 1);
            let at_most = least * (1.0 + 1e-9) + 1e-9;
            prop_assert!(bad.bound() <= at_most, "{objective}: {} {least}", bad.bound());
            for status in [plan.status, bad.status] {
                prop_assert!(status != PlanStatus::Infeasible, "{objective}: {plan:?} {bad:?}");
            }
            prop_assert!(plan.bound() <= at_most, "{objective}: {} {least}", plan.bound());
            if plan.is_usable() && objective != Objective::Cost {
                prop_assert!(plan.value() >= least * (1.0 - 1e-9), "{objective}: {} {least}", plan.value());
            }
            if plan.status == PlanStatus::Optimal {
                let at_most = least * (1.0 + 2e-6) + 1e-9;
                prop_assert!(plan.value() <= at_most, "{objective}: {} {least}", plan.value());
            }
        }
    }
}
