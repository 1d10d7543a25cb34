//! Problems whose nodes have only so much host memory: against an exhaustive search and all orders, and
//! that nothing changes where it can't bind.

use proptest::prelude::*;
use saturn_core::{Objective, PlanStatus, Problem};
use saturn_solver::Backend;

use super::exhaustion::brute_force;
use super::problems::{TINY, problems, with_memory};
use super::six::is_as_all_orders_say;
use super::{agree, run};
use crate::completion::SIX;
use crate::support::cases;

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn tiny_problems_with_host_memory_equal_exhaustion(problem in with_memory(TINY)) {
        let least = brute_force(&problem);
        for (index, &objective) in Objective::ALL.iter().enumerate() {
            let value = least.map(|least| least[index]);
            let auto = run(&problem, Backend::Auto, objective, 4_000);
            let found = auto.is_usable().then(|| auto.value());
            prop_assert!(agree(found, value), "{objective}: {auto:?}, exhaustion {least:?}");
            let exact = run(&problem, Backend::Milp, objective, 4_000);
            for plan in [&auto, &exact] {
                prop_assert!(plan.status != PlanStatus::Infeasible || least.is_none(), "{plan:?}");
                prop_assert!(plan.is_usable() <= least.is_some());
                let Some(least) = least else { continue };
                let bounds = [plan.lower_bound_s, plan.completion_bound_s, plan.cost_bound];
                for (bound, least) in bounds.iter().zip(least) {
                    prop_assert!(*bound <= least * (1.0 + 1e-9), "{objective}: {plan:?} {least:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn six_tasks_with_host_memory_are_bounded_as_all_orders_say(
        problem in with_memory(SIX),
        proves in prop::bool::weighted(0.3),
    ) {
        is_as_all_orders_say(&problem, proves)?;
    }

    #[test]
    fn host_memory_that_can_not_bind_changes_nothing(problem in problems(TINY)) {
        let mut roomy = problem.clone();
        for node in &mut roomy.cluster.nodes {
            node.host_memory_bytes = Some(3 * u64::from(node.gpus));
        }
        let strategies = roomy.tasks.iter_mut().flat_map(|task| &mut task.strategies);
        strategies.enumerate().for_each(|(index, one)| one.host_bytes = index as u64 % 4);
        for &objective in Objective::ALL {
            let plan = |problem: &Problem| run(problem, Backend::Auto, objective, 2_000);
            prop_assert_eq!(plan(&problem), plan(&roomy));
        }
    }
}
