//! Sending a command to a run in progress, and telling the person the result.

use std::path::Path;

use saturn_core::names::escape_terminal;
use saturn_engine::{Command, RefusalCode};
use saturn_runtime::control::{ControlError, Request, ask};
use saturn_runtime::{outlived, stop_outlived};
use serde_json::json;

use crate::exit::{Exit, fail, print_json};
use crate::find::{self, Found};

/// A command, and the words for the person when it is done.
pub(crate) struct Instruction {
    pub(crate) command: Command,
    /// The effect of the command.
    pub(crate) done: String,
    /// What to do next: the exact command.
    pub(crate) next: String,
}

/// Hands a command to the process that drives a run, and reports the result. With `json` the
/// answer is printed as data.
pub(crate) fn tell(
    named: &Path,
    json: bool,
    instruction: impl FnOnce(&Found) -> Instruction,
) -> Exit {
    let run = match find::run(named) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let Instruction { command, done, next } = instruction(&run);
    let stops = if let Command::Stop { at_once } = command { Some(at_once) } else { None };
    let outcome = match ask(&run.path, &Request::Command(command)) {
        Ok(reply) if reply.ok => Ok(()),
        Ok(reply) => Err(Refused {
            exit: Exit::BadInput,
            code: reply.code,
            error: reply.error.unwrap_or_else(|| "refused".to_owned()),
        }),
        Err(ControlError::NotDriven { .. })
            if stops.is_some_and(|at_once| stop_outlived(&run.path, at_once)) =>
        {
            Ok(())
        }
        Err(error @ ControlError::NotDriven { .. }) => {
            let hint = match outlived(&run.path) {
                Some(_) => {
                    format!("its tasks train on; to take it up: saturn resume {}", run.shown)
                }
                None => format!("where the run stands: saturn status {}", run.shown),
            };
            Err(Refused { exit: Exit::BadInput, code: None, error: format!("{error}; {hint}") })
        }
        Err(error @ ControlError::NoAnswer { .. }) => Err(Refused::by_machine(&error)),
    };
    answer(&run, json, outcome, &format!("{done}; {next}"))
}

/// Why a run did not do what it was told.
pub(crate) struct Refused {
    exit: Exit,
    code: Option<RefusalCode>,
    error: String,
}

impl Refused {
    /// The machine failed.
    pub(crate) fn by_machine(error: &dyn std::error::Error) -> Self {
        Self { exit: Exit::Machine, code: None, error: saturn_store::with_causes(error) }
    }
}

/// Reports what came of a command; with `json` as data.
pub(crate) fn answer(run: &Found, json: bool, outcome: Result<(), Refused>, done: &str) -> Exit {
    if json {
        let refused = outcome.as_ref().err();
        print_json(&json!({
            "version": 1,
            "run": run.path.to_string_lossy(),
            "ok": refused.is_none(),
            "code": refused.and_then(|refused| refused.code),
            "error": refused.map(|refused| &refused.error),
        }));
    }
    if let Err(refused) = outcome {
        return fail(refused.exit, escape_terminal(&refused.error));
    }
    if !json {
        eprintln!("{}", escape_terminal(done));
    }
    Exit::Ok
}
