//! Waiting: for the next look at a run, and for a solve, which shows that it is alive: nothing at
//! first, then how long it may still take.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A wait shorter than this needs no word.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits; perhaps a little less.
pub(crate) fn pause(time: Duration) {
    thread::park_timeout(time);
}

/// Does `work`, of which `what` takes at most `limit_s` seconds.
pub(crate) fn with_progress<T>(what: &str, limit_s: f64, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut waited = PATIENCE;
            if is_done.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            if !std::io::stderr().is_terminal() {
                eprintln!("{what}: at most {limit_s} s (Ctrl-C takes the best plan so far)");
                return;
            }
            let tick = Duration::from_millis(500);
            loop {
                let line = format!(
                    "\r{what}: {} of at most {limit_s} s (Ctrl-C takes the best plan so far)",
                    waited.as_secs()
                );
                // A closed terminal is no reason to stop.
                let _ = std::io::stderr().write_all(line.as_bytes());
                if is_done.recv_timeout(tick) != Err(RecvTimeoutError::Timeout) {
                    let _ = std::io::stderr().write_all(b"\r\x1b[K");
                    return;
                }
                waited += tick;
            }
        });
        let result = work();
        drop(done);
        result
    })
}
