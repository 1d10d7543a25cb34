//! `saturn plan`.

use std::io::Read;

use saturn_core::PlanStatus;
use saturn_runtime::{Stopwatch, solve_file};
use saturn_solver::{Options, why_no_switches};
use saturn_store::io_words;
use saturn_view::{Paint, plan_html, plan_text};
use serde_json::json;

use crate::args::PlanArgs;
use crate::exit::{Exit, fail, print_data};
use crate::interrupt::Interrupt;
use crate::python;
use crate::waiting::with_progress;

/// Width of text that goes to a pipe, and the least that a plan is drawn in.
const TEXT_WIDTH: usize = 100;
/// How often `--robust` draws runtimes.
const DRAWS: usize = 200;
/// The formats that FILE may have.
const EXPECTED: &str =
    "expected the path of a planning problem (JSON) or a sweep (TOML), or `-` for standard input";

pub(crate) fn run(args: &PlanArgs) -> Exit {
    let is_sweep = args.file.extension().is_some_and(|extension| extension == "toml");
    if !is_sweep && (args.trials || args.devices.is_some()) {
        let what = "--trials and --devices are for sweeps (.toml); a problem has its own devices";
        return fail(Exit::BadInput, what);
    }
    let text = match read(args) {
        Ok(_) if is_sweep => {
            let (file, trials, devices) = (&args.file, args.trials, args.devices);
            let asked = json!({"file": file, "trials": trials, "devices": devices});
            match python::output_of("problem", &asked) {
                Ok(text) => text,
                Err(exit) => return exit,
            }
        }
        Ok(text) => text,
        Err(error) => {
            let name = file_name(args);
            let message = format!("failed to read {name}: {}; {EXPECTED}", io_words(&error));
            return fail(Exit::BadInput, message);
        }
    };
    let options = Options {
        backend: args.solver,
        objective: args.objective,
        time_limit_s: args.time_limit,
        seed: args.seed,
        max_switches: args.max_switches,
        tail: args.tail,
        draws: if args.robust { DRAWS } else { 0 },
        ..Options::default()
    };
    let interrupt = Interrupt::catch();
    let solved = with_progress("planning", args.time_limit, || {
        solve_file(&text, &options, &Stopwatch::start(&|| interrupt.came()))
    });
    let solved = match solved {
        Ok(solved) => solved,
        Err(error) => {
            let exit = if error.is_bad_input() { Exit::BadInput } else { Exit::Machine };
            let error = saturn_store::with_causes(&error);
            return fail(exit, format!("{}: {error}", file_name(args)));
        }
    };
    if let Some(path) = &args.html
        && solved.plan.is_usable()
    {
        let name = args.file.file_stem().unwrap_or_default().to_string_lossy();
        let page = plan_html(&solved.problem, &solved.plan, solved.current_practice_s, &name);
        if let Err(error) = std::fs::write(path, page) {
            let error = io_words(&error);
            return fail(Exit::Machine, format!("failed to write `{}`: {error}", path.display()));
        }
    }
    if args.robust && solved.plan.is_usable() && solved.plan.robust.is_none() {
        eprintln!(
            "note: the time limit is too short to draw runtimes for so many tasks; this is the best \
             plan as planned"
        );
    }
    if args.max_switches > 0
        && let Some(why) = why_no_switches(&solved.problem)
    {
        eprintln!("note: no task is switched, since {why}");
    }
    if args.json {
        print_data(&solved.plan.to_json(&solved.problem));
    } else {
        let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
        let paint = Paint::from_env(is_terminal, |name| std::env::var(name).ok());
        let text =
            plan_text(&solved.problem, &solved.plan, solved.current_practice_s, TEXT_WIDTH, paint);
        print_data(&(text + "\n"));
    }
    match solved.plan.status {
        PlanStatus::Optimal | PlanStatus::Feasible => Exit::Ok,
        PlanStatus::Infeasible => {
            if args.json {
                for one in &solved.plan.reasons {
                    let task = one.task.and_then(|task| solved.problem.tasks.get(task));
                    let of = task.map(|task| format!("task `{}`: ", task.name)).unwrap_or_default();
                    eprintln!("error: {of}{}", one.reason);
                }
            }
            Exit::Infeasible
        }
        PlanStatus::TimedOut => Exit::TimedOut,
    }
}

/// The name of the problem in messages.
fn file_name(args: &PlanArgs) -> String {
    if is_stdin(args) { "standard input".to_owned() } else { format!("`{}`", args.file.display()) }
}

fn is_stdin(args: &PlanArgs) -> bool {
    args.file.as_os_str() == "-"
}

fn read(args: &PlanArgs) -> std::io::Result<String> {
    if is_stdin(args) {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(&args.file)
}
