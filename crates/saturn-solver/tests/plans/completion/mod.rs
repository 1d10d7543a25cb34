//! Weighted completion: against the best of all orders, against planted optima, and more work is
//! never worse.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod orders;
mod planted;

use proptest::prelude::*;
use saturn_core::{Objective, Plan, Problem};
use saturn_solver::{Backend, FrozenClock, Options, solve};

use crate::facts::problems::{SMALL, Scale, problems};
use crate::support::cases;
use orders::least_completion;
use planted::planted;

/// Few enough tasks to try all orders.
const SIX: Scale = Scale {
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
    #![proptest_config(cases(100))]

    #[test]
    fn six_tasks_are_bounded_and_planned_as_all_orders_say(problem in problems(SIX)) {
        let least = least_completion(&problem);
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

    /// A search with more moves passes through every plan that one with fewer could have answered.
    #[test]
    fn more_moves_are_never_worse(problem in problems(SMALL), seed in any::<u64>(), threads in 1usize..=2) {
        let mut problem = problem;
        // What couples nodes goes by the general search, which does not promise this.
        let narrowest = problem.cluster.nodes.iter().map(|node| node.gpus).min().unwrap_or(1);
        for node in &mut problem.cluster.nodes {
            "k0".clone_into(&mut node.gpu_type);
        }
        for task in &mut problem.tasks {
            task.after.clear();
            task.running = None;
            task.strategies.retain(|one| one.gpus <= narrowest && one.gpu_type.is_none());
        }
        problem.tasks.retain(|task| !task.strategies.is_empty());
        prop_assume!(!problem.tasks.is_empty() && problem.unplaceable().is_empty());
        let mut before = f64::INFINITY;
        for max_moves in [1, 700, 1_000, 1_500, 4_000, 9_000, 20_000, 33_000] {
            let options = Options {
                backend: Backend::Search,
                objective: Objective::Completion,
                max_moves: Some(max_moves),
                seed,
                threads,
                ..Options::default()
            };
            let plan = solve(&problem, &options, &FrozenClock).unwrap();
            prop_assert!(plan.is_usable() || before.is_infinite(), "{max_moves} moves lost the plan");
            if plan.is_usable() {
                prop_assert!(plan.completion_s <= before * (1.0 + 1e-9), "{max_moves}: {} {before}", plan.completion_s);
                before = plan.completion_s;
            }
        }
    }
}

/// With a planted optimum it can be told whether the bound or the search is at fault.
#[test]
fn planted_optima_are_bounded_and_nearly_reached() {
    for seed in 0..3 {
        for releases in [false, true] {
            let (problem, optimum) = planted(seed, 8, 96, releases);
            let plan = run(&problem, 600_000, seed);
            let (bound, value) = (plan.completion_bound_s / optimum, plan.completion_s / optimum);
            println!("seed {seed}, releases {releases}: bound {bound:.5}, plan {value:.5}");
            assert!((0.995..=1.0 + 1e-9).contains(&bound), "{seed}: bound {bound}");
            assert!((1.0 - 1e-9..=1.03).contains(&value), "{seed}: plan {value}");
        }
    }
}
