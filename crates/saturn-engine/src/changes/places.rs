//! Which places of the plan in force can't be followed any more.
//!
//! All places of a task are closed at once, and the task gets others by the next plan. A change is
//! looked at only where it could close a place: no look goes over the whole plan.

use std::collections::BTreeSet;

use crate::facts::ids::{DeviceId, NodeId, TaskId};
use crate::facts::plan::Place;
use crate::state::run::State;
use crate::state::trial::TrialKey;

impl State {
    /// Closes the places of changed tasks that the plan can no longer follow. With a task's places
    /// it closes the places of every task that comes after the task.
    pub(crate) fn close_places_of(&mut self, tasks: impl IntoIterator<Item = TaskId>) {
        let mut open: Vec<TaskId> = tasks.into_iter().collect();
        while let Some(task) = open.pop() {
            if self.is_stale(task) || self.is_too_early(task) {
                self.order.close(task);
                open.extend(self.followers.get(&task).into_iter().flatten());
            }
        }
    }

    /// Closes the places of a task that has gone back from step `before` to `step`, if a place that
    /// was over begins again by that: its turn on its devices has passed.
    pub(crate) fn close_places_between(&mut self, task: TaskId, step: u64, before: u64) {
        let places = self.plan.as_ref().map_or(&[][..], |plan| &plan.places);
        let mut of_task = self.order.of_task(task).iter().map(|index| &places[*index]);
        if of_task.any(|place| place.is_done_at(before) && !place.is_done_at(step)) {
            self.order.close(task);
            let followers = self.followers.get(&task).cloned();
            self.close_places_of(followers.into_iter().flatten());
        }
    }

    /// Something has changed about these devices of a node: closes the places that can't be
    /// followed any more.
    pub(crate) fn close_places_on(&mut self, node: NodeId, numbers: impl Iterator<Item = u32>) {
        let Some(plan) = &self.plan else { return };
        let mut tasks = BTreeSet::new();
        for device in numbers {
            let places = self.order.on_device(DeviceId { node, device });
            tasks.extend(places.iter().map(|index| plan.places[*index].task));
        }
        self.close_places_of(tasks);
    }

    /// Whether a task has an open place that can't be followed now.
    fn is_stale(&self, task: TaskId) -> bool {
        let state = self.task(task);
        self.open_places_of(task).any(|(_, place)| {
            state.must_not_train()
                || state.excludes(&place.strategy)
                || self.attempt_of(task).is_none() && !self.may_hold(task, place.strategy.gpus)
                || !self.can_hold(&place.gang)
                || self.attempt_of(task).is_none()
                    && (!self.has_shape_for(&place.gang, place.strategy.gpus)
                        || self.is_too_large_for_host(state.group, place))
        })
    }

    fn is_too_large_for_host(&self, group: usize, place: &Place) -> bool {
        let gpu_type = self.gang_type(&place.gang).to_owned();
        let key = TrialKey { strategy: place.strategy.key(), gpu_type };
        self.why_too_large_for_host(group, &key).is_some()
    }

    /// Whether a waiting task has an open place before the last place of a task that it must come
    /// after. On one device, each of the two tasks would wait for the other.
    fn is_too_early(&self, task: TaskId) -> bool {
        if self.attempt_of(task).is_some() {
            return false;
        }
        let Some((first, _)) = self.open_places_of(task).next() else { return false };
        self.waits_for(task).any(|before| {
            let last = self.order.of_task(before).last();
            self.order.closed().contains(&before) || last.is_none_or(|last| *last > first)
        })
    }
}
