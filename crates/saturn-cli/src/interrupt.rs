//! Ctrl-C and SIGTERM, counted as they come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Catches both signals from now on. Where that fails they end the program at once, as they would
/// have anyway, and the run can be resumed.
pub(crate) fn catch() -> impl FnMut() -> bool {
    let pressed = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&pressed)) {
            eprintln!("warning: signal {signal} can't be caught: {error}");
        }
    }
    move || pressed.swap(false, Ordering::Relaxed)
}
