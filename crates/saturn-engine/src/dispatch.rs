//! Following the plan: what starts when.
//!
//! What is planned starts as soon as nothing that the plan puts before it on any of its devices is
//! unfinished and no live attempt holds them: the plan's order binds, its times do not, so that what
//! ends early lets its successors start early.
//!
//! A task that is to be switched has several places in the plan. Its checkpoint says which one it is
//! in: the first whose last step it has not saved. So nothing else need be remembered of a switch,
//! and a crash before, in or after one leads back to the same place.

use crate::engine::Engine;
use crate::forecast::devices;
use crate::ids::TaskId;
use crate::record::{PlannedTask, Purpose, StopReason};
use crate::state::{State, TaskStatus};

impl Engine {
    pub(crate) fn follow_plan(&mut self, now_s: f64) {
        let Some(plan) = self.state.plan().map(|plan| plan.tasks.clone()) else { return };
        self.stop_misplaced(&plan, now_s);
        let mut blocked: Vec<(usize, u32)> =
            self.state.live_attempts().flat_map(|(_, attempt)| devices(&attempt.gang)).collect();
        for (index, planned) in plan.iter().enumerate() {
            let task = self.state.task(planned.task);
            let is_over = matches!(task.status, TaskStatus::Ended(_));
            if is_over || planned.is_done_at(task.checkpoint_step) {
                continue;
            }
            let is_next = current_place(&self.state, &plan, planned.task) == Some(index);
            let is_waiting = task.status == TaskStatus::Waiting;
            let is_due = task.not_before_s <= now_s;
            let is_free = devices(&planned.gang).all(|device| !blocked.contains(&device));
            blocked.extend(devices(&planned.gang));
            if is_next && is_waiting && is_due && is_free {
                let place = (planned.gang.clone(), planned.until_step);
                let strategy = planned.strategy.clone();
                self.launch(planned.task, Purpose::Train, strategy, place, now_s);
            }
        }
    }

    /// Stops running tasks that the plan in force puts elsewhere, now or from the step that they have
    /// reached.
    fn stop_misplaced(&mut self, plan: &[PlannedTask], now_s: f64) {
        for task in self.state.task_ids() {
            let TaskStatus::Running(id) = self.state.task(task).status else { continue };
            let Some(attempt) = self.state.attempts.get(&id) else { continue };
            let saved_step = self.state.task(task).checkpoint_step;
            let stops_by_itself = attempt.until_step.is_some_and(|until| saved_step >= until);
            let Some(place) = current_place(&self.state, plan, task) else { continue };
            let planned = &plan[place];
            if stops_by_itself {
                continue;
            }
            if attempt.strategy != planned.strategy || attempt.gang != planned.gang {
                self.stop(id, StopReason::Replan, now_s);
            } else if attempt.until_step != planned.until_step && planned.is_done_at(attempt.step) {
                // It was launched by another plan, and knows nothing of this switch.
                self.stop(id, StopReason::Switch, now_s);
            }
        }
    }
}

/// Where a task stands in a plan: its first place that its newest checkpoint is not beyond.
pub(crate) fn current_place(state: &State, plan: &[PlannedTask], task: TaskId) -> Option<usize> {
    let saved_step = state.task(task).checkpoint_step;
    plan.iter().position(|planned| planned.task == task && !planned.is_done_at(saved_step))
}
