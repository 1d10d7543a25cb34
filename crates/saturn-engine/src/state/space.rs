//! Attempts that met a full disk, and when they are tried again.
//!
//! A full disk is nobody's failure, and says nothing of a strategy. A task that trains waits, and so
//! do the trials of a group: until the driver says that there is more room than there was
//! ([`crate::Event::SpaceFreed`]), or, where it can't see that (quotas, disks of other machines), for
//! a while.

use crate::engine::turn::Engine;
use crate::facts::event::{FailureKind, RankFailure};
use crate::facts::ids::TaskId;
use crate::facts::record::{AttemptEnd, Purpose, Record};
use crate::ledger::timers::Timer;
use crate::state::run::{Attempt, State, TaskStatus};

/// For so long a full disk is waited for where nobody says that there is room again, seconds.
pub(crate) const NO_SPACE_WAIT_S: f64 = 60.0;

/// An attempt met a full disk, and none of its kind has been launched since.
#[derive(Debug, Clone, PartialEq)]
pub struct NoSpace {
    /// The task of the attempt.
    pub task: TaskId,
    /// What was to be written where.
    pub error: String,
    /// When it ended, seconds.
    pub since_s: f64,
}

impl NoSpace {
    /// When it is tried again, unless there is room before.
    pub fn until_s(&self) -> f64 {
        self.since_s + NO_SPACE_WAIT_S
    }
}

impl AttemptEnd {
    /// The failure, where the disk was full.
    fn no_space(&self) -> Option<&RankFailure> {
        match self {
            Self::Failed { failure } if failure.kind == FailureKind::NoSpace => Some(failure),
            _ => None,
        }
    }
}

impl State {
    /// What a task that does not train waits for, where a disk was full: the task, or the trials of
    /// its group.
    pub fn no_space(&self, task: TaskId) -> Option<&NoSpace> {
        let of = self.task(task);
        if of.status != TaskStatus::Waiting {
            return None;
        }
        let of_trials =
            || self.group_of(task).no_space.as_ref().filter(|_| !self.is_measured(task));
        of.no_space.as_ref().or_else(of_trials)
    }

    /// Tasks that wait for space on a disk, in the order in which they came.
    pub fn without_space(&self) -> impl Iterator<Item = (TaskId, &NoSpace)> {
        self.open_tasks.iter().filter_map(|task| Some((*task, self.no_space(*task)?)))
    }

    pub(crate) fn apply_space(&mut self, attempt: &Attempt, end: &AttemptEnd, now_s: f64) {
        let Some(failure) = end.no_space() else { return };
        let error = failure.error.clone();
        let no_space = Some(NoSpace { task: attempt.task, error, since_s: now_s });
        let group = self.tasks[attempt.task.0].group;
        match attempt.purpose {
            Purpose::Inspection => {}
            Purpose::Trial => self.groups[group].no_space = no_space,
            Purpose::Train => self.tasks[attempt.task.0].no_space = no_space,
        }
    }
}

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
