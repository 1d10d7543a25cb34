//! `saturn plan`.

use std::io::Read;

use saturn_core::PlanStatus;
use saturn_runtime::{Stopwatch, solve_file};
use saturn_solver::Options;
use saturn_view::{Paint, plan_text};

use crate::args::PlanArgs;
use crate::exit::{Exit, fail};

/// Width of text that goes to a pipe, and the least that a plan is drawn in.
const TEXT_WIDTH: usize = 100;

pub(crate) fn run(args: &PlanArgs) -> Exit {
    let text = match read(args) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("failed to read `{}`: {error}", args.file.display());
            return fail(Exit::BadInput, message);
        }
    };
    let options = Options {
        backend: args.solver,
        objective: args.objective,
        time_limit_s: args.time_limit,
        seed: args.seed,
        ..Options::default()
    };
    let solved = solve_file(&text, &options, &Stopwatch::start(&|| false));
    let solved = match solved {
        Ok(solved) => solved,
        Err(error) => {
            let exit = if error.is_bad_input() { Exit::BadInput } else { Exit::Machine };
            let error = saturn_runtime::with_causes(&error);
            return fail(exit, format!("{}: {error}", args.file.display()));
        }
    };
    if args.json {
        println!("{}", solved.plan.to_json(&solved.problem));
    } else {
        let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        let paint = Paint::from_env(is_terminal, |name| std::env::var(name).ok());
        let text = plan_text(
            &solved.problem,
            &solved.plan,
            solved.current_practice_s,
            TEXT_WIDTH,
            paint,
        );
        println!("{text}");
    }
    match solved.plan.status {
        PlanStatus::Optimal | PlanStatus::Feasible => Exit::Ok,
        PlanStatus::Infeasible => {
            for (task, reason) in solved.problem.unplaceable() {
                eprintln!("error: task `{}`: {reason}", solved.problem.tasks[task].name);
            }
            Exit::Infeasible
        }
        PlanStatus::TimedOut => Exit::TimedOut,
    }
}

fn read(args: &PlanArgs) -> std::io::Result<String> {
    if args.file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(&args.file)
}
