//! Policies times seeds, on all cores. Results don't depend on which thread has simulated them.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use saturn_sim::policy::{Case, Outcome, Policy, PolicyError, simulate};

/// A sweep shorter than this needs no word.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two words on a terminal, and elsewhere.
const TICK: Duration = Duration::from_millis(500);
const LINE: Duration = Duration::from_secs(30);

/// A policy under a seed.
pub(super) struct Job {
    pub(super) policy: &'static dyn Policy,
    pub(super) seed: u64,
}

/// What came of each job; `Interrupted` for those that were not done when the person stopped it,
/// and for those after one that failed.
pub(super) fn sweep(
    jobs: &[Job],
    case: &Case,
    error: f64,
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Vec<Result<Outcome, PolicyError>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let num_done = AtomicUsize::new(0);
    let (done, is_done) = channel::<()>();
    let mut outcomes: Vec<Option<Result<Outcome, PolicyError>>> =
        std::iter::repeat_with(|| None).take(jobs.len()).collect();
    thread::scope(|scope| {
        let worker = || {
            let mut found = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(index).filter(|_| !is_stopped()) else { return found };
                let case = case.mistaken(error, job.seed);
                let outcome = simulate(job.policy, &case, &|| is_stopped());
                let has_failed =
                    outcome.as_ref().is_err_and(|error| !matches!(error, PolicyError::Interrupted));
                found.push((index, outcome));
                num_done.fetch_add(1, Ordering::Relaxed);
                if has_failed {
                    // The others end what they are at.
                    next.store(jobs.len(), Ordering::Relaxed);
                }
            }
        };
        let workers: Vec<_> = (0..cores.min(jobs.len())).map(|_| scope.spawn(worker)).collect();
        let (num_done, num_all) = (&num_done, jobs.len());
        scope.spawn(move || tell(&is_done, num_done, num_all));
        for worker in workers {
            // A panic of a worker goes on here.
            let found = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            for (index, outcome) in found {
                outcomes[index] = Some(outcome);
            }
        }
        drop(done);
    });
    outcomes.into_iter().map(|one| one.unwrap_or(Err(PolicyError::Interrupted))).collect()
}

/// Says on standard error how far the sweep is, until it is done.
fn tell(is_done: &Receiver<()>, num_done: &AtomicUsize, num_all: usize) {
    let is_terminal = std::io::stderr().is_terminal();
    let mut wait = PATIENCE;
    while is_done.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let done = num_done.load(Ordering::Relaxed);
        let line = format!("simulated {done} of {num_all} (Ctrl-C: what there is so far)");
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
