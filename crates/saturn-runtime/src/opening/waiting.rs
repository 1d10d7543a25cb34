//! Waiting for devices that other runs hold.

use std::time::Duration;

use saturn_engine::Observer;
use saturn_view::Console;

use crate::devices::claims::Claims;
use crate::devices::machine::Machine;
use crate::devices::pool::Pool;
use crate::system::clock;
use crate::system::error::RuntimeError;

/// How often to check whether the devices are free.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A run that ends releases its devices one after the other. All are free this long after the first
/// was released.
const LETTING_GO: Duration = Duration::from_millis(100);

/// Takes devices as [`Machine::claim`] does, but waits for those that other runs hold. The console
/// shows which runs. While this waits it holds no device, so that two waiting runs never hold what
/// the other needs.
pub(crate) fn claim_when_free(
    machine: &Machine,
    devices: Option<u32>,
    claims: impl Fn() -> Result<Claims, RuntimeError>,
    console: &mut Console,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<Pool, RuntimeError> {
    let mut told = String::new();
    loop {
        let held = match machine.claim(devices, claims()?) {
            Ok(pool) if told.is_empty() => return Ok(pool),
            Ok(pool) => {
                drop(pool);
                clock::pause(LETTING_GO);
                match machine.claim(devices, claims()?) {
                    Err(RuntimeError::DevicesHeld { held, .. }) => held,
                    taken => return taken,
                }
            }
            Err(RuntimeError::DevicesHeld { held, .. }) => held,
            Err(error) => return Err(error),
        };
        // Not again because a program has taken more memory.
        let words = |text: &str| text.replace(|one: char| one.is_ascii_digit(), "");
        if words(&told) != words(&held) {
            console.note(&format!("waiting for devices: {held} (Ctrl-C ends the waiting)"), 0.0);
            told = held;
        }
        let until = clock::deadline(LOOK_EVERY);
        while !clock::is_past(until) {
            if is_interrupted() {
                return Err(RuntimeError::WaitEnded);
            }
            clock::pause(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use tempfile::TempDir;

    use super::*;

    fn told(lines: &Arc<Mutex<String>>) -> Console {
        let lines = Arc::clone(lines);
        let sink = Box::new(move |text: &str| lines.lock().unwrap().push_str(text));
        Console::new(false, Some(sink), |_| None)
    }

    #[test]
    fn a_run_waits_until_another_has_let_go_and_says_for_which() {
        let dir = TempDir::new().unwrap();
        let machine = Machine::look();
        let claims = |run: &str| Claims::new(Some(dir.path()), Path::new(run));
        let mut held = Some(machine.claim(None, claims("/runs/one").unwrap()).unwrap());
        let two = || claims("/runs/two");
        let num_devices = held.as_ref().unwrap().hardware().cluster().num_gpus();
        let lines = Arc::default();
        let mut looks = 0;
        let mut ends_soon = || {
            looks += 1;
            if looks == 3 {
                held = None;
            }
            false
        };
        let pool = claim_when_free(&machine, None, two, &mut told(&lines), &mut ends_soon).unwrap();
        assert_eq!(pool.hardware().cluster().num_gpus(), num_devices);
        let lines = lines.lock().unwrap();
        assert_eq!(lines.matches("waiting for devices: ").count(), 1, "{lines}");
        assert!(lines.contains("(run `/runs/one`) holds "), "{lines}");
    }

    #[test]
    fn ctrl_c_ends_the_waiting() {
        let dir = TempDir::new().unwrap();
        let machine = Machine::look();
        let claims = || Claims::new(Some(dir.path()), Path::new("/runs/one"));
        let _held = machine.claim(None, claims().unwrap()).unwrap();
        let waited =
            claim_when_free(&machine, Some(1), claims, &mut told(&Arc::default()), &mut || true);
        assert!(matches!(waited, Err(RuntimeError::WaitEnded)), "{waited:?}");
    }
}
