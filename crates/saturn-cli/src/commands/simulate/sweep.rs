//! Policies times seeds, on all cores. Results don't depend on the thread that simulated them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use saturn_sim::policy::{Case, Outcome, Policy, PolicyError, simulate};

use crate::waiting::with_count;

/// A policy under a seed.
pub(super) struct Job {
    pub(super) policy: &'static dyn Policy,
    pub(super) seed: u64,
}

/// The result of each job. It is `Interrupted` for jobs that were not done when the person stopped
/// the sweep, and for jobs after a failed job.
pub(super) fn sweep(
    jobs: &[Job],
    case: &Case,
    error: f64,
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Vec<Result<Outcome, PolicyError>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let num_all = jobs.len();
    let line = |done| format!("simulated {done} of {num_all} (Ctrl-C: what there is so far)");
    let mut outcomes: Vec<Option<Result<Outcome, PolicyError>>> =
        std::iter::repeat_with(|| None).take(jobs.len()).collect();
    let work = |num_done: &AtomicUsize| {
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
                // The other threads end their present job.
                next.store(jobs.len(), Ordering::Relaxed);
            }
        }
    };
    with_count(line, |num_done| {
        thread::scope(|scope| {
            let start = |_| scope.spawn(|| work(num_done));
            let workers: Vec<_> = (0..cores.min(jobs.len())).map(start).collect();
            for worker in workers {
                // A worker's panic is passed on here.
                let found = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                for (index, outcome) in found {
                    outcomes[index] = Some(outcome);
                }
            }
        });
    });
    outcomes.into_iter().map(|one| one.unwrap_or(Err(PolicyError::Interrupted))).collect()
}
