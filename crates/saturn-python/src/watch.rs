//! What a long call needs of Python while it has released the GIL: Ctrl-C, and a place to print.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use saturn_view::Sink;

/// Ctrl-C, as Python's own signal handler reports it.
#[derive(Debug, Default)]
pub(crate) struct CtrlC {
    was_pressed: AtomicBool,
}

impl CtrlC {
    /// Whether it was pressed since the last call.
    pub(crate) fn take(&self) -> bool {
        self.peek();
        self.was_pressed.swap(false, Ordering::Relaxed)
    }

    /// Whether it was pressed and not taken yet.
    pub(crate) fn peek(&self) -> bool {
        // Any exception that a signal handler raises is the user's wish to stop.
        if Python::attach(|py| py.check_signals().is_err()) {
            self.was_pressed.store(true, Ordering::Relaxed);
        }
        self.was_pressed.load(Ordering::Relaxed)
    }

    /// Raises what Python would have raised.
    pub(crate) fn raise_if_pressed(&self) -> PyResult<()> {
        if self.take() { Err(PyKeyboardInterrupt::new_err(())) } else { Ok(()) }
    }
}

/// Lines for the person watching go to a Python function, so that notebooks show them too.
pub(crate) fn python_sink(write: Py<PyAny>) -> Sink {
    Box::new(move |text| {
        // A run must not end because no one can watch it.
        Python::attach(|py| {
            if let Err(error) = write.call1(py, (text,)) {
                error.write_unraisable(py, None);
            }
        });
    })
}
