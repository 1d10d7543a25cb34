//! What a long call needs of Python while it has released the GIL: Ctrl-C, and a place to print.

use pyo3::prelude::*;
use saturn_view::Sink;

/// Whether Ctrl-C was pressed since the last call, as Python's own signal handler reports it.
pub(crate) fn was_ctrl_c_pressed() -> bool {
    // Any exception that a signal handler raises is the user's wish to stop.
    Python::attach(|py| py.check_signals().is_err())
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
