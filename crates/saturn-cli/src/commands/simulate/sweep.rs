//! Jobs on all cores. Results don't depend on the thread that did a job.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use saturn_sim::policy::PolicyError;

use crate::waiting::with_count;

/// The result of each job. It is `Interrupted` for jobs that were not done when the person stopped
/// the sweep, and for jobs after a failed job. `line` describes the progress, given the number of
/// jobs that are done.
pub(super) fn sweep<J: Sync, T: Send>(
    jobs: &[J],
    line: impl Fn(usize) -> String + Send,
    is_stopped: &(dyn Fn() -> bool + Sync),
    result: impl Fn(&J) -> Result<T, PolicyError> + Sync,
) -> Vec<Result<T, PolicyError>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<Result<T, PolicyError>>> =
        std::iter::repeat_with(|| None).take(jobs.len()).collect();
    let work = |num_done: &AtomicUsize| {
        let mut found = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index).filter(|_| !is_stopped()) else { return found };
            let result = result(job);
            let has_failed =
                result.as_ref().is_err_and(|error| !matches!(error, PolicyError::Interrupted));
            found.push((index, result));
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
                for (index, result) in found {
                    results[index] = Some(result);
                }
            }
        });
    });
    results.into_iter().map(|one| one.unwrap_or(Err(PolicyError::Interrupted))).collect()
}
