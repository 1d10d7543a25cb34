//! Sending a command to a run in progress, and telling the person the result.

use std::path::Path;

use saturn_core::names::escape_terminal;
use saturn_engine::Command;
use saturn_runtime::control::{ControlError, Request, ask};
use serde_json::json;

use crate::exit::{Exit, fail, print_json};
use crate::find;

/// A command, and the words for the person when it is done.
pub(crate) struct Told {
    pub(crate) command: Command,
    /// The effect of the command.
    pub(crate) done: String,
    /// What to do next: the exact command.
    pub(crate) next: String,
}

/// Hands a command to the process that drives a run, and reports the result. `what` gets the run's
/// name as a shell reads it back. With `json` the answer is printed as data.
pub(crate) fn tell(named: &Path, json: bool, what: impl FnOnce(&str) -> Told) -> Exit {
    let run = match find::run(named) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let Told { command, done, next } = what(&run.shown);
    let mut code = None;
    let (exit, error) = match ask(&run.path, &Request::Command(command)) {
        Ok(reply) if reply.ok => (Exit::Ok, None),
        Ok(reply) => {
            code = reply.code;
            (Exit::BadInput, Some(reply.error.unwrap_or_else(|| "refused".to_owned())))
        }
        Err(error @ ControlError::NotDriven { .. }) => {
            let hint = format!("where the run stands: saturn status {}", run.shown);
            (Exit::BadInput, Some(format!("{error}; {hint}")))
        }
        Err(error @ ControlError::NoAnswer { .. }) => {
            (Exit::Machine, Some(saturn_store::with_causes(&error)))
        }
    };
    if json {
        let run = run.path.to_string_lossy();
        let is_ok = error.is_none();
        let answer = json!({"version": 1, "run": run, "ok": is_ok, "code": code, "error": error});
        print_json(&answer);
    }
    match error {
        Some(error) => return fail(exit, escape_terminal(&error)),
        None if json => {}
        None => eprintln!("{}; {}", escape_terminal(&done), escape_terminal(&next)),
    }
    exit
}
