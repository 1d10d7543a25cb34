//! Trying again after a full disk.
//!
//! A full disk is nobody's failure, and says nothing of a strategy. A task that trains waits, and
//! so do the trials of a group. They wait until the driver says that there is more room
//! ([`Event::SpaceFreed`](crate::Event::SpaceFreed)). Where the driver can't see the room (quotas,
//! disks of other machines), they wait for a while.

use crate::facts::ids::TaskId;
use crate::facts::record::Record;
use crate::ledger::book::Ledger;
use crate::measuring::cooldowns::Cooldowns;
use crate::state::task::TaskStatus;

/// The run's disk has more room than when it was full.
pub(crate) fn space_freed(ledger: &mut Ledger, cooldowns: &mut Cooldowns, now_s: f64) {
    cooldowns.space_freed_s = Some(now_s);
    ledger.agenda.trials_changed = true;
    let waits = |task: &TaskId| {
        let of = ledger.state.task(*task);
        of.no_space.is_some() && of.status == TaskStatus::Waiting && of.not_before_s > now_s
    };
    let waiting: Vec<TaskId> = ledger.state.open_tasks.iter().copied().filter(waits).collect();
    for task in waiting {
        let again = Record::Retrying { task, not_before_s: now_s, counts: false };
        ledger.commit(again, now_s);
        ledger.queues.touch_task(&ledger.state, task);
    }
}
