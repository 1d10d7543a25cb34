//! Whether the queue for host memory is as the state says, although each event changes only what it
//! is about.

use crate::following::host_memory::HostMemoryQueue;
use crate::ledger::book::Ledger;
use crate::state::task::TaskStatus;

impl HostMemoryQueue {
    /// Whether only waiting tasks are in the queue, and whoever waited on a node knows for whom memory
    /// is kept there now. Tasks that have ended since the queue was looked at leave it at the next look.
    /// For tests.
    pub(crate) fn is_kept_up(&self, ledger: &Ledger) -> bool {
        self.changed.is_empty()
            && self.numbers.keys().all(|task| {
                ledger.state.task(*task).status == TaskStatus::Waiting
                    || ledger.agenda.not_waiting.contains(task)
            })
    }
}
