//! Progress of `saturn whatif` on standard error: nothing for two seconds, then how many sizes are
//! done.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A shorter wait needs no word.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two words on a terminal, and elsewhere.
const TICK: Duration = Duration::from_millis(500);
const LINE: Duration = Duration::from_secs(30);

/// Does `work`, which says how many sizes are done.
pub(super) fn with_sizes_done<T>(
    num_all: usize,
    work: impl FnOnce(&mut dyn FnMut(usize)) -> T,
) -> T {
    let num_done = AtomicUsize::new(0);
    let (done, is_done) = channel::<()>();
    thread::scope(|scope| {
        let num_done = &num_done;
        scope.spawn(move || tell(&is_done, num_done, num_all));
        let result = work(&mut |sizes| num_done.store(sizes, Ordering::Relaxed));
        drop(done);
        result
    })
}

fn tell(is_done: &Receiver<()>, num_done: &AtomicUsize, num_all: usize) {
    let is_terminal = std::io::stderr().is_terminal();
    let mut wait = PATIENCE;
    while is_done.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let done = num_done.load(Ordering::Relaxed);
        let line = format!("planned {done} of {num_all} sizes (Ctrl-C: those that are done)");
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
