//! Two pieces of work side by side, each of which may end the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::course::clock::Deadline;
use crate::course::rounds::Limits;

/// Does `work` on a thread of its own while the others search, for `share` of the time. When the
/// work is done the search pauses. A search that has reached its goal stops the work.
pub(crate) fn side_by_side<R: Send>(
    limits: &Limits,
    share: f64,
    search: impl FnOnce(&Limits) -> bool,
    work: impl FnOnce(Deadline) -> R + Send,
) -> R {
    let (is_found, is_worked) = (AtomicBool::new(false), AtomicBool::new(false));
    let work_clock = limits.deadline.stopped_by(&is_found);
    let search_clock = limits.deadline.stopped_by(&is_worked);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work(limits.deadline.on(&work_clock));
            is_worked.store(true, Ordering::Relaxed);
            result
        });
        let deadline = limits.deadline.on(&search_clock);
        let deadline = deadline.within(deadline.left_s() * share);
        if search(&Limits { deadline, threads: limits.threads - 1, ..*limits }) {
            is_found.store(true, Ordering::Relaxed);
        }
        match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
