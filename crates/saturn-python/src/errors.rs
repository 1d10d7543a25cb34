//! The one place where Rust errors become Python exceptions.

use std::error::Error;

use pyo3::prelude::*;
use saturn_core::ProblemError;
use saturn_runtime::RuntimeError;

/// Maps an error to an exception of `saturn.errors`, with the causes in its message.
pub(crate) fn to_python(py: Python<'_>, error: &(dyn Error + 'static)) -> PyErr {
    let of_run = error.downcast_ref::<RuntimeError>();
    if matches!(of_run, Some(RuntimeError::PoolNotDriven { .. })) {
        return exception(py, "RunOver", &saturn_store::with_causes(error));
    }
    let is_bad_input = of_run.is_some_and(RuntimeError::is_bad_input) || error.is::<ProblemError>();
    let message = saturn_store::with_causes(error);
    if is_bad_input { invalid_input(py, &message) } else { run_failed(py, &message) }
}

/// An exception for input that can't be used.
pub(crate) fn invalid_input(py: Python<'_>, message: &str) -> PyErr {
    exception(py, "InvalidInput", message)
}

/// An exception for a failure of the machine.
pub(crate) fn run_failed(py: Python<'_>, message: &str) -> PyErr {
    exception(py, "RunFailed", message)
}

fn exception(py: Python<'_>, name: &str, message: &str) -> PyErr {
    let made = py
        .import("saturn.errors")
        .and_then(|errors| errors.getattr(name))
        .and_then(|class| class.call1((message,)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
