//! One file a command.

pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod resume;

use saturn_runtime::RuntimeError;

use crate::exit::{Exit, fail};

/// Says what went wrong with a run, and how to exit.
fn run_failed(error: &RuntimeError) -> Exit {
    let exit = if error.is_bad_input() { Exit::BadInput } else { Exit::Machine };
    fail(exit, saturn_runtime::with_causes(error))
}
