//! Following the plan: what starts, what goes on, what stops.
//!
//! A task starts in its place when that is the first on all of its devices and nothing holds them:
//! the plan's order binds, its times do not, so that what ends early lets its successors start
//! early. A task that trains goes on where the plan in force leaves it first in its place; otherwise
//! it is stopped at a checkpoint when that plan is adopted (`forecast` counts on just these rules).
//!
//! A task that is to be switched has several places in the plan. Its checkpoint says which one it is
//! in: the first whose last step it has not saved. So nothing else need be remembered of a switch,
//! and a crash before, in or after one leads back to the same place.

use saturn_core::Strategy;

use crate::engine::turn::Engine;
use crate::facts::config::Level;
use crate::facts::event::Action;
use crate::facts::ids::{AttemptId, TaskId};
use crate::facts::record::{Purpose, Record, StopReason};
use crate::forecast::follow::staying;
use crate::ledger::timers::Timer;
use crate::state::task::TaskStatus;

impl Engine {
    /// Starts what may start on the devices where something has changed.
    pub(crate) fn follow_plan(&mut self, now_s: f64) {
        while let Some(device) = self.queues.take_changed() {
            if let Some(index) = self.queues.front(&self.state, device) {
                self.idle.remove(device);
                self.try_start(index, now_s);
            } else if self.state.is_free(device) {
                self.idle.add(device);
            } else {
                self.idle.remove(device);
            }
        }
    }

    fn try_start(&mut self, index: usize, now_s: f64) {
        let Some(plan) = self.state.plan.clone() else { return };
        let place = &plan.places[index];
        let task = place.task;
        if self.state.task(task).status != TaskStatus::Waiting
            || self.state.place_of(task) != Some(index)
            || !self.may_start(task, now_s)
        {
            return;
        }
        if self.are_at_hand(&place.gang) && self.queues.is_first(&self.state, index) {
            let strategy = Strategy::clone(&place.strategy);
            if self.may_take_host_memory(task, &strategy, &place.gang, now_s) {
                let gang = (place.gang.clone(), place.until_step);
                self.launch(task, Purpose::Train, strategy, gang, now_s);
            }
        }
    }

    /// Whether nothing but devices keeps a task from starting. Where it is only time, a timer is set.
    pub(crate) fn may_start(&mut self, task: TaskId, now_s: f64) -> bool {
        let state = self.state.task(task);
        let due_s = state.not_before_s.max(state.spec.wishes.release_s);
        if due_s > now_s {
            self.timers.set(due_s, Timer::Task(task));
            return false;
        }
        self.state.waits_for(task).next().is_none()
    }

    /// A plan has just been adopted: what trains goes on, up to the step that it says, or is stopped.
    pub(crate) fn take_up_plan(&mut self, now_s: f64) {
        let Some(plan) = &self.state.plan else { return };
        let stays = staying(&self.state, &plan.places);
        let running: Vec<AttemptId> = self
            .state
            .attempts
            .iter()
            .filter(|(_, attempt)| attempt.purpose == Purpose::Train)
            .map(|(id, _)| *id)
            .collect();
        for id in running {
            let Some(index) = stays.get(&id) else {
                self.stop(id, StopReason::Replan, now_s);
                continue;
            };
            let Some(plan) = &self.state.plan else { return };
            let until_step = plan.places[*index].until_step;
            let attempt = &self.state.attempts[&id];
            let technique = &attempt.strategy.technique;
            if attempt.until_step == until_step
                || self.state.config.level_of(technique) == Level::BlackBox
            {
                continue;
            }
            self.commit(Record::Until { attempt: id, step: until_step }, now_s);
            self.act(Action::Until { attempt: id, step: until_step });
        }
    }
}
