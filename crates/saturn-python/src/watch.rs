//! What a run needs of Python while it has released the GIL: requests to stop, and a place to
//! print.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;
use saturn_view::Sink;

/// How often a person has asked the run to stop. The run only reads this counter, and so never
/// waits for Python.
#[pyclass(frozen, module = "saturn._core")]
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupts(Arc<AtomicU32>);

#[pymethods]
impl Interrupts {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Asks the run to stop, once more.
    fn press(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Interrupts {
    /// Takes one request to stop. Returns whether there was one.
    pub(crate) fn take(&self) -> bool {
        let less = |presses: u32| presses.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// Sends lines for people to a Python function, so that notebooks show them too.
pub(crate) fn python_sink(write: Py<PyAny>) -> Sink {
    Box::new(move |text| {
        // A run must not end because nobody can watch it. `try_attach` does nothing while Python
        // itself ends.
        Python::try_attach(|py| {
            if let Err(error) = write.call1(py, (text,)) {
                error.write_unraisable(py, None);
            }
        });
    })
}
