//! Ctrl-C and SIGTERM, noted as they come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether the person asked to stop.
#[derive(Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches both signals from now on. Where that fails they end the program at once, as they
    /// would have anyway; a run can be resumed.
    pub(crate) fn catch() -> Self {
        let pressed = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&pressed)) {
                eprintln!("warning: signal {signal} can't be caught: {error}");
            }
        }
        Self(pressed)
    }

    /// Whether there was one.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether there was one since the last call.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
