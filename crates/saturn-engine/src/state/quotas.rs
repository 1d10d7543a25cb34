//! Quotas: how many devices a person's tasks may hold at once.
//!
//! Training and trials count, whatever they do, until their processes have gone. Inspections hold no
//! device. If a quota is lowered, tasks that hold more go on; no other task of the person starts until
//! there is room under the quota again.

use saturn_core::Gang;

use crate::facts::ids::{TaskId, devices};
use crate::facts::sharing::Uid;
use crate::state::run::State;

impl State {
    /// Whether anybody has a quota.
    pub(crate) fn has_quotas(&self) -> bool {
        self.config.policy.sharing.as_ref().is_some_and(|sharing| !sharing.quotas.is_empty())
    }

    /// How many devices a person's tasks may hold at once; `None`: all.
    pub fn quota(&self, uid: Uid) -> Option<u32> {
        let sharing = self.config.policy.sharing.as_ref().filter(|one| !one.quotas.is_empty())?;
        sharing.quotas.get(self.login(sharing, uid)).copied()
    }

    /// How many devices a person's tasks hold.
    pub fn held_by(&self, uid: Uid) -> u32 {
        let own = self.attempts.values().filter(|attempt| self.task(attempt.task).uid() == uid);
        own.map(|attempt| width(&attempt.gang)).sum()
    }

    /// Whether a task's owner may hold so many devices for it at all.
    pub fn may_hold(&self, task: TaskId, gpus: u32) -> bool {
        self.quota(self.task(task).uid()).is_none_or(|quota| gpus <= quota)
    }

    /// Whether a task's owner may hold so many more devices now.
    pub fn may_hold_more(&self, task: TaskId, gpus: u32) -> bool {
        let uid = self.task(task).uid();
        self.quota(uid).is_none_or(|quota| self.held_by(uid).saturating_add(gpus) <= quota)
    }

    /// Whether a task's owner may hold this gang too now.
    pub fn may_hold_gang(&self, task: TaskId, gang: &Gang) -> bool {
        self.may_hold_more(task, width(gang))
    }
}

/// How many devices a gang holds.
pub(crate) fn width(gang: &Gang) -> u32 {
    u32::try_from(devices(gang).count()).unwrap_or(u32::MAX)
}
