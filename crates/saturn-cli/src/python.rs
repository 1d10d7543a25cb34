//! What is said in Python is done there: scripts and sweeps become tasks by the package `saturn`.
//!
//! The interpreter is the one that the program was installed beside, else the first `python3` of the
//! path, as in an environment that is activated.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::exit::{Exit, fail};

/// The module of the package that takes over.
const MODULE: &str = "saturn.verbs";

/// Becomes Python, which does what a verb asks for; comes back only where there is none.
pub(crate) fn become_verb(verb: &str, arguments: &Value) -> Exit {
    let error = command(verb, arguments).exec();
    fail(Exit::Machine, format!("failed to start `{}`: {error}", interpreter().display()))
}

/// What Python prints for a verb. Where it fails it has said why, and its exit code comes back.
pub(crate) fn output_of(verb: &str, arguments: &Value) -> Result<String, Exit> {
    let output = command(verb, arguments).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| {
        fail(Exit::Machine, format!("failed to start `{}`: {error}", interpreter().display()))
    })?;
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Some(1) => Err(Exit::TaskFailed),
        Some(2) => Err(Exit::BadInput),
        Some(130) => Err(Exit::Interrupted),
        _ => Err(Exit::Machine),
    }
}

fn command(verb: &str, arguments: &Value) -> Command {
    let mut command = Command::new(interpreter());
    command.args(["-m", MODULE, verb, &arguments.to_string()]);
    command
}

fn interpreter() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("python3"));
    beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from("python3"))
}
