//! Ctrl-C, SIGTERM and SIGHUP, noted as they come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether the person asked to stop.
#[derive(Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches the signals from now on, but for those that whoever started the program has it ignore
    /// (`nohup`, a shell's background job). Where that fails they end the program at once, as they
    /// would have anyway; a run can be resumed.
    pub(crate) fn catch() -> Self {
        let pressed = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if is_ignored(signal) {
                continue;
            }
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

/// Whether the program was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    // The first signal is number 1.
    mask >> (signal - 1) & 1 == 1
}
