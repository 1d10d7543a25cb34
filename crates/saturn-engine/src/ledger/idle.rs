//! Devices for which the plan in force has nothing left to do, and tasks without a place in it.

use std::collections::BTreeSet;

use crate::facts::ids::{DeviceId, TaskId};
use crate::ledger::by_group::TasksByGroup;
use crate::ledger::timers::Moment;
use crate::state::run::State;

/// Devices for which the plan in force has nothing left to do, and tasks without a place in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Idle {
    pub(crate) devices: BTreeSet<DeviceId>,
    /// All tasks that have not ended and have no open place in the plan in force, and perhaps
    /// others.
    pub(crate) without_place: TasksByGroup,
    /// Those that may not start before a time, by that time, and perhaps others.
    later: BTreeSet<(Moment, TaskId)>,
    /// Tasks of which it must be looked whether they belong to `later`.
    to_time: Vec<TaskId>,
    /// Something has changed since `following` last looked whether a task could start on these
    /// devices.
    pub(crate) is_to_look: bool,
}

impl Idle {
    /// The plan in force has nothing left to do on a device.
    pub(crate) fn add(&mut self, device: DeviceId) {
        self.devices.insert(device);
        self.is_to_look = true;
    }

    /// The plan in force has work for a device, or the device can't be used.
    pub(crate) fn remove(&mut self, device: DeviceId) {
        self.devices.remove(&device);
    }

    /// A task has no place in the plan in force.
    pub(crate) fn note_without_place(&mut self, state: &State, task: TaskId) {
        self.without_place.add(state, task);
        self.to_time.push(task);
        self.is_to_look = true;
    }

    /// Another plan is in force. Tasks that have no place in it are noted next.
    pub(crate) fn forget_tasks(&mut self) {
        self.without_place.forget();
        self.later.clear();
        self.to_time.clear();
    }

    /// A task may start earlier or later than before.
    pub(crate) fn note_wait(&mut self, task: TaskId) {
        self.to_time.push(task);
    }

    /// A task has ended.
    pub(crate) fn note_task_end(&mut self, state: &State, task: TaskId) {
        self.without_place.remove(state, task);
    }

    /// Asks `following` to look again.
    pub(crate) fn look_again(&mut self) {
        self.is_to_look = true;
    }

    /// The next time after `now_s` at which a task without a place may start as far as its release
    /// and its wait before a retry go, seconds.
    pub(crate) fn next_start_s(&mut self, state: &State, now_s: f64) -> Option<f64> {
        for task in std::mem::take(&mut self.to_time) {
            let start_s = state.task(task).may_start_s();
            if start_s > now_s {
                self.later.insert((Moment::at(start_s), task));
            }
        }
        while let Some((at, task)) = self.later.first().copied() {
            let start_s = state.task(task).may_start_s();
            let is_so = start_s > now_s
                && at == Moment::at(start_s)
                && self.without_place.has(state, task)
                && !state.has_ended(task)
                && !state.has_place(task);
            if is_so {
                return Some(start_s);
            }
            self.later.pop_first();
        }
        None
    }

    /// Whether the tasks without a place, and the next time at which one may start, are those that
    /// a look at all tasks finds. For tests.
    pub(crate) fn is_kept_up(&self, state: &State, now_s: f64) -> bool {
        let without: Vec<TaskId> =
            state.open_tasks.iter().copied().filter(|task| !state.has_place(*task)).collect();
        let starts_s = without.iter().map(|task| state.task(*task).may_start_s());
        let next_s = starts_s.filter(|start_s| *start_s > now_s).min_by(f64::total_cmp);
        without.iter().all(|task| self.without_place.has(state, *task))
            && self.clone().next_start_s(state, now_s).map(Moment::at) == next_s.map(Moment::at)
    }
}
