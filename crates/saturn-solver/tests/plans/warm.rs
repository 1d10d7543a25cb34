//! Re-solving from the plan at hand after a task has ended or a node has gone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "the time of a re-solve is what is tested")]

use std::time::Instant;

use saturn_core::Problem;
use saturn_solver::{Backend, Clock, FrozenClock, Options, solve};

struct WallClock(Instant);

impl Clock for WallClock {
    fn elapsed_s(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

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

/// Solves `new` from a plan of `problem()` and checks speed and quality.
fn resolve(new: &Problem) {
    let old = problem();
    let plan = solve(&old, &moves(2_000_000), &FrozenClock).unwrap();
    let warm = Options {
        time_limit_s: 0.045,
        warm_start: Some(plan.carried_over(&old, new)),
        ..Options::default()
    };
    let clock = WallClock(Instant::now());
    let warm = solve(new, &warm, &clock).unwrap();
    // Far more than its limit: a busy machine may give the thread nothing for that long.
    assert!(clock.elapsed_s() < 2.0, "took {} s", clock.elapsed_s());
    let cold = solve(new, &moves(2_000_000), &FrozenClock).unwrap();
    println!("warm {} in {} s, cold {}", warm.makespan_s, warm.solve_s, cold.makespan_s);
    assert!(warm.makespan_s <= cold.makespan_s * 1.02);
}

#[test]
fn after_a_task_has_ended() {
    let mut new = problem();
    new.tasks.remove(17);
    resolve(&new);
}

#[test]
fn after_a_node_has_gone() {
    let mut new = problem();
    new.cluster.nodes.remove(3);
    resolve(&new);
}
