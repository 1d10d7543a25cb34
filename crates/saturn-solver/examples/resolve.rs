//! Re-solves problem files from the plan at hand, once without the task that ends first and once
//! without the last node, and prints one line of JSON for each: what `benches/solver` runs.
//!
//! usage: resolve [--time-limit SECONDS] FILE…
//!
//! Beside each stands a solve of the same problem from nothing, in a second.

#[path = "clock/mod.rs"]
mod clock;

use std::error::Error;

use saturn_core::{Plan, Problem};
use saturn_solver::{Options, solve};

use clock::BenchClock;

fn main() -> Result<(), Box<dyn Error>> {
    let mut limit_s = 0.045;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--time-limit" {
            limit_s = arguments.next().ok_or("`--time-limit` takes a value")?.parse()?;
            continue;
        }
        let old = Problem::from_json(&std::fs::read_to_string(&argument)?)?;
        let plan = planned(&old, 1.0, None)?;
        let ends = plan.assignments.iter().map(|one| (one.end_s, one.task));
        let first = ends.min_by(|left, right| left.0.total_cmp(&right.0)).ok_or("no plan")?.1;
        let mut without_task = old.clone();
        without_task.tasks.remove(first);
        let mut without_node = old.clone();
        without_node.cluster.nodes.pop();
        for (change, new) in [("a task ended", without_task), ("a node went", without_node)] {
            let warm = planned(&new, limit_s, Some(plan.carried_over(&old, &new)))?;
            let cold = planned(&new, 1.0, None)?;
            println!(
                "{}",
                serde_json::json!({
                    "file": argument,
                    "change": change,
                    "warm_s": warm.solve_s,
                    "warm_makespan_s": warm.makespan_s,
                    "cold_makespan_s": cold.makespan_s,
                    "lower_bound_s": cold.lower_bound_s.max(warm.lower_bound_s),
                })
            );
        }
    }
    Ok(())
}

fn planned(
    problem: &Problem,
    time_limit_s: f64,
    warm_start: Option<Plan>,
) -> Result<Plan, Box<dyn Error>> {
    let options = Options { time_limit_s, warm_start, ..Options::default() };
    Ok(solve(problem, &options, &BenchClock::new(false, options.threads))?)
}
