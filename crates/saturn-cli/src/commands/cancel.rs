//! `saturn cancel`: of a task, or of a sweep of the pool that a stopper or a search steers.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;

use saturn_core::names::escape_terminal;
use saturn_engine::Command;
use serde_json::json;

use super::resume::STEERED;
use crate::args::TaskArgs;
use crate::exit::{Exit, fail, print_json};
use crate::find::{self, Found};
use crate::tell::{Told, tell};

/// Files in the directory of a steered sweep: of a sweep that was submitted, and of a sweep that
/// its own process is to cancel.
const ABOUT: &str = "about.json";
const CANCEL: &str = "cancel";

pub(crate) fn run(args: &TaskArgs) -> Exit {
    match find::run(&args.run) {
        Ok(run) if is_sweep(&run, &args.task) => cancel_sweep(&run, args),
        Ok(_) => tell(&args.run, args.json, |run| Told {
            command: Command::Cancel { task: args.task.clone() },
            done: format!("`{}` is cancelled, and what comes after it", args.task),
            next: format!("the other tasks: saturn status {run}"),
        }),
        Err(exit) => exit,
    }
}

/// Whether the run has a steered sweep of this name, and no task.
fn is_sweep(run: &Found, named: &str) -> bool {
    Path::new(named).file_name() == Some(OsStr::new(named))
        && run.path.join(STEERED).join(named).join(ABOUT).is_file()
        && !run.path.join("tasks").join(named).is_dir()
}

/// Has the process of the sweep cancel its tasks: only that process knows which tasks are its own,
/// and would suggest more.
fn cancel_sweep(run: &Found, args: &TaskArgs) -> Exit {
    let sign = run.path.join(STEERED).join(&args.task).join(CANCEL);
    let error = File::create(&sign).err().map(|error| format!("{}: {error}", sign.display()));
    if args.json {
        let (path, is_ok) = (run.path.to_string_lossy(), error.is_none());
        print_json(&json!({"version": 1, "run": path, "ok": is_ok, "code": null, "error": error}));
    }
    if let Some(error) = error {
        return fail(Exit::Machine, escape_terminal(&error));
    }
    if !args.json {
        eprintln!(
            "the sweep `{}` is cancelled, with all of its tasks that have not ended; the other \
             tasks: saturn status {}",
            escape_terminal(&args.task),
            run.shown
        );
    }
    Exit::Ok
}
