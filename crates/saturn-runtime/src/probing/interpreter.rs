//! Runs a module, or code, in the user's Python.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::launching::parent::set_up_python;
use crate::system::clock::{deadline, is_past, pause};

/// What a module or code wrote, and how it ended.
#[derive(Debug)]
pub struct Said {
    /// `None` if it had to be killed.
    pub status: Option<ExitStatus>,
    /// Its output.
    pub output: String,
    /// Its error output.
    pub errors: String,
}

/// Runs `python -m MODULE ARGUMENTS` as workers are run, for at most `patience`. An error says why
/// the interpreter can't be started.
pub fn run_module(
    python: &Path,
    module: &str,
    arguments: &[&str],
    patience: Duration,
) -> io::Result<Said> {
    let mut command = Command::new(python);
    command.args(["-m", module]).args(arguments);
    run(command, patience)
}

/// Runs code in the same way. It finds modules in `python_path` first.
pub(crate) fn run_code(
    python: &Path,
    code: &str,
    python_path: &[String],
    patience: Duration,
) -> io::Result<Said> {
    let mut command = Command::new(python);
    command.args(["-c", code]).env("PYTHONPATH", python_path.join(":"));
    run(command, patience)
}

fn run(mut command: Command, patience: Duration) -> io::Result<Said> {
    let (mut output, mut errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
    set_up_python(&mut command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(errors.try_clone()?)
        .spawn()?;
    let until = deadline(patience);
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if is_past(until) => {
                child.kill()?;
                child.wait()?;
                break None;
            }
            None => pause(Duration::from_millis(10)),
        }
    };
    Ok(Said { status, output: text_of(&mut output)?, errors: text_of(&mut errors)? })
}

fn text_of(file: &mut File) -> io::Result<String> {
    let mut text = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
