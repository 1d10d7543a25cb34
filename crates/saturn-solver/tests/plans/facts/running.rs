//! Problems whose only facts are running tasks and places, which go by the search over lists: what
//! engines ask when they plan again.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use saturn_core::{Plan, PlanStatus, Problem, ProblemTask, check};
use saturn_solver::{Backend, Clock, FrozenClock, Objective, Options, solve};

use super::exhaustion::brute_force;
use super::problems::{SMALL, TINY, problems};
use super::{is_close, run};
use crate::support::cases;

/// A clock on which a millisecond passes whenever it is asked.
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn elapsed_s(&self) -> f64 {
        self.0.fetch_add(1, Ordering::Relaxed) as f64 * 1e-3
    }
}

/// The same problem without releases, order, deadlines, windows and weights, and with gangs of one
/// node alone.
fn only_running(problem: &Problem) -> Problem {
    let mut problem = problem.clone();
    problem.deadline_s = None;
    let narrowest = problem.cluster.nodes.iter().map(|node| node.gpus).min().unwrap_or(1);
    for node in &mut problem.cluster.nodes {
        (node.available_from_s, node.available_until_s) = (0.0, None);
        "k0".clone_into(&mut node.gpu_type);
    }
    for task in &mut problem.tasks {
        (task.release_s, task.deadline_s, task.weight) = (0.0, None, 1.0);
        task.after.clear();
        let is_narrow = |one: &saturn_core::Candidate| {
            one.gpus <= narrowest && one.gpu_type.as_deref().is_none_or(|kind| kind == "k0")
        };
        task.strategies.retain(is_narrow);
        if task.running.is_some() && task.running_strategy().is_none() {
            task.running = None;
        }
        task.switch_cost_s.get_or_insert(2.0);
    }
    problem.tasks.retain(|task| !task.strategies.is_empty());
    problem
}

fn is_usable(problem: &Problem) -> bool {
    !problem.tasks.is_empty() && problem.validate().is_ok() && problem.unplaceable().is_empty()
}

fn limited(max_moves: u64) -> Options {
    Options { max_moves: Some(max_moves), time_limit_s: 60.0, ..Options::default() }
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn tiny_problems_equal_exhaustion(problem in problems(TINY)) {
        let problem = only_running(&problem);
        prop_assume!(is_usable(&problem));
        let least = brute_force(&problem).unwrap();
        for (objective, least) in [(Objective::Makespan, least[0]), (Objective::Completion, least[1])] {
            for backend in [Backend::Auto, Backend::Search, Backend::Milp] {
                let plan = run(&problem, backend, objective, 30_000);
                prop_assert!(is_close(plan.value(), least), "{backend} {objective}: {} {least}", plan.value());
                prop_assert!(plan.bound() <= least * (1.0 + 1e-9), "{backend} {objective}: {plan:?}");
            }
        }
        let is_anywhere = |task: &ProblemTask| task.only_nodes.is_none() && task.not_nodes.is_empty();
        if problem.tasks.iter().all(is_anywhere) {
            let plan = run(&problem, Backend::Auto, Objective::Makespan, 30_000);
            prop_assert_eq!(plan.status, PlanStatus::Optimal);
        }
    }
}

/// A plan that can be followed whatever it is worth: running tasks stay, the others one by one.
fn one_by_one(problem: &Problem) -> Plan {
    let options = Options { backend: Backend::CurrentPractice, ..limited(1) };
    solve(problem, &options, &FrozenClock).unwrap()
}

proptest! {
    #![proptest_config(cases(40))]

    /// Every plan has passed the checker, or `solve` would have failed.
    #[test]
    fn switches_are_planned_where_tasks_run(problem in problems(SMALL), seed in any::<u64>()) {
        let problem = only_running(&problem);
        prop_assume!(is_usable(&problem));
        let whole = solve(&problem, &Options { seed, ..limited(8_000) }, &FrozenClock).unwrap();
        for max_switches in [1, 2] {
            let options = Options { max_switches, seed, warm_start: Some(whole.clone()), ..limited(8_000) };
            let plan = solve(&problem, &options, &FrozenClock).unwrap();
            prop_assert!(plan.makespan_s <= whole.makespan_s * (1.0 + 1e-9));
            prop_assert!(plan.lower_bound_s <= whole.makespan_s * (1.0 + 1e-9));
            let again = Options { warm_start: Some(plan.clone()), ..options };
            let second = solve(&problem, &again, &FrozenClock).unwrap();
            prop_assert!(second.makespan_s <= plan.makespan_s * (1.0 + 1e-9));
        }
    }

    #[test]
    fn a_plan_in_force_is_never_made_worse(problem in problems(SMALL)) {
        for &objective in Objective::ALL {
            let in_force = run(&problem, Backend::Search, objective, 3_000);
            prop_assume!(in_force.is_usable());
            let worse = one_by_one(&problem);
            for warm in [&in_force, &worse] {
                let backend = Backend::Search;
                let options = Options { objective, backend, warm_start: Some(warm.clone()), ..limited(200) };
                let plan = solve(&problem, &options, &FrozenClock).unwrap();
                let value = Plan::of(&problem, objective, warm.assignments.clone()).value();
                if check(&problem, warm).is_ok() && warm.is_usable() {
                    prop_assert!(plan.is_usable());
                    prop_assert!(plan.value() <= value * (1.0 + 1e-9), "{objective}");
                }
            }
        }
    }
}

