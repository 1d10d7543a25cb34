//! Launching, stopping and killing attempts, and ending tasks.

use saturn_core::{Gang, Strategy};

use crate::facts::event::Action;
use crate::facts::ids::{AttemptId, TaskId};
use crate::facts::record::{AttemptEnd, Purpose, Record, StopReason, TaskEnd};
use crate::ledger::book::Ledger;
use crate::ledger::timers::Timer;

impl Ledger {
    /// Launches a gang, which trains up to `until_step` or to the end.
    pub(crate) fn launch(
        &mut self,
        task: TaskId,
        purpose: Purpose,
        strategy: Strategy,
        (gang, until_step): (Gang, Option<u64>),
        now_s: f64,
    ) {
        let attempt = self.state.next_attempt();
        let steps = match purpose {
            Purpose::Inspection | Purpose::Trial => None,
            Purpose::Train => self.state.task(task).steps,
        };
        let record = Record::Launched {
            attempt,
            task,
            purpose,
            strategy: strategy.clone(),
            gang: gang.clone(),
            until_step,
        };
        self.commit(record, now_s);
        self.act(Action::Launch { attempt, task, purpose, strategy, gang, steps, until_step });
    }

    /// Asks an attempt to stop at a checkpoint, once. An attempt that could not be resumed from a
    /// checkpoint is stopped only where a person or the stopper asks for it.
    pub(crate) fn stop(&mut self, attempt: AttemptId, reason: StopReason, now_s: f64) {
        let state = self.state.attempts.get(&attempt).filter(|state| {
            state.stopping.is_none()
                && !state.is_dying()
                && !(reason.is_for_gain() && self.state.is_to_stay(state))
        });
        if state.is_some() {
            self.commit(Record::Stopping { attempt, reason }, now_s);
            self.act(Action::Stop { attempt });
        }
    }

    /// Kills an attempt, once.
    pub(crate) fn kill(&mut self, attempt: AttemptId, now_s: f64) {
        if let Some(state) = self.state.attempts.get_mut(&attempt)
            && !state.is_dying()
        {
            state.killed_s = Some(now_s);
            let grace_s = self.state.config.policy.kill_grace_s;
            self.timers.set(now_s + grace_s, Timer::Attempt(attempt));
            self.act(Action::Kill { attempt });
        }
    }

    /// Records that no process of an attempt is left, though nobody stopped it.
    pub(crate) fn lose(&mut self, attempt: AttemptId, now_s: f64) {
        let Some(state) = self.state.attempts.get(&attempt) else { return };
        let step = self.state.task(state.task).checkpoint_step;
        let end = AttemptEnd::Lost;
        self.commit(Record::Ended { attempt, end, step, step_s: None }, now_s);
    }

    /// Ends a task, and cancels the tasks that wait for it in vain.
    pub(crate) fn end_task(&mut self, task: TaskId, end: TaskEnd, now_s: f64) {
        let mut ending = vec![(task, end)];
        while let Some((task, end)) = ending.pop() {
            if self.state.has_ended(task) {
                continue;
            }
            let is_done = matches!(end, TaskEnd::Done { .. });
            let attempt = self.state.attempt_of(task).map(|(id, _)| id);
            self.commit(Record::TaskEnded { task, end }, now_s);
            if let Some(id) = attempt {
                self.kill(id, now_s);
            }
            let followers = self.state.followers.get(&task).cloned().unwrap_or_default();
            // The person may have changed the follower's `after` since.
            let still = |one: &TaskId| self.state.task(*one).spec.wishes.after.contains(&task);
            for follower in followers.into_iter().filter(still).collect::<Vec<_>>() {
                if is_done {
                    self.queues.touch_task(&self.state, follower);
                } else {
                    let reason =
                        format!("it comes after `{}`, which is not done", self.state.name(task));
                    ending.push((follower, TaskEnd::Cancelled { reason }));
                }
            }
        }
    }

    /// Whether nothing but devices keeps a task from starting. Where only time keeps it, a timer is
    /// set.
    pub(crate) fn may_start(&mut self, task: TaskId, now_s: f64) -> bool {
        let due_s = self.state.task(task).may_start_s();
        if due_s > now_s {
            self.timers.set(due_s, Timer::Task(task));
            return false;
        }
        self.state.waits_for(task).next().is_none()
    }
}
