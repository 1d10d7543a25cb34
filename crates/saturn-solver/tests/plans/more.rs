//! More is never worse: a search with twice the moves passes through every plan that it could have
//! answered with half of them, and the number of threads only says how soon.
//!
//! Time is one more limit at which the same course is cut, so what holds of moves holds of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use saturn_core::{Objective, Plan, Problem};
use saturn_solver::{Backend, FrozenClock, Options, solve};

use crate::facts::problems::{SMALL, Scale, problems};
use crate::support::cases;

/// Too many tasks to be annealed as a whole.
const MANY: Scale = Scale { nodes: 3..=4, tasks: 51..=70, due: 4_000, ..SMALL };

/// As many tasks as `auto` raises bounds for, without proofs. All of them fit each node.
const BOUNDED: Scale = Scale { gpus: 8..=8, tasks: 53..=120, strategies: 2..=4, widest: 8, ..MANY };

fn value(plan: &Plan) -> f64 {
    if plan.is_usable() { plan.value() } else { f64::INFINITY }
}

/// Solves with more and more moves, each time twice as many, or eight times where proofs take long.
fn is_never_worse(problem: &Problem, options: &Options, most: u64) -> Result<(), TestCaseError> {
    let mut before = f64::INFINITY;
    let mut max_moves = 1;
    while max_moves <= most {
        let options = Options { max_moves: Some(max_moves), ..options.clone() };
        let plan = solve(problem, &options, &FrozenClock).unwrap();
        let now = value(&plan);
        prop_assert!(
            now <= before * (1.0 + 1e-12),
            "{:?}, {} threads: {max_moves} moves give {now}, fewer gave {before}",
            options.objective,
            options.threads
        );
        before = now;
        max_moves *= if options.backend == Backend::Auto { 8 } else { 2 };
    }
    Ok(())
}

/// The problem without what couples its nodes.
fn uncoupled(mut problem: Problem) -> Problem {
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
    problem
}

/// The problem with predecessors and times, but with no gang on several nodes and no host memory.
fn narrow(problem: Problem) -> Problem {
    let coupled = problem.clone();
    let mut problem = uncoupled(problem);
    for node in &mut problem.cluster.nodes {
        node.host_memory_bytes = None;
    }
    let names: Vec<String> = problem.tasks.iter().map(|task| task.name.clone()).collect();
    for task in &mut problem.tasks {
        let before = coupled.tasks.iter().find(|one| one.name == task.name);
        task.after = before.map(|one| one.after.clone()).unwrap_or_default();
        task.after.retain(|name| names.contains(name));
    }
    problem
}

/// The problem with nothing but devices, runtimes and switch costs.
fn plain(problem: Problem) -> Problem {
    let mut problem = uncoupled(problem);
    problem.deadline_s = None;
    for node in &mut problem.cluster.nodes {
        node.available_from_s = 0.0;
        node.available_until_s = None;
    }
    for (index, task) in problem.tasks.iter_mut().enumerate() {
        task.release_s = 0.0;
        task.deadline_s = None;
        (task.only_nodes, task.not_nodes) = (None, Vec::new());
        task.switch_cost_s = (index % 3 > 0).then_some(2.0);
    }
    problem
}

fn objective() -> impl Strategy<Value = Objective> {
    proptest::sample::select(Objective::ALL)
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn more_moves_are_never_worse(
        problem in problems(SMALL),
        objective in objective(),
        is_auto in any::<bool>(),
        seed in any::<u64>(),
        threads in 1usize..=2,
    ) {
        let backend = if is_auto { Backend::Auto } else { Backend::Search };
        let options = Options { backend, objective, seed, threads, ..Options::default() };
        is_never_worse(&problem, &options, 32_000)?;
        let problem = uncoupled(problem);
        if !problem.tasks.is_empty() && problem.unplaceable().is_empty() {
            is_never_worse(&problem, &options, 64_000)?;
        }
    }

    #[test]
    fn more_moves_are_never_worse_for_plain_problems(
        problem in problems(SMALL),
        is_auto in any::<bool>(),
        seed in any::<u64>(),
        max_switches in 0usize..=1,
    ) {
        let problem = plain(problem);
        prop_assume!(!problem.tasks.is_empty());
        let backend = if is_auto { Backend::Auto } else { Backend::Search };
        let options = Options { backend, seed, max_switches, ..Options::default() };
        is_never_worse(&problem, &options, if max_switches > 0 { 64_000 } else { 256_000 })?;
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn more_moves_are_never_worse_for_many_tasks(
        problem in problems(MANY),
        objective in objective(),
        seed in any::<u64>(),
        max_switches in 0usize..=1,
    ) {
        let options = Options { backend: Backend::Search, objective, seed, ..Options::default() };
        is_never_worse(&problem, &options, 4_000)?;
        let waiting = narrow(problem.clone());
        if !waiting.tasks.is_empty() && waiting.unplaceable().is_empty() {
            is_never_worse(&waiting, &options, 16_000)?;
        }
        let problem = plain(problem);
        let options = Options { max_switches, objective: Objective::Makespan, ..options };
        is_never_worse(&problem, &options, 500_000)?;
    }

    /// By moves nothing that `auto` does beside its search takes any of them. By time it does.
    #[test]
    fn auto_is_never_worse_than_its_search_alone(
        problem in problems(BOUNDED),
        max_moves in 0u64..=60_000,
        seed in any::<u64>(),
        threads in 1usize..=2,
    ) {
        let problem = plain(problem);
        prop_assume!((51..=120).contains(&problem.tasks.len()));
        let run = |backend: Backend| {
            let max_moves = Some(max_moves);
            let options = Options { backend, max_moves, seed, threads, ..Options::default() };
            solve(&problem, &options, &FrozenClock).unwrap()
        };
        let (auto, search) = (run(Backend::Auto), run(Backend::Search));
        prop_assert!(auto.is_usable() || !search.is_usable());
        prop_assert!(
            value(&auto) <= value(&search) * (1.0 + 1e-12),
            "{max_moves} moves: auto {}, search {}",
            value(&auto),
            value(&search)
        );
        prop_assert!(auto.bound() >= search.bound() * (1.0 - 1e-12));
    }

    /// Threads do the same work in another order.
    #[test]
    fn threads_do_not_change_the_course(
        problem in problems(SMALL),
        objective in objective(),
        is_plain in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let problem = if is_plain { plain(problem) } else { problem };
        // Without what couples nodes, a problem may be left with no task.
        prop_assume!(!problem.tasks.is_empty());
        let run = |threads: usize| {
            let options = Options {
                backend: Backend::Search,
                objective,
                max_moves: Some(20_000),
                seed,
                threads,
                ..Options::default()
            };
            let mut plan = solve(&problem, &options, &FrozenClock).unwrap();
            // Sums on the way to a bound depend on how they are split.
            (plan.completion_bound_s, plan.solve_s) = (0.0, 0.0);
            plan
        };
        let one = run(1);
        prop_assert_eq!(&run(2), &one);
        prop_assert_eq!(&run(7), &one);
    }
}