/// Eight tasks on two devices, of which the first trains: a run plans so when its first trial has
/// gone on as training.
#[test]
fn a_plan_around_a_running_task_is_proven() {
    let seconds = [15.9, 14.3, 11.5, 8.8, 7.9, 6.1, 4.7, 3.2];
    let tasks = seconds.iter().enumerate().map(|(index, seconds)| {
        let running = r#", "running": {"technique": "ddp", "gpus": 1, "movable": true,
            "placement": [{"node": "n0", "devices": [0]}]}"#;
        let running = if index == 0 { running } else { "" };
        format!(
            r#"{{"name": "t{index}", "switch_cost_s": 0.5, "strategies": [
                {{"technique": "ddp", "gpus": 1, "runtime_s": {seconds}}},
                {{"technique": "ddp", "gpus": 2, "runtime_s": {}}}]{running}}}"#,
            0.7 * seconds
        )
    });
    let tasks = tasks.collect::<Vec<_>>().join(",");
    let text =
        format!(r#"{{"cluster": {{"nodes": [{{"name": "n0", "gpus": 2}}]}}, "tasks": [{tasks}]}}"#);
    let problem = Problem::from_json(&text).unwrap();
    let whole = solve(&problem, &limited(100_000), &FrozenClock).unwrap();
    assert_eq!(whole.status, PlanStatus::Optimal, "{whole:?}");
    // A run allows switches, if they gain 2%. Here they gain less.
    let options = Options { max_switches: 1, min_switch_gain: 0.02, ..limited(100_000) };
    let plan = solve(&problem, &options, &FrozenClock).unwrap();
    assert_eq!(plan.status, PlanStatus::Optimal, "{plan:?}");
    assert!((plan.makespan_s - whole.makespan_s).abs() < 1e-6, "{plan:?}");
}

/// Where nothing is gained by moving, nothing is moved.
#[test]
fn what_runs_stays_where_moving_gains_nothing() {
    let text = r#"{"cluster": {"nodes": [{"gpus": 4}, {"gpus": 4}]}, "tasks": [
        {"name": "a", "strategies": [{"technique": "ddp", "gpus": 2, "runtime_s": 10}], "switch_cost_s": 0,
         "running": {"technique": "ddp", "gpus": 2, "placement": [{"node": "n1", "devices": [1, 3]}], "movable": true}},
        {"name": "b", "strategies": [{"technique": "ddp", "gpus": 4, "runtime_s": 100}]}]}"#;
    let problem = Problem::from_json(text).unwrap();
    for &backend in &[Backend::Auto, Backend::Search] {
        let plan = run(&problem, backend, Objective::Makespan, 5_000);
        let a = plan.assignments.iter().find(|one| one.task == 0).unwrap();
        assert!(is_close(plan.makespan_s, 100.0));
        assert_eq!((a.gang[0].node, a.gang[0].devices.as_slice()), (1, &[1, 3][..]));
        assert!(a.start_s.abs() < 1e-12);
    }
}

/// A layered graph has exponentially many paths.
#[test]
fn layers_of_predecessors_are_no_trouble() {
    let candidate = |runtime_s| saturn_core::Candidate {
        technique: "x".into(),
        gpus: 1,
        gpu_type: None,
        runtime_s,
        pack: false,
        host_bytes: 0,
        relative_error: 0.0,
    };
    let tasks = (0..90).map(|task: usize| {
        let layer = task / 3;
        let after = (0..3).filter(|_| layer > 0).map(|other| format!("t{}", layer * 3 - 3 + other));
        ProblemTask {
            after: after.collect(),
            ..ProblemTask::new(format!("t{task}"), vec![candidate(1.0 + task as f64)])
        }
    });
    let node = saturn_core::Node::new("n0", 4, "gpu");
    let problem = Problem::new(saturn_core::Cluster { nodes: vec![node] }, tasks.collect());
    let options = Options { backend: Backend::Milp, time_limit_s: 10.0, ..Options::default() };
    assert!(solve(&problem, &options, &Ticking(AtomicU64::new(0))).unwrap().is_usable());
}

/// A running task of 4 s waits behind two short ones and ends at 11 s for its switch: 1 + 4 + 11 is less
/// than the 4 + 5 + 8 of staying.
#[test]
fn what_runs_moves_behind_short_tasks_where_that_gains() {
    let text = r#"{"cluster": {"nodes": [{"gpus": 1}]}, "tasks": [
        {"name": "a", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 1}], "switch_cost_s": 2},
        {"name": "b", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 3}], "switch_cost_s": 2},
        {"name": "c", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 4}], "switch_cost_s": 3,
         "running": {"technique": "ddp", "gpus": 1, "placement": [{"node": "n0", "devices": [0]}], "movable": true}}]}"#;
    let problem = Problem::from_json(text).unwrap();
    for backend in [Backend::Auto, Backend::Search, Backend::Milp] {
        for seed in 0..20 {
            let (objective, options) = (Objective::Completion, limited(30_000));
            let plan =
                solve(&problem, &Options { backend, objective, seed, ..options }, &FrozenClock)
                    .unwrap();
            assert!(is_close(plan.value(), 16.0), "{backend}, seed {seed}: {}", plan.value());
        }
    }
}
