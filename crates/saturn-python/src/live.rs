//! Runs that another process drives or that have ended: commands to them, and questions about them.

use std::path::Path;

use pyo3::prelude::*;
use saturn_runtime::RuntimeError;
use saturn_runtime::control::{self, ControlError, Request};
use saturn_view::{Paint, Preview, Status, units};

use crate::errors::{invalid_input, run_failed, to_python};

/// Whether a process drives the run and takes commands.
#[pyfunction]
pub(crate) fn is_driven(py: Python<'_>, run_dir: &str) -> bool {
    py.detach(|| control::driver_of(Path::new(run_dir)).is_some())
}

/// Sends a line to the process that drives the run. Returns its reply, or `None` if no process
/// drives the run.
#[pyfunction]
pub(crate) fn ask(py: Python<'_>, run_dir: &str, line: &str) -> PyResult<Option<String>> {
    let request = Request::from_line(line).map_err(|refusal| invalid_input(py, &refusal.reason))?;
    match py.detach(|| control::ask(Path::new(run_dir), &request)) {
        Ok(reply) => to_json(py, &reply).map(Some),
        Err(ControlError::NotDriven { .. }) => Ok(None),
        Err(error @ ControlError::NoAnswer { .. }) => Err(to_python(py, &error)),
    }
}

/// The status of the run and its tasks, as JSON.
#[pyfunction]
pub(crate) fn status(py: Python<'_>, run_dir: &str) -> PyResult<String> {
    let status = py.detach(|| saturn_runtime::status(Path::new(run_dir)));
    to_json(py, &known(py, status)?)
}

/// The JSON of `status` as a table for people.
#[pyfunction]
pub(crate) fn status_text(py: Python<'_>, status: &str, width: usize) -> PyResult<String> {
    let status: Status =
        serde_json::from_str(status).map_err(|error| invalid_input(py, &error.to_string()))?;
    Ok(saturn_view::status_text(&status, width, Paint::PLAIN))
}

/// The JSON of a preview as lines for people.
#[pyfunction]
pub(crate) fn preview_text(py: Python<'_>, preview: &str) -> PyResult<String> {
    let preview: Preview =
        serde_json::from_str(preview).map_err(|error| invalid_input(py, &error.to_string()))?;
    Ok(preview.text())
}

/// Seconds in the units that people read, such as `2 min 31 s`.
#[pyfunction]
pub(crate) fn duration(seconds: f64) -> String {
    units::duration(seconds)
}

/// Why a task, or the run, is where it is, as JSON.
#[pyfunction]
#[pyo3(signature = (run_dir, task=None))]
pub(crate) fn explain(py: Python<'_>, run_dir: &str, task: Option<&str>) -> PyResult<String> {
    let explanation = py.detach(|| saturn_runtime::explain(Path::new(run_dir), task));
    to_json(py, &known(py, explanation)?)
}

/// The decisions of the run's stopper so far, in order, as JSON.
#[pyfunction]
pub(crate) fn judged(py: Python<'_>, run_dir: &str) -> PyResult<String> {
    let judged = py.detach(|| saturn_runtime::judged(Path::new(run_dir)));
    to_json(py, &known(py, judged)?)
}

/// Writes a run's report again from its journal. Returns the report as JSON.
#[pyfunction]
pub(crate) fn report(py: Python<'_>, run_dir: &str) -> PyResult<String> {
    let report = py.detach(|| saturn_runtime::report(Path::new(run_dir)));
    // The caller asked for the report itself, so files that can't be written don't matter.
    Ok(known(py, report)?.report.to_json())
}

fn known<T>(py: Python<'_>, found: Result<T, RuntimeError>) -> PyResult<T> {
    found.map_err(|error| to_python(py, &error))
}

pub(crate) fn to_json(py: Python<'_>, value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| run_failed(py, &error.to_string()))
}
