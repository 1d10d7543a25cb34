//! `saturn simulate --replay`: recorded runs, once more in the simulator.

use std::path::Path;

use saturn_core::names::escape_terminal;
use saturn_sim::replay::{ReplayError, Replayed, Spent, replay};
use saturn_store::with_causes;
use saturn_view::replayed::{ReplayedRun, ReplayedRuns, Times};
use saturn_view::replayed_text;

use crate::args::SimulateArgs;
use crate::commands::run_failed;
use crate::exit::{Exit, fail, print_data};
use crate::interrupt::Interrupt;
use crate::screen::Screen;

pub(super) fn run(args: &SimulateArgs) -> Exit {
    let interrupt = Interrupt::catch();
    let mut runs = Vec::new();
    for path in &args.replay {
        match one(path, &|| interrupt.came()) {
            Ok(Some(run)) => runs.push(run),
            Ok(None) => break,
            Err(exit) => return exit,
        }
    }
    let is_partial = runs.len() < args.replay.len();
    let replayed = ReplayedRuns::of(runs, is_partial);
    if args.json {
        print_data(&replayed.to_json());
    } else {
        let screen = Screen::stdout();
        print_data(&(replayed_text(&replayed, screen.size().0, screen.paint) + "\n"));
    }
    if is_partial { Exit::Interrupted } else { Exit::Ok }
}

/// One run; `None` where it was interrupted.
fn one(path: &Path, is_stopped: &dyn Fn() -> bool) -> Result<Option<ReplayedRun>, Exit> {
    let recorded = saturn_runtime::recorded(path).map_err(|error| {
        // A recording is a file that a user gives; nothing is lost if it is damaged.
        let is_given = path.is_file();
        if is_given { fail(Exit::BadInput, with_causes(&error)) } else { run_failed(&error) }
    })?;
    match replay(&recorded.records, is_stopped) {
        Ok(replayed) => Ok(Some(shown(recorded.name, replayed))),
        Err(ReplayError::Interrupted) => Ok(None),
        Err(error) => {
            let exit = match error {
                ReplayError::Stuck { .. } => Exit::Machine,
                _ => Exit::BadInput,
            };
            Err(fail(exit, escape_terminal(&format!("`{}`: {error}", path.display()))))
        }
    }
}

fn shown(run: String, replayed: Replayed) -> ReplayedRun {
    let Replayed { tasks, devices, realised, simulated, num_guessed, .. } = replayed;
    ReplayedRun::of(run, tasks.len(), devices, times(realised), times(simulated), num_guessed)
}

fn times(spent: Spent) -> Times {
    let Spent {
        trials_s,
        starting_s,
        steps_s,
        evaluations_s,
        checkpoints_s,
        ends_s,
        idle_s,
        absent_s,
        makespan_s,
        num_trials,
        num_launches,
    } = spent;
    Times {
        makespan_s,
        trials_s,
        starting_s,
        steps_s,
        evaluations_s,
        checkpoints_s,
        ends_s,
        idle_s,
        absent_s,
        trials: num_trials,
        launches: num_launches,
    }
}
