//! Re-solving from the plan at hand after a task has ended or a node has gone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use saturn_core::Problem;
use saturn_solver::{Backend, FrozenClock, Options, solve};

/// Moves of a solve that starts from a plan.
const FEW: u64 = 400;

/// A hundred tasks on eight nodes of eight GPUs.
fn problem() -> Problem {
    let tasks: Vec<String> = (0..100)
        .map(|task| {
            let work = 3600.0 * 20f64.powf(f64::from(task * 37 % 100) / 100.0);
            let strategies: Vec<String> = (1..=8)
                .map(|gpus| {
                    let runtime = work * (0.03 + 0.97 / f64::from(gpus));
                    format!(r#"{{"technique": "ddp", "gpus": {gpus}, "runtime_s": {runtime}}}"#)
                })
                .collect();
            format!(r#"{{"name": "t{task}", "strategies": [{}]}}"#, strategies.join(","))
        })
        .collect();
    let nodes = [r#"{"gpus": 8}"#; 8].join(",");
    let text = format!(r#"{{"cluster": {{"nodes": [{nodes}]}}, "tasks": [{}]}}"#, tasks.join(","));
    Problem::from_json(&text).unwrap()
}

fn moves(max_moves: u64) -> Options {
    Options { backend: Backend::Search, max_moves: Some(max_moves), ..Options::default() }
}

/// The makespans of `new` over that of a long search: of a short search from a plan of `problem()`,
/// and of a short search from nothing.
fn resolved(new: &Problem) -> (f64, f64) {
    let old = problem();
    let plan = solve(&old, &moves(2_000_000), &FrozenClock).unwrap();
    let warm_start = Some(plan.carried_over(&old, new));
    let warm = solve(new, &Options { warm_start, ..moves(FEW) }, &FrozenClock).unwrap();
    let short = solve(new, &moves(FEW), &FrozenClock).unwrap();
    let long = solve(new, &moves(2_000_000), &FrozenClock).unwrap();
    (warm.makespan_s / long.makespan_s, short.makespan_s / long.makespan_s)
}

#[test]
fn after_a_task_has_ended() {
    let mut new = problem();
    new.tasks.remove(17);
    let (warm, short) = resolved(&new);
    assert!(warm < 1.005 && short > 1.02, "from the plan {warm}, from nothing {short}");
}

#[test]
fn after_a_node_has_gone() {
    let mut new = problem();
    new.cluster.nodes.remove(3);
    let (warm, short) = resolved(&new);
    assert!(warm < 1.025 && warm <= short, "from the plan {warm}, from nothing {short}");
}
