//! How many GPUs each baseline gives to each task, worked out by hand.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use saturn_core::{Candidate, Cluster, Node, Problem, ProblemTask};
use saturn_solver::{Backend, FrozenClock, Options, solve};

/// A task by its runtimes, seconds, on numbers of GPUs.
fn task(name: &str, runtimes: &[(u32, f64)]) -> ProblemTask {
    let strategies = runtimes.iter().map(|(gpus, runtime_s)| Candidate {
        technique: "x".into(),
        gpus: *gpus,
        gpu_type: None,
        runtime_s: *runtime_s,
        pack: false,
        host_bytes: 0,
        relative_error: 0.0,
    });
    ProblemTask::new(name, strategies.collect())
}

/// The GPUs of each task in a baseline's plan.
fn gpus(backend: Backend, num_gpus: u32, tasks: Vec<ProblemTask>) -> Vec<u32> {
    let problem = Problem::new(Cluster { nodes: vec![Node::new("n0", num_gpus, "gpu")] }, tasks);
    let plan = solve(&problem, &Options { backend, ..Options::default() }, &FrozenClock).unwrap();
    let mut found = vec![0; problem.tasks.len()];
    for one in &plan.assignments {
        found[one.task] = problem.tasks[one.task].strategies[one.strategy].gpus;
    }
    found
}

#[test]
fn optimus_gives_the_next_gpus_to_the_task_that_gains_most_for_each() {
    let wide = || task("wide", &[(1, 100.0), (2, 60.0), (4, 50.0)]);
    let narrow = || task("narrow", &[(1, 100.0), (2, 90.0), (4, 20.0)]);
    let both = || vec![wide(), narrow()];
    let of = |num_gpus| gpus(Backend::Optimus, num_gpus, both());
    assert_eq!(of(2), [1, 1], "no GPU remains");
    assert_eq!(of(3), [2, 1], "40 s for one GPU, not 10 s");
    assert_eq!(of(4), [2, 2], "10 s for one GPU, since there are not two for the other step");
    assert_eq!(of(6), [2, 4], "35 s for each of two GPUs, not 5 s");
    assert_eq!(of(8), [4, 4]);
}

#[test]
fn optimus_gives_no_gpus_that_make_a_task_slower() {
    let tasks = vec![task("small", &[(1, 100.0), (2, 101.0), (4, 120.0)])];
    assert_eq!(gpus(Backend::Optimus, 8, tasks), [1]);
}

#[test]
fn max_takes_the_most_gpus_and_min_the_least() {
    let tasks = || vec![task("a", &[(1, 9.0), (2, 8.0)]), task("b", &[(2, 9.0), (4, 8.0)])];
    assert_eq!(gpus(Backend::Max, 8, tasks()), [2, 4]);
    assert_eq!(gpus(Backend::Min, 8, tasks()), [1, 2]);
}
