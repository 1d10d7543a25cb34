//! Solves problem files and prints one line of JSON for each: what `benches/solver` runs.
//!
//! usage: measure [--solver S] [--objective O] [--time-limit SECONDS] [--threads N] [--seed N]
//!        [--max-moves N] [--max-switches N] FILE…

#![expect(clippy::disallowed_methods, reason = "measuring takes a clock")]

use std::error::Error;
use std::time::Instant;

use saturn_core::Problem;
use saturn_solver::{Clock, Options, solve};

struct WallClock(Instant);

impl Clock for WallClock {
    fn elapsed_s(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options::default();
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
            "--seed" => options.seed = value()?.parse()?,
            file => measure(file, &options)?,
        }
    }
    Ok(())
}

fn measure(file: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let problem = Problem::from_json(&std::fs::read_to_string(file)?)?;
    let plan = solve(&problem, options, &WallClock(Instant::now()))?;
    let sum_of_ends: f64 = plan.assignments.iter().map(|assignment| assignment.end_s).sum();
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
            "sum_of_ends_s": sum_of_ends,
            "solve_s": plan.solve_s,
        })
    );
    Ok(())
}
