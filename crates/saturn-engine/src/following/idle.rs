//! Work for idle devices: what can start at once does not wait for the solver.
//!
//! A task that can be planned and has no place in the plan in force gets one by the next solve; but
//! solves rest between each other, and take their time. Where a device has nothing before it
//! meanwhile on which such a task would start, the plan in force is extended (`extend`) and followed
//! at once; the solver betters it later.
//!
//! What is started so may have to be moved when the solver's answer comes, which costs a checkpoint
//! and another launch. An answer that is likely to come sooner than that takes is waited for, and no
//! longer than that.

use std::collections::BTreeSet;

use saturn_core::Gang;

use crate::engine::turn::Engine;
use crate::facts::ids::{DeviceId, NodeId, TaskId, devices};
use crate::facts::plan::PlanSource;
use crate::ledger::timers::Timer;
use crate::planning::adopting::Rival;
use crate::planning::extend::extended;
use crate::state::run::State;
use crate::state::task::TaskStatus;

/// Devices that have nothing before them.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    devices: BTreeSet<DeviceId>,
    /// Among these are all tasks that have not ended and have no open place in the plan in force.
    without_place: BTreeSet<TaskId>,
    /// Something has changed since it was last looked whether anything could start there.
    is_to_look: bool,
}

impl Idle {
    /// A device has nothing before it.
    pub(crate) fn add(&mut self, device: DeviceId) {
        self.devices.insert(device);
        self.is_to_look = true;
    }

    /// A device has something before it, or can't be used.
    pub(crate) fn remove(&mut self, device: DeviceId) {
        self.devices.remove(&device);
    }

    /// A task has no place in the plan in force.
    pub(crate) fn note_without_place(&mut self, task: TaskId) {
        self.without_place.insert(task);
        self.is_to_look = true;
    }

    /// It is time to look again.
    pub(crate) fn look_again(&mut self) {
        self.is_to_look = true;
    }
}

impl Engine {
    /// Extends the plan in force, where something without a place in it would start at once.
    pub(crate) fn put_idle_to_work(&mut self, now_s: f64) {
        if !std::mem::take(&mut self.idle.is_to_look)
            || !self.planning.is_behind()
            || !self.idle.devices.iter().any(|device| self.is_at_hand(*device))
        {
            return;
        }
        let state = &self.state;
        self.idle.without_place.retain(|task| !state.has_ended(*task) && !state.has_place(*task));
        let is_ready = |task: &TaskId| {
            let of = state.task(*task);
            of.status == TaskStatus::Waiting
                && of.not_before_s.max(of.spec.wishes.release_s) <= now_s
                && state.is_measured(*task)
                && state.waits_for(*task).next().is_none()
        };
        let mut ready = self.idle.without_place.clone();
        ready.retain(is_ready);
        if ready.is_empty() {
            return;
        }
        let tasks = state.plannable();
        ready.retain(|task| tasks.binary_search(task).is_ok());
        if ready.is_empty() {
            return;
        }
        let undo_s = ready.iter().map(|task| state.undo_s(*task)).fold(0.0, f64::max);
        let policy = &state.config.policy;
        if let Some(until_s) = self.planning.worth_waiting_until_s(undo_s, policy, now_s) {
            self.timers.set(until_s, Timer::Idle);
            return;
        }
        let open = state.open_places().map(|(_, place)| place.clone()).collect();
        let places = extended(state, open, &tasks, now_s);
        let standing = Rival::new(state, places, now_s);
        let mut times = standing.places.iter().zip(&standing.forecast.places);
        let starts_one = times.any(|(place, times)| {
            times.is_some_and(|(start_s, _)| start_s <= now_s)
                && ready.contains(&place.task)
                && self.are_at_hand(&place.gang)
        });
        if starts_one {
            let source = PlanSource::Extended { reason: None };
            let plan = standing.into_plan(None, source, now_s);
            self.adopt(plan, now_s);
            self.planning.ask_again();
            self.follow_plan(now_s);
        }
    }

    /// Whether a node of the same type and with as many devices has nothing before it at all: what the
    /// plan in force has no use for there it has no use for on this one either.
    pub(crate) fn has_idle_node_like(&self, node: NodeId) -> bool {
        let state = &self.state;
        let is_idle =
            |device: DeviceId| self.idle.devices.contains(&device) && self.is_at_hand(device);
        let num_devices = state.usable_devices(node).count();
        state.plan.is_some()
            && state.present_nodes().any(|other| {
                other != node
                    && state.gpu_type(other) == state.gpu_type(node)
                    && state
                        .usable_devices(other)
                        .all(|device| is_idle(DeviceId { node: other, device }))
                    && state.usable_devices(other).count() >= num_devices
            })
    }

    /// Whether a device is free, and not for a trial.
    fn is_at_hand(&self, device: DeviceId) -> bool {
        self.state.is_free(device) && !self.kept_for_trials.contains(&device)
    }

    /// Whether all of a gang's devices are free, and not for a trial.
    pub(crate) fn are_at_hand(&self, gang: &Gang) -> bool {
        devices(gang).all(|device| self.is_at_hand(device))
    }
}

impl State {
    /// Seconds that it costs a task at most to have been started under another strategy than the
    /// solver then chooses: a checkpoint and another launch.
    fn undo_s(&self, task: TaskId) -> f64 {
        let is_going_on = self.task(task).step > 0;
        let load_s = self.choices(task).map(|choice| choice.trial.load_s(is_going_on));
        self.save_s(task).unwrap_or(0.0) + load_s.fold(0.0, f64::max)
    }
}
