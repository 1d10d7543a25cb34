//! Ctrl-C, SIGTERM and SIGHUP, noted as they come.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// After a signal that counted, other signals within this time don't count. For example, `timeout`
/// signals its child and then the child's whole group.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Whether the person asked to stop.
#[derive(Debug)]
pub(crate) struct Interrupt {
    pressed: Arc<AtomicBool>,
    /// When a signal last counted.
    counted: Mutex<Option<Instant>>,
}

impl Interrupt {
    /// Catches the signals from now on. Signals that the program was started with ignored stay
    /// ignored (`nohup`, a shell's background job). If catching fails, signals end the program at
    /// once, as they would have anyway; a run can be resumed.
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
        Self { pressed, counted: Mutex::new(None) }
    }

    /// Whether there was a signal.
    pub(crate) fn came(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }

    /// Whether a signal that counts has come since the last call.
    #[expect(clippy::disallowed_methods, reason = "signals come in the present")]
    pub(crate) fn take(&self) -> bool {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> bool {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.pressed.swap(false, Ordering::Relaxed)
            || counted.is_some_and(|counted| now.duration_since(counted) < SAME_WISH)
        {
            return false;
        }
        *counted = Some(now);
        true
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "only differences to it matter")]
    fn signals_within_a_second_are_one_wish() {
        let interrupt = Interrupt { pressed: Arc::default(), counted: Mutex::new(None) };
        let start = Instant::now();
        let after = |ms: u64, presses: bool| {
            interrupt.pressed.store(presses, Ordering::Relaxed);
            interrupt.take_at(start + Duration::from_millis(ms))
        };
        assert!(!after(0, false));
        assert!(after(10, true));
        assert!(!after(20, true), "the second signal of `timeout`");
        assert!(!after(1005, true), "a key that is held down");
        assert!(after(1010, true), "a second Ctrl-C");
        assert!(!after(3000, false));
    }
}
