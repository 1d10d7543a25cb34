//! `saturn._core`: the Rust side of the Python package. Glue only: plain data (JSON) in and out, long
//! calls release the GIL and honour Ctrl-C, and one place maps errors.

mod errors;
mod watch;

use pyo3::prelude::*;
use pyo3::types::PyModule;
use saturn_core::Profile;
use saturn_engine::RunEnd;
use saturn_runtime::{RunRequest, Watcher};
use saturn_view::Console;

use crate::errors::to_python;
use crate::watch::{python_sink, was_ctrl_c_pressed};

/// Drives a run to its end and returns its report as JSON.
///
/// `request` is version 1 of the run request; `write` takes lines of text for the person watching
/// (`None` shows nothing); `is_terminal` says that standard error is a terminal.
#[pyfunction]
#[pyo3(signature = (request, write=None, *, is_terminal=false))]
fn run(
    py: Python<'_>,
    request: &str,
    write: Option<Py<PyAny>>,
    is_terminal: bool,
) -> PyResult<String> {
    let request = RunRequest::from_json(request).map_err(|error| to_python(py, &error))?;
    let console = match write {
        Some(write) => {
            let sink = python_sink(write);
            Console::new(is_terminal, Some(sink), |name| std::env::var(name).ok())
        }
        None => Console::new(false, Some(Box::new(|_| {})), |_| None),
    };
    let outcome = py
        .detach(|| {
            let watcher = Watcher { console, is_interrupted: &mut was_ctrl_c_pressed };
            saturn_runtime::start(request, watcher)
        })
        .map_err(|error| to_python(py, &error))?;
    if outcome.end == RunEnd::Interrupted {
        // One Ctrl-C more than the run needed must not strike whatever Python does next.
        was_ctrl_c_pressed();
    }
    Ok(outcome.report.to_json())
}

/// Checks the text of a `profile.json` and returns it with all fields spelled out.
#[pyfunction]
fn read_profile(py: Python<'_>, text: &str) -> PyResult<String> {
    let profile = Profile::from_json(text).map_err(|error| to_python(py, &error))?;
    Ok(profile.to_json())
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(run, module)?)?;
    module.add_function(wrap_pyfunction!(read_profile, module)?)
}
