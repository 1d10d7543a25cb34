//! One file a command.

pub(crate) mod cancel;
pub(crate) mod close;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod estimate;
pub(crate) mod explain;
pub(crate) mod join;
pub(crate) mod logs;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod priority;
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod submit;
pub(crate) mod sweep;
pub(crate) mod take_back;
pub(crate) mod trace;
pub(crate) mod unpause;
pub(crate) mod web;
pub(crate) mod whatif;

use saturn_runtime::RuntimeError;

use crate::exit::{Exit, fail};

/// Reports a run's failure, and returns the exit code.
pub(crate) fn run_failed(error: &RuntimeError) -> Exit {
    let exit = if error.is_bad_input() { Exit::BadInput } else { Exit::Machine };
    fail(exit, saturn_store::with_causes(error))
}
