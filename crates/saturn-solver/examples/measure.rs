//! Solves problem files and prints one line of JSON for each: what `benches/solver` runs.
//!
//! usage: measure [--solver S] [--objective O] [--time-limit SECONDS] [--threads N] [--seed N]
//!        [--max-moves N] [--max-switches N] [--tail TIMES] [--draws N] [--write FILE] [--cpu] FILE…
//!
//! `--write` names a file for the plan, in the format of `saturn plan --json`.
//! `--cpu` counts what the process uses of its cores, over its threads, in place of time on the wall:
//! for busy machines.

#[path = "clock/mod.rs"]
mod clock;

use std::error::Error;

use saturn_core::Problem;
use saturn_solver::{Options, solve};

use clock::BenchClock;

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options::default();
    let mut is_cpu = false;
    let mut written: Option<String> = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("`{argument}` takes a value"));
        match argument.as_str() {
            "--solver" => options.backend = value()?.parse()?,
            "--objective" => options.objective = value()?.parse()?,
            "--time-limit" => options.time_limit_s = value()?.parse()?,
            "--threads" => options.threads = value()?.parse()?,
            "--max-moves" => options.max_moves = Some(value()?.parse()?),
            "--max-switches" => options.max_switches = value()?.parse()?,
            "--tail" => options.tail = Some(value()?.parse()?),
            "--seed" => options.seed = value()?.parse()?,
            "--draws" => options.draws = value()?.parse()?,
            "--write" => written = Some(value()?),
            "--cpu" => is_cpu = true,
            file => measure(file, &options, is_cpu, written.as_deref())?,
        }
    }
    Ok(())
}

fn measure(
    file: &str,
    options: &Options,
    is_cpu: bool,
    written: Option<&str>,
) -> Result<(), Box<dyn Error>> {
    let problem = Problem::from_json(&std::fs::read_to_string(file)?)?;
    let plan = solve(&problem, options, &BenchClock::new(is_cpu, options.threads))?;
    if let Some(path) = written {
        std::fs::write(path, plan.to_json(&problem))?;
    }
    println!(
        "{}",
        serde_json::json!({
            "file": file,
            "tasks": problem.tasks.len(),
            "gpus": problem.cluster.num_gpus(),
            "status": plan.status,
            "makespan_s": plan.makespan_s,
            "lower_bound_s": plan.lower_bound_s,
            "gap": plan.gap(),
            "switches": plan.assignments.len().saturating_sub(problem.tasks.len()),
            "completion_s": plan.completion_s,
            "completion_bound_s": plan.completion_bound_s,
            "cost": plan.cost,
            "cost_bound": plan.cost_bound,
            "tardiness": plan.tardiness,
            "tardiness_bound": plan.tardiness_bound,
            "robust": plan.robust,
            "solve_s": plan.solve_s,
        })
    );
    Ok(())
}
