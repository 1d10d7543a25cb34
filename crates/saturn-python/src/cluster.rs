//! A cluster for Python: the exchange between a run and its agents, and an agent itself.
//! `saturn.cluster` carries letters between the two by calls to Ray.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use saturn_runtime::{Agent, AgentSetup, Exchange, GuestAgent, RunAgent, StoreOpener};

use crate::errors::{invalid_input, to_python};

/// Is the agent of a run's ranks until there is nothing left to do. `ready` is called once drivers
/// may connect.
#[pyfunction]
pub(crate) fn run_agent(py: Python<'_>, setup: &str, ready: &Bound<'_, PyAny>) -> PyResult<()> {
    let agent = py.detach(|| RunAgent::start(setup)).map_err(|error| to_python(py, &error))?;
    ready.call0()?;
    py.detach(|| agent.serve());
    Ok(())
}

/// Is this person's agent in another person's pool until it is not wanted. `ready` is called once the
/// pool may connect. Returns false at once if this person has an agent there already.
#[pyfunction]
pub(crate) fn run_guest_agent(
    py: Python<'_>,
    setup: &str,
    ready: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let agent = py.detach(|| GuestAgent::start(setup)).map_err(|error| to_python(py, &error))?;
    let Some(agent) = agent else { return Ok(false) };
    ready.call0()?;
    py.detach(|| agent.serve());
    Ok(true)
}

/// The exchange between a run that this process drives and its agents, which have numbers.
#[pyclass(frozen, name = "Exchange", module = "saturn._core")]
#[derive(Debug, Default)]
pub(crate) struct PyExchange(Exchange);

#[pymethods]
impl PyExchange {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Adds an agent, with a description of its devices.
    fn join(&self, py: Python<'_>, agent: u64, description: &str) -> PyResult<()> {
        py.detach(|| self.0.join(agent, description)).map_err(|error| to_python(py, &error))
    }

    /// Letters of an agent; gives how many of its letters were read so far.
    #[expect(clippy::needless_pass_by_value, reason = "Python's list becomes one")]
    fn deliver(&self, py: Python<'_>, agent: u64, letters: Vec<String>) -> PyResult<u64> {
        py.detach(|| self.0.deliver(agent, &letters)).map_err(|error| to_python(py, &error))
    }

    /// Notes that an agent or its node is lost.
    fn lose(&self, py: Python<'_>, agent: u64, reason: String) {
        py.detach(|| self.0.lose(agent, reason));
    }

    /// Adds a message for the person who watches the run.
    fn note(&self, py: Python<'_>, text: String) {
        py.detach(|| self.0.note(text));
    }

    /// Takes letters to carry, each with the agent that it is for; `None` if the run is over.
    fn orders(&self, py: Python<'_>, at_most_s: f64) -> PyResult<Option<Vec<(u64, String)>>> {
        let at_most = duration(py, at_most_s)?;
        Ok(py.detach(|| self.0.orders(at_most)))
    }

    /// Ends the exchange: the run is over, or never began.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

impl PyExchange {
    pub(crate) fn inner(&self) -> Exchange {
        self.0.clone()
    }
}

/// The agent of the node that this process is on.
#[pyclass(frozen, name = "Agent", module = "saturn._core")]
#[derive(Debug)]
pub(crate) struct PyAgent(Arc<Agent>);

#[pymethods]
impl PyAgent {
    /// Claims the node's devices.
    #[new]
    #[pyo3(signature = (
        name, *, devices, fewer_will_do, python, python_path, cwd, run, interface, open_store, locks_dir=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords, in Python")]
    fn new(
        py: Python<'_>,
        name: String,
        devices: Option<u32>,
        fewer_will_do: bool,
        python: String,
        python_path: Vec<String>,
        cwd: PathBuf,
        run: PathBuf,
        interface: Option<String>,
        open_store: Py<PyAny>,
        locks_dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let stores = store_opener(open_store);
        let setup = AgentSetup {
            name,
            devices,
            fewer_will_do,
            python,
            python_path,
            cwd,
            locks_dir,
            run,
            interface,
            stores,
        };
        let agent = py.detach(|| Agent::claim(setup));
        agent.map(Self).map_err(|error| to_python(py, &error))
    }

    /// The agent's devices, as JSON.
    fn description(&self) -> &str {
        self.0.description()
    }

    /// Obeys letters of the driver.
    #[expect(clippy::needless_pass_by_value, reason = "Python's list becomes one")]
    fn take(&self, py: Python<'_>, letters: Vec<String>) -> PyResult<()> {
        py.detach(|| self.0.take(&letters)).map_err(|error| to_python(py, &error))
    }

    /// Letters to the driver, beyond the `num_read` that it has read.
    fn news(&self, py: Python<'_>, at_most_s: f64, num_read: u64) -> PyResult<Vec<String>> {
        let at_most = duration(py, at_most_s)?;
        py.detach(|| self.0.news(at_most, num_read)).map_err(|error| to_python(py, &error))
    }

    /// Ends every process.
    fn end(&self, py: Python<'_>) {
        py.detach(|| self.0.end());
    }
}

/// A Python function that opens a store.
fn store_opener(open: Py<PyAny>) -> StoreOpener {
    StoreOpener(Arc::new(move || {
        Python::attach(|py| {
            let address = open.call0(py).and_then(|address| address.extract::<String>(py));
            address.map_err(|error| error.to_string())
        })
    }))
}

fn duration(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    let wrong = |_| invalid_input(py, "a time must be a number of seconds, 0 or more");
    Duration::try_from_secs_f64(seconds).map_err(wrong)
}
