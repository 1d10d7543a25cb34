//! Weighted completion: against the best of all orders.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod orders;

use proptest::prelude::*;
use saturn_core::{Objective, Plan, Problem};
use saturn_solver::{Backend, FrozenClock, Options, solve};

use crate::facts::problems::{Scale, problems};
use crate::support::cases;
use orders::least;

/// Few enough tasks to try all orders.
pub(crate) const SIX: Scale = Scale {
    nodes: 1..=2,
    gpus: 1..=3,
    tasks: 4..=6,
    strategies: 1..=2,
    widest: 4,
    longest: 5,
    latest: 6,
    due: 40,
};

fn run(problem: &Problem, max_moves: u64, seed: u64) -> Plan {
    let options = Options {
        backend: Backend::Search,
        objective: Objective::Completion,
        max_moves: Some(max_moves),
        seed,
        ..Options::default()
    };
    solve(problem, &options, &FrozenClock).unwrap()
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn six_tasks_are_bounded_and_planned_as_all_orders_say(problem in problems(SIX)) {
        let least = least(&problem, Objective::Completion);
        let plan = run(&problem, 60_000, 0);
        let Some(least) = least else {
            prop_assert!(!plan.is_usable());
            return Ok(());
        };
        prop_assert!(plan.completion_bound_s <= least * (1.0 + 1e-9), "{} {least}", plan.completion_bound_s);
        if plan.is_usable() {
            prop_assert!(plan.completion_s >= least * (1.0 - 1e-9), "{} {least}", plan.completion_s);
        }
        let is_coupled = problem.tasks.iter().any(|task| {
            let is_wide = |gpus: u32| problem.cluster.nodes.iter().all(|node| node.gpus < gpus);
            !task.after.is_empty() || task.strategies.iter().any(|one| is_wide(one.gpus))
        });
        // Lists reach every best plan where nothing couples the nodes.
        if !is_coupled && problem.cluster.nodes.len() == 1 {
            prop_assert!(plan.is_usable());
            prop_assert!(plan.completion_s <= least * (1.0 + 1e-9), "{} {least}", plan.completion_s);
        }
    }
}
