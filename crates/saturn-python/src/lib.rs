//! `saturn._core`: the Rust side of the Python package. Glue only: plain data (JSON) in and out, long
//! calls release the GIL and honour Ctrl-C, and one place maps errors.

mod errors;
mod watch;

use pyo3::prelude::*;
use pyo3::types::PyModule;
use saturn_runtime::{RunRequest, Stopwatch};
use saturn_solver::{Options, SolveError};
use saturn_view::Console;

use crate::errors::to_python;
use crate::watch::{CtrlC, python_sink};

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
    let ctrl_c = CtrlC::default();
    let outcome = py
        .detach(|| {
            let mut is_interrupted = || ctrl_c.take();
            saturn_runtime::start(
                request,
                saturn_runtime::Watcher { console, is_interrupted: &mut is_interrupted },
            )
        })
        .map_err(|error| to_python(py, &error))?;
    Ok(outcome.report.to_json())
}

/// Solves a planning problem given as JSON and returns the plan as JSON.
#[pyfunction]
#[pyo3(signature = (problem, *, time_limit_s, objective, solver, seed))]
fn plan(
    py: Python<'_>,
    problem: &str,
    time_limit_s: f64,
    objective: &str,
    solver: &str,
    seed: u64,
) -> PyResult<String> {
    let options = parse_options(objective, solver, time_limit_s, seed)
        .map_err(|error| to_python(py, &error))?;
    let ctrl_c = CtrlC::default();
    let is_interrupted = || ctrl_c.peek();
    let stopwatch = Stopwatch::start(&is_interrupted);
    let answer = py.detach(|| saturn_runtime::solve_file(problem, &options, &stopwatch));
    ctrl_c.raise_if_pressed()?;
    let answer = answer.map_err(|error| to_python(py, &error))?;
    Ok(answer.plan.to_json(&answer.problem))
}

fn parse_options(
    objective: &str,
    solver: &str,
    time_limit_s: f64,
    seed: u64,
) -> Result<Options, SolveError> {
    let (objective, backend) = (objective.parse()?, solver.parse()?);
    Ok(Options { objective, backend, time_limit_s, seed, ..Options::default() })
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(run, module)?)?;
    module.add_function(wrap_pyfunction!(plan, module)?)
}
