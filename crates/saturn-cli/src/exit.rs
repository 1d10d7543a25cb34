//! Exit codes: documented in `docs/reference.md`, tested one by one.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// Why the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All went well.
    Ok = 0,
    /// The run ended, but a task of it failed.
    TaskFailed = 1,
    /// The user's input is wrong; nothing was written.
    BadInput = 2,
    /// No plan exists.
    Infeasible = 3,
    /// No plan was found, and it is not proven that there is none.
    TimedOut = 4,
    /// The machine failed: disk, journal, interpreter.
    Machine = 5,
    /// Stopped by Ctrl-C, SIGTERM, SIGHUP or `saturn stop`.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Prints data on standard output. If a reader has closed it (`| head`), the reader has enough, and
/// the program ends.
pub(crate) fn print_data(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let printed = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    if printed.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe) {
        std::process::exit(Exit::Ok as i32);
    }
}

/// Prints a JSON value on a line of its own.
pub(crate) fn print_json(value: &serde_json::Value) {
    print_data(&format!("{value}\n"));
}

/// Reports an error on standard error.
pub(crate) fn fail(exit: Exit, message: impl fmt::Display) -> Exit {
    eprintln!("error: {message}");
    exit
}
