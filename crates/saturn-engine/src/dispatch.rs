//! Following the plan: what starts when.
//!
//! A planned task starts as soon as nothing that the plan puts before it on any of its devices is
//! unfinished and no live attempt holds them: the plan's order binds, its times do not, so that what
//! ends early lets its successors start early.

use crate::engine::Engine;
use crate::forecast::devices;
use crate::record::{PlannedTask, Purpose, StopReason};
use crate::state::TaskStatus;

impl Engine {
    pub(crate) fn follow_plan(&mut self, now_s: f64) {
        let Some(plan) = self.state.plan().map(|plan| plan.tasks.clone()) else { return };
        self.stop_misplaced(&plan, now_s);
        let mut blocked: Vec<(usize, u32)> =
            self.state.live_attempts().flat_map(|(_, attempt)| devices(&attempt.gang)).collect();
        for planned in &plan {
            let task = self.state.task(planned.task);
            if matches!(task.status, TaskStatus::Ended(_)) {
                continue;
            }
            let is_waiting = task.status == TaskStatus::Waiting;
            let is_due = task.not_before_s <= now_s;
            let is_free = devices(&planned.gang).all(|device| !blocked.contains(&device));
            blocked.extend(devices(&planned.gang));
            if is_waiting && is_due && is_free {
                let (strategy, gang) = (planned.strategy.clone(), planned.gang.clone());
                self.launch(planned.task, Purpose::Train, strategy, gang, now_s);
            }
        }
    }

    /// Stops running tasks that the plan in force puts elsewhere.
    fn stop_misplaced(&mut self, plan: &[PlannedTask], now_s: f64) {
        for planned in plan {
            let TaskStatus::Running(id) = self.state.task(planned.task).status else { continue };
            let Some(attempt) = self.state.attempts.get(&id) else { continue };
            if attempt.strategy != planned.strategy || attempt.gang != planned.gang {
                self.stop(id, StopReason::Replan, now_s);
            }
        }
    }
}
