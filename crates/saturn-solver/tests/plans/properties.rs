//! What must hold of every solve: bound ≤ exact ≤ heuristic, and the symmetries of the problem.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "proofs on threads run against a clock")]

use std::time::Instant;

use crate::support::{MEDIUM, Sizes, TINY, brute_force, cases, problems};
use proptest::prelude::*;
use saturn_core::{Node, Plan, PlanStatus, Problem};
use saturn_solver::{Backend, Clock, FrozenClock, Objective, Options, solve};

struct WallClock(Instant);

impl Clock for WallClock {
    fn elapsed_s(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Enough to find the optimum of a tiny problem.
const ENOUGH_MOVES: u64 = 300_000;
/// Enough to exercise every part of the search.
const SOME_MOVES: u64 = 20_000;

fn limited(backend: Backend, max_moves: u64) -> Options {
    Options { backend, max_moves: Some(max_moves), time_limit_s: 60.0, ..Options::default() }
}

fn options(backend: Backend) -> Options {
    limited(backend, ENOUGH_MOVES)
}

fn run(problem: &Problem, backend: Backend) -> Plan {
    solve(problem, &options(backend), &FrozenClock).unwrap()
}

/// A short solve.
fn glance(problem: &Problem, backend: Backend) -> Plan {
    solve(problem, &limited(backend, SOME_MOVES), &FrozenClock).unwrap()
}

fn sum_of_ends(plan: &Plan) -> f64 {
    plan.assignments.iter().map(|assignment| assignment.end_s).sum()
}

fn is_close(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-6 * right.abs().max(1.0)
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn tiny_problems_equal_brute_force(problem in problems(TINY)) {
        let (least, _) = brute_force(&problem);
        for backend in [Backend::Milp, Backend::Search, Backend::Auto] {
            // `auto` proves by exhaustion: a wrong proof would show as a bound above the least.
            let plan = run(&problem, backend);
            prop_assert!(is_close(plan.makespan_s, least), "{backend}: {} {least}", plan.makespan_s);
            prop_assert!(plan.lower_bound_s <= least * (1.0 + 1e-9), "{backend}");
        }
        let exact = run(&problem, Backend::Milp);
        prop_assert_eq!(exact.status, PlanStatus::Optimal);
        let is_narrow = |one: &saturn_core::Candidate| {
            problem.cluster.nodes.iter().any(|node| node.gpus >= one.gpus)
        };
        if problem.tasks.iter().flat_map(|task| &task.strategies).all(is_narrow) {
            prop_assert_eq!(run(&problem, Backend::Auto).status, PlanStatus::Optimal);
        }
    }

    #[test]
    fn proofs_on_several_threads_equal_brute_force(problem in problems(Sizes { nodes: 1..=1, ..TINY })) {
        let (least, _) = brute_force(&problem);
        let options = Options { time_limit_s: 20.0, threads: 3, ..Options::default() };
        let plan = solve(&problem, &options, &WallClock(Instant::now())).unwrap();
        prop_assert!(is_close(plan.makespan_s, least), "{} {least}", plan.makespan_s);
        prop_assert_eq!(plan.status, PlanStatus::Optimal);
    }

    #[test]
    fn nodes_that_nothing_can_use_change_how_but_not_what_is_proven(
        problem in problems(Sizes { nodes: 2..=4, gpus: 2..=3, tasks: 4..=9, widest: 2, ..TINY }),
    ) {
        let mut problem = problem;
        for strategy in problem.tasks.iter_mut().flat_map(|task| &mut task.strategies) {
            let of_first = || problem.cluster.nodes[0].gpu_type.as_str().into();
            strategy.gpu_type.get_or_insert_with(of_first);
        }
        let proven = |problem: &Problem| {
            let options = Options { time_limit_s: 20.0, threads: 2, ..Options::default() };
            let plan = solve(problem, &options, &WallClock(Instant::now())).unwrap();
            (plan.status, format!("{:.6}", plan.makespan_s))
        };
        // Up to four nodes tasks are dealt to nodes; with more nodes, patterns cover the tasks.
        let dealt = proven(&problem);
        prop_assert_eq!(dealt.0, PlanStatus::Optimal);
        problem.cluster.nodes.extend((5..8).map(|index| Node::new(format!("n{index}"), 2, "unused")));
        prop_assert_eq!(dealt, proven(&problem));
    }

    #[test]
    fn tiny_sums_of_ends_equal_brute_force(problem in problems(TINY)) {
        let (_, least) = brute_force(&problem);
        for backend in [Backend::Milp, Backend::Search] {
            let options = Options { objective: Objective::Completion, ..options(backend) };
            let plan = solve(&problem, &options, &FrozenClock).unwrap();
            prop_assert!(is_close(sum_of_ends(&plan), least), "{backend}: {least}: {plan:?}");
            prop_assert!(plan.completion_bound_s > 0.0);
            prop_assert!(plan.completion_bound_s <= least * (1.0 + 1e-9), "{backend}: {plan:?}");
        }
    }

    #[test]
    fn an_added_gpu_never_worsens_the_optimum(problem in problems(TINY)) {
        // Gangs wider than a node depend on its size: they are another problem.
        let mut problem = problem;
        for task in &mut problem.tasks {
            task.strategies.retain(|one| one.gpus == 1);
        }
        problem.tasks.retain(|task| !task.strategies.is_empty());
        prop_assume!(!problem.tasks.is_empty() && problem.unplaceable().is_empty());
        let before = run(&problem, Backend::Milp);
        problem.cluster.nodes[0].gpus += 1;
        let after = run(&problem, Backend::Milp);
        prop_assert!(after.makespan_s <= before.makespan_s * (1.0 + 1e-9));
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn every_backend_is_checked_and_bounded(problem in problems(MEDIUM), seed in any::<u64>()) {
        let search = glance(&problem, Backend::Search);
        for &backend in Backend::ALL.iter().filter(|one| **one != Backend::Milp) {
            for &objective in Objective::ALL {
                let options = Options { objective, seed, ..limited(backend, SOME_MOVES) };
                let plan = solve(&problem, &options, &FrozenClock).unwrap();
                prop_assert!(plan.is_usable());
                prop_assert!(plan.lower_bound_s > 0.0);
                prop_assert!(plan.lower_bound_s <= search.makespan_s * (1.0 + 1e-9));
                prop_assert!(search.lower_bound_s <= plan.makespan_s * (1.0 + 1e-9));
            }
        }
    }

    #[test]
    fn equal_options_give_equal_plans(problem in problems(MEDIUM), seed in any::<u64>()) {
        for backend in [Backend::Auto, Backend::Search, Backend::Random] {
            let options = Options { seed, ..limited(backend, SOME_MOVES) };
            let first = solve(&problem, &options, &FrozenClock).unwrap();
            let second = solve(&problem, &options, &FrozenClock).unwrap();
            prop_assert_eq!(first, second);
        }
    }

    #[test]
    fn scaled_time_scales_the_plan(problem in problems(MEDIUM)) {
        let mut slow = problem.clone();
        for strategy in slow.tasks.iter_mut().flat_map(|task| &mut task.strategies) {
            strategy.runtime_s *= 4.0;
        }
        let (fast, slow) = (glance(&problem, Backend::Search), glance(&slow, Backend::Search));
        prop_assert!(is_close(slow.makespan_s, 4.0 * fast.makespan_s));
        prop_assert!(is_close(slow.lower_bound_s, 4.0 * fast.lower_bound_s));
    }

    #[test]
    fn order_of_tasks_and_nodes_leaves_the_bound(problem in problems(MEDIUM)) {
        let mut turned = problem.clone();
        turned.tasks.reverse();
        turned.cluster.nodes.reverse();
        let (first, second) = (glance(&problem, Backend::Min), glance(&turned, Backend::Min));
        prop_assert!((first.lower_bound_s / second.lower_bound_s - 1.0).abs() < 0.02);
    }

    #[test]
    fn dominated_strategies_change_nothing(problem in problems(MEDIUM)) {
        let mut padded = problem.clone();
        for task in &mut padded.tasks {
            let mut worse = task.strategies[0].clone();
            worse.runtime_s *= 1.5;
            task.strategies.push(worse);
        }
        let (first, second) = (glance(&problem, Backend::Search), glance(&padded, Backend::Search));
        prop_assert_eq!(first.makespan_s.to_bits(), second.makespan_s.to_bits());
        prop_assert_eq!(first.lower_bound_s.to_bits(), second.lower_bound_s.to_bits());
    }
}
