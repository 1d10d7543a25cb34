//! `saturn._core`: the Rust side of the Python package. This crate is only glue: plain data (JSON)
//! goes in and out, long calls release the GIL, and one module maps errors. The exception is
//! `namespaces`, which looks at objects of Python as Python itself can't.

mod cluster;
mod errors;
mod live;
mod namespaces;
mod watch;

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyModule;
use saturn_core::Profile;
use saturn_runtime::{DeviceMemory, ResumeOptions, Rules, RunRequest, Watcher};
use saturn_view::Console;

use crate::cluster::{PyAgent, PyExchange};
use crate::errors::to_python;
use crate::namespaces::Namespaces;
use crate::watch::{Interrupts, python_sink};

/// Drives a run to its end and returns its report as JSON.
///
/// `request` is a run request of version 1. `write` takes lines of text for the person who watches;
/// with `None` nothing is shown. `is_terminal` says that standard error is a terminal. `interrupts`
/// stops the run. `cluster` is the exchange with the agents whose devices the run uses.
#[pyfunction]
#[pyo3(signature = (request, write=None, *, is_terminal=false, interrupts, cluster=None))]
fn run(
    py: Python<'_>,
    request: &str,
    write: Option<Py<PyAny>>,
    is_terminal: bool,
    interrupts: &Bound<'_, Interrupts>,
    cluster: Option<&Bound<'_, PyExchange>>,
) -> PyResult<String> {
    let mut request = RunRequest::from_json(request).map_err(|error| to_python(py, &error))?;
    request.cluster = cluster.map(|cluster| cluster.get().inner());
    let (console, interrupts) = (console(write, is_terminal), interrupts.get().clone());
    let outcome = py
        .detach(|| {
            let mut is_interrupted = || interrupts.take();
            saturn_runtime::start(request, Watcher::new(console, &mut is_interrupted))
        })
        .map_err(|error| to_python(py, &error))?;
    Ok(outcome.report.to_json())
}

/// Resumes a run that was stopped or whose driver died, drives it to its end, and returns its
/// report as JSON.
///
/// `device_memory_bytes` is how much each device may hold from now on: `None` for as much as
/// before, 0 for all of its memory. `devices` is how many devices of this machine the run has from
/// here on, `None` for as many as before. `wait` says whether to wait for devices that other runs
/// hold. `share` is the directory at which other people of this machine reach the run from here on,
/// `shares` how large their shares are, and `quotas` how many devices their tasks may hold at once, by
/// login name; `None`: as before.
/// `prepared_s` is the seconds that the caller has already spent on this resume. The other
/// arguments are those of `run`.
#[pyfunction]
#[pyo3(signature = (
    run_dir, write=None, *, is_terminal=false, interrupts,
    cluster=None, device_memory_bytes=None, devices=None, allow_other_hardware=false, wait=false,
    share=None, shares=None, quotas=None, prepared_s=0.0,
))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword of Python")]
fn resume(
    py: Python<'_>,
    run_dir: &str,
    write: Option<Py<PyAny>>,
    is_terminal: bool,
    interrupts: &Bound<'_, Interrupts>,
    cluster: Option<&Bound<'_, PyExchange>>,
    device_memory_bytes: Option<u64>,
    devices: Option<u32>,
    allow_other_hardware: bool,
    wait: bool,
    share: Option<std::path::PathBuf>,
    shares: Option<std::collections::BTreeMap<String, f64>>,
    quotas: Option<std::collections::BTreeMap<String, u32>>,
    prepared_s: f64,
) -> PyResult<String> {
    let device_memory = match device_memory_bytes {
        None => DeviceMemory::AsBefore,
        Some(0) => DeviceMemory::Unlimited,
        Some(bytes) => DeviceMemory::Bytes(bytes),
    };
    let cluster = cluster.map(|cluster| cluster.get().inner());
    let options = ResumeOptions {
        device_memory,
        devices,
        allow_other_hardware,
        cluster,
        wait,
        share,
        rules: Rules { shares, quotas },
        prepared_s,
        ..ResumeOptions::default()
    };
    let (console, interrupts) = (console(write, is_terminal), interrupts.get().clone());
    let outcome = py
        .detach(|| {
            let mut is_interrupted = || interrupts.take();
            let watcher = Watcher::new(console, &mut is_interrupted);
            saturn_runtime::resume(Path::new(run_dir), options, watcher)
        })
        .map_err(|error| to_python(py, &error))?;
    Ok(outcome.report.to_json())
}

/// A console for the person who watches; it shows nothing if `write` is `None`.
fn console(write: Option<Py<PyAny>>, is_terminal: bool) -> Console {
    match write {
        Some(write) => {
            let sink = python_sink(write);
            Console::new(is_terminal, Some(sink), |name| std::env::var(name).ok())
        }
        None => Console::new(false, Some(Box::new(|_| {})), |_| None),
    }
}

/// The planning problem of a request's tasks before they are run, as JSON, with the tasks of which
/// nothing is known.
#[pyfunction]
fn outlook(py: Python<'_>, request: &str) -> PyResult<String> {
    let request = RunRequest::from_json(request).map_err(|error| to_python(py, &error))?;
    let found = py.detach(|| saturn_runtime::outlook(request));
    live::to_json(py, &found.map_err(|error| to_python(py, &error))?)
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
    module.add_class::<Interrupts>()?;
    module.add_class::<PyAgent>()?;
    module.add_class::<PyExchange>()?;
    module.add_class::<Namespaces>()?;
    module.add_function(wrap_pyfunction!(run, module)?)?;
    module.add_function(wrap_pyfunction!(resume, module)?)?;
    module.add_function(wrap_pyfunction!(cluster::run_agent, module)?)?;
    module.add_function(wrap_pyfunction!(cluster::run_guest_agent, module)?)?;
    module.add_function(wrap_pyfunction!(outlook, module)?)?;
    module.add_function(wrap_pyfunction!(read_profile, module)?)?;
    module.add_function(wrap_pyfunction!(live::is_driven, module)?)?;
    module.add_function(wrap_pyfunction!(live::ask, module)?)?;
    module.add_function(wrap_pyfunction!(live::status, module)?)?;
    module.add_function(wrap_pyfunction!(live::status_text, module)?)?;
    module.add_function(wrap_pyfunction!(live::preview_text, module)?)?;
    module.add_function(wrap_pyfunction!(live::duration, module)?)?;
    module.add_function(wrap_pyfunction!(live::explain, module)?)?;
    module.add_function(wrap_pyfunction!(live::judged, module)?)?;
    module.add_function(wrap_pyfunction!(live::report, module)?)
}
