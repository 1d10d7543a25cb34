//! Problems with owners who may hold only so many devices at once: against an exhaustive search and all
//! orders, and that nothing changes where no cap can bind.

use proptest::prelude::*;
use saturn_core::{Objective, Owner, PlanStatus, Problem};
use saturn_solver::Backend;

use super::exhaustion::brute_force;
use super::problems::{SMALL, TINY, problems, with_caps};
use super::six::is_as_all_orders_say;
use super::{agree, run};
use crate::completion::SIX;
use crate::support::cases;

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn tiny_problems_with_caps_equal_exhaustion(problem in with_caps(TINY)) {
        let least = brute_force(&problem);
        for (index, &objective) in Objective::ALL.iter().enumerate() {
            let value = least.map(|least| least[index]);
            let auto = run(&problem, Backend::Auto, objective, 4_000);
            let exact = run(&problem, Backend::Milp, objective, 4_000);
            for plan in [&auto, &exact] {
                let found = plan.is_usable().then(|| plan.value());
                prop_assert!(agree(found, value), "{objective}: {plan:?}, exhaustion {least:?}");
                prop_assert!(plan.status != PlanStatus::Infeasible || least.is_none(), "{plan:?}");
                let Some(least) = least else { continue };
                let bounds = [plan.lower_bound_s, plan.completion_bound_s, plan.cost_bound];
                for (bound, least) in bounds.iter().zip(least) {
                    prop_assert!(*bound <= least * (1.0 + 1e-9), "{objective}: {plan:?} {least:?}");
                }
            }
        }
    }

    #[test]
    fn six_tasks_with_caps_are_bounded_as_all_orders_say(
        problem in with_caps(SIX),
        proves in prop::bool::weighted(0.3),
    ) {
        is_as_all_orders_say(&problem, proves)?;
    }

    #[test]
    fn caps_that_can_not_bind_change_nothing(problem in problems(TINY)) {
        let mut owned = problem.clone();
        let widest = |task: &saturn_core::ProblemTask| {
            task.strategies.iter().map(|one| one.gpus).max().unwrap_or(0)
        };
        // Of whole nodes, a wide gang may hold more devices than its strategy says.
        let all: u32 = problem.tasks.iter().map(|task| widest(task) + 3).sum();
        owned.owners = vec![Owner { name: "ada".to_owned(), max_gpus: all }];
        owned.tasks.iter_mut().for_each(|task| task.owner = Some("ada".to_owned()));
        for &objective in Objective::ALL {
            let plan = |problem: &Problem| run(problem, Backend::Auto, objective, 2_000);
            prop_assert_eq!(plan(&problem), plan(&owned));
        }
    }
}

proptest! {
    #![proptest_config(cases(40))]

    /// Debug builds and tests check each answer with the plan checker (`solve`).
    #[test]
    fn larger_problems_with_caps_are_checked_and_bounded(
        problem in with_caps(SMALL),
        seed in any::<u64>(),
    ) {
        for &objective in Objective::ALL {
            for backend in [Backend::Search, Backend::Auto, Backend::CurrentPractice, Backend::Max] {
                let plan = run(&problem, backend, objective, 300 + seed % 100);
                saturn_core::check(&problem, &plan).map_err(|faults| {
                    TestCaseError::fail(format!("{backend:?} {objective}: {faults:?}"))
                })?;
            }
        }
    }
}
