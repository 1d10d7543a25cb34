//! What is tried again once a full disk has room.
//!
//! A full disk is nobody's failure, and says nothing of a strategy. A task that trains waits, and so do
//! the trials of a group: until the driver says that there is more room
//! ([`Event::SpaceFreed`](crate::Event::SpaceFreed)), or, where the driver can't see that (quotas, disks
//! of other machines), for a while.

use crate::engine::turn::Engine;
use crate::facts::ids::TaskId;
use crate::facts::record::Record;
use crate::ledger::timers::Timer;
use crate::state::task::TaskStatus;

impl Engine {
    /// Whether a group's trials wait for space; then a timer is set.
    pub(crate) fn waits_for_space(&mut self, group: usize, now_s: f64) -> bool {
        let no_space = self.state.groups[group].no_space.as_ref();
        let Some(no_space) = no_space.filter(|one| {
            one.until_s() > now_s && self.space_freed_s.is_none_or(|freed_s| freed_s < one.since_s)
        }) else {
            return false;
        };
        self.timers.set(no_space.until_s(), Timer::Trials);
        true
    }

    /// There is more room on the run's disk than when it was full.
    pub(crate) fn space_freed(&mut self, now_s: f64) {
        self.space_freed_s = Some(now_s);
        self.trials_changed = true;
        let waits = |task: &TaskId| {
            let of = self.state.task(*task);
            of.no_space.is_some() && of.status == TaskStatus::Waiting && of.not_before_s > now_s
        };
        let waiting: Vec<TaskId> = self.state.open_tasks.iter().copied().filter(waits).collect();
        for task in waiting {
            let again = Record::Retrying { task, not_before_s: now_s, counts: false };
            self.commit(again, now_s);
            self.queues.touch_task(&self.state, task);
        }
    }
}
