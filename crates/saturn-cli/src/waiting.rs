//! Waiting: for the next look at a run, and for long work.
//!
//! A short wait prints nothing. A longer wait shows how long a solve may still take, or how many
//! parts of the work are done.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A shorter wait prints nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two lines on a terminal, and elsewhere.
const TICK: Duration = Duration::from_millis(500);
const LINE: Duration = Duration::from_secs(30);

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
            loop {
                let line = format!(
                    "\r{what}: {} of at most {limit_s} s (Ctrl-C takes the best plan so far)",
                    waited.as_secs()
                );
                // A closed terminal is no reason to stop.
                let _ = std::io::stderr().write_all(line.as_bytes());
                if is_done.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
                    let _ = std::io::stderr().write_all(b"\r\x1b[K");
                    return;
                }
                waited += TICK;
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// Does `work`, which counts its finished parts in the number that it gets. `line` describes the
/// progress, given the number of finished parts.
pub(crate) fn with_count<T>(
    line: impl Fn(usize) -> String + Send,
    work: impl FnOnce(&AtomicUsize) -> T,
) -> T {
    let num_done = AtomicUsize::new(0);
    let (done, is_done) = channel::<()>();
    thread::scope(|scope| {
        let num_done = &num_done;
        scope.spawn(move || tell(&is_done, || line(num_done.load(Ordering::Relaxed))));
        let result = work(num_done);
        drop(done);
        result
    })
}

/// Shows `line` again and again on standard error, until the work is done.
fn tell(is_done: &Receiver<()>, line: impl Fn() -> String) {
    let is_terminal = std::io::stderr().is_terminal();
    let mut wait = PATIENCE;
    while is_done.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let line = line();
        let (line, tick) =
            if is_terminal { (format!("\r{line}"), TICK) } else { (format!("{line}\n"), LINE) };
        // A closed terminal is no reason to stop.
        let _ = std::io::stderr().write_all(line.as_bytes());
        wait = tick;
    }
    if is_terminal && wait == TICK {
        let _ = std::io::stderr().write_all(b"\r\x1b[K");
    }
}
