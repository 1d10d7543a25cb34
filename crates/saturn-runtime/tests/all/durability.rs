//! Makes every operation on a run's files fail once, as an error and as a crash. Each time the run
//! must be resumable, and complete after the resume.
//!
//! The quick gate makes operations 0, 3, 6 … fail as errors, and 1, 4, 7 … as crashes. At night,
//! with `SATURN_TEST_OPERATIONS=all`, every operation fails in both ways.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{Error, ErrorKind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use saturn_engine::RunEnd;
use saturn_runtime::{ResumeOptions, RunRequest, RuntimeError, Watcher};
use saturn_store::Disk;

use crate::harness::{GOOD, Run, quiet};

/// The variables that give the crashing child its request and the operation at which to crash.
const REQUEST: &str = "SATURN_TEST_REQUEST";
const CRASH_AT: &str = "SATURN_TEST_CRASH_AT";
/// The name of the test that starts itself again, as the test program knows it.
const CRASHING: &str = "durability::a_run_recovers_from_a_crash_at_every_operation";

/// The numbers of the operations that fail: of all, or of every third from `first` on.
fn operations(first: u64) -> impl Iterator<Item = u64> {
    let all = std::env::var("SATURN_TEST_OPERATIONS").is_ok_and(|which| which == "all");
    let (first, step) = if all { (0, 1) } else { (first, 3) };
    (first..).step_by(step)
}

/// A disk on which `fault` replaces the operation of this number, with a counter of operations.
fn failing_at(
    number: u64,
    fault: impl Fn() -> Result<(), Error> + Send + Sync + 'static,
) -> (Disk, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    let disk = Disk::with_faults(move |_, _| {
        let is_it = counter.fetch_add(1, Ordering::Relaxed) == number;
        if is_it { fault() } else { Ok(()) }
    });
    (disk, count)
}

fn small() -> Run {
    let mut run = Run::new(1, &[GOOD]);
    run.steps = 3;
    run
}

fn resume(path: &Path) -> Result<saturn_runtime::Outcome, RuntimeError> {
    saturn_runtime::resume(path, ResumeOptions::default(), Watcher::new(quiet(), &mut || false))
}

/// Checks that a run after a failure can be resumed to its end, or never began.
fn assert_recovers(run: &Run, what: &str) {
    match resume(&run.path()) {
        Ok(outcome) => {
            assert_eq!((outcome.end, outcome.num_failed), (RunEnd::Complete, 0), "{what}");
            assert_eq!(run.saved_step("t0"), run.steps, "{what}");
            let report = run.report();
            assert_eq!(report["status"], "complete", "{what}");
        }
        Err(RuntimeError::NoRun { .. }) => {
            assert_eq!(run.saved_step("t0"), 0, "{what}");
            assert!(run.start().is_ok_and(|outcome| outcome.num_failed == 0), "{what}");
        }
        Err(error) => panic!("{what}: {error}"),
    }
    run.assert_no_process_lives();
}

#[test]
fn a_run_recovers_from_an_error_at_every_operation() {
    for number in operations(0) {
        let mut run = small();
        let (disk, count) = failing_at(number, || Err(Error::from(ErrorKind::Other)));
        run.disk = disk;
        // The run may succeed, since a launch that fails is tried again.
        let _ = run.start();
        let was_reached = count.load(Ordering::Relaxed) > number;
        run.disk = Disk::default();
        assert_recovers(&run, &format!("error at operation {number}"));
        if !was_reached {
            assert!(number > 10, "{number} operations are too few to be all");
            return;
        }
    }
}

/// A run that crashes needs a process of its own: this test starts itself again, with a request.
#[test]
fn a_run_recovers_from_a_crash_at_every_operation() {
    if let Ok(request) = std::env::var(REQUEST) {
        return crash(&request);
    }
    for number in operations(1) {
        let run = small();
        let request = run.request();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", CRASHING, "--nocapture"])
            .env(REQUEST, request)
            .env(CRASH_AT, number.to_string())
            .output()
            .unwrap();
        assert_recovers(&run, &format!("crash at operation {number}"));
        if child.status.success() {
            assert!(number > 10, "{number} operations are too few to be all");
            return;
        }
    }
}

/// Drives a run until it crashes at its operation, or to its end if that operation never comes.
fn crash(request: &str) {
    let number = std::env::var(CRASH_AT).unwrap().parse().unwrap();
    let mut request = RunRequest::from_json(request).unwrap();
    let (disk, _) = failing_at(number, || std::process::abort());
    request.disk = disk;
    saturn_runtime::start(request, Watcher::new(quiet(), &mut || false)).unwrap();
}
