//! What a failure means: kill the rest of the gang, find the cause, retry or give up.
//!
//! - The first failure of any rank kills its whole gang. One that is only an echo of another's
//!   ([`FailureKind::PeerLost`]) does so after a moment, in which the cause may be heard.
//! - A strategy that ran out of memory, or that its technique refuses, or that was killed from outside
//!   twice in a row, is excluded for that task, and a new plan is made.
//! - What the task's own functions raise is not retried, unless the attempt had trained some steps:
//!   then it may be the data's or the machine's whim.
//! - Everything else goes back to the last checkpoint after a wait that doubles with each failure,
//!   until `max_failures` in a row without a new checkpoint.

use saturn_core::Strategy;

use crate::config::Level;
use crate::engine::Engine;
use crate::event::{FailureKind, RankFailure};
use crate::ids::{AttemptId, TaskId};
use crate::record::{AttemptEnd, Purpose, Record, TaskEnd};
use crate::state::{Attempt, Phase, TaskStatus};

/// How long the cause of an echo is waited for, seconds.
pub(crate) const ECHO_GRACE_S: f64 = 2.0;

impl Engine {
    /// Notes a rank's failure and kills its gang: at once, or where it is only an echo once the
    /// cause has had time to be heard.
    pub(crate) fn rank_failed(&mut self, id: AttemptId, failure: RankFailure, now_s: f64) {
        let Some(attempt) = self.state.attempts.get_mut(&id) else { return };
        attempt.failed_ranks.insert(failure.rank);
        if attempt.killing {
            // It dies because it was told to: whatever it says now is no cause.
            return;
        }
        if failure.kind == FailureKind::PeerLost {
            attempt.echo_s = attempt.echo_s.or(Some(now_s));
            attempt.failure.get_or_insert(failure);
        } else {
            attempt.failure = Some(failure);
            self.kill(id);
        }
    }

    /// When an attempt is to be killed unless it is heard of: an echo whose cause stays unknown, or
    /// silence. A black-box technique may train in processes of its own, of which nothing is heard:
    /// its silence means nothing.
    pub(crate) fn overdue_at_s(&self, attempt: &Attempt) -> Option<f64> {
        let config = &self.state.config;
        let is_managed = config.level_of(&attempt.strategy) == Level::Managed;
        let silence_s = is_managed.then_some(attempt.heard_s + config.policy.stall_s);
        let echo_s = attempt.echo_s.map(|echo_s| echo_s + ECHO_GRACE_S);
        echo_s.or(silence_s).filter(|_| !attempt.killing)
    }

    /// Kills attempts that are overdue.
    pub(crate) fn kill_overdue(&mut self, now_s: f64) {
        let overdue: Vec<(AttemptId, bool)> = self
            .state
            .live_attempts()
            .filter(|(_, attempt)| self.overdue_at_s(attempt).is_some_and(|at_s| at_s <= now_s))
            .map(|(id, attempt)| (id, attempt.echo_s.is_some()))
            .collect();
        let stall_s = self.state.config.policy.stall_s;
        for (id, has_echo) in overdue {
            if has_echo {
                self.kill(id);
            } else {
                let failure = RankFailure {
                    rank: 0,
                    kind: FailureKind::Stalled,
                    error: format!("nothing was heard for {stall_s:.0} s"),
                    traceback: String::new(),
                };
                self.rank_failed(id, failure, now_s);
            }
        }
    }

    pub(crate) fn launch_failed(&mut self, id: AttemptId, error: String, now_s: f64) {
        let kind = FailureKind::Machine;
        let failure = RankFailure { rank: 0, kind, error, traceback: String::new() };
        self.rank_failed(id, failure, now_s);
        self.gang_gone(id, now_s);
    }

    /// Concludes an attempt, all of whose processes are gone.
    pub(crate) fn gang_gone(&mut self, id: AttemptId, now_s: f64) {
        let Some(attempt) = self.state.attempts.get(&id).filter(|attempt| attempt.is_live()) else {
            return;
        };
        let (task, purpose, step) = (attempt.task, attempt.purpose, attempt.step);
        let saved_step = self.state.task(task).checkpoint_step;
        let has_trial_outcome = match purpose {
            Purpose::Trial(trial) => self.state.trials[trial].outcome.is_some(),
            Purpose::Train => false,
        };
        let is_to_stop = attempt.stopping.is_some() || attempt.until_step.is_some();
        let failure = match &attempt.failure {
            // A rank may fail while it tears down after the gang has done its work.
            Some(failure) if !attempt.completed => failure.clone(),
            None if !attempt.completed && !attempt.killing => RankFailure {
                rank: 0,
                kind: FailureKind::Died,
                error: "all ranks ended without saying that they were done".to_owned(),
                traceback: String::new(),
            },
            _ => {
                let end = if !attempt.completed {
                    AttemptEnd::Killed
                } else if is_to_stop && !self.is_trained(task, step) {
                    AttemptEnd::Stopped
                } else {
                    AttemptEnd::Finished
                };
                let step = if end == AttemptEnd::Killed { saved_step } else { step };
                self.commit(Record::Ended { attempt: id, end, step }, now_s);
                if purpose == Purpose::Train && self.is_trained(task, step) {
                    let loss = self.state.task(task).loss;
                    self.commit(Record::TaskEnded { task, end: TaskEnd::Done { loss } }, now_s);
                }
                return;
            }
        };
        let end = AttemptEnd::Failed { failure: failure.clone() };
        self.commit(Record::Ended { attempt: id, end, step: saved_step }, now_s);
        match purpose {
            Purpose::Trial(_) if has_trial_outcome => {}
            Purpose::Trial(trial) => self.trial_failed(id, trial, failure, now_s),
            Purpose::Train => self.recover(id, task, &failure, step, now_s),
        }
    }

    /// Whether a task that has finished `step` steps is done.
    fn is_trained(&self, task: TaskId, step: u64) -> bool {
        self.state.task(task).steps.is_some_and(|steps| step >= steps)
    }

    fn recover(
        &mut self,
        id: AttemptId,
        task: TaskId,
        failure: &RankFailure,
        reached: u64,
        now_s: f64,
    ) {
        let Some(attempt) = self.state.attempts.get(&id) else { return };
        let has_trained = attempt.started.is_some_and(|(from, _)| reached > from);
        let strategy = attempt.strategy.clone();
        let failures = self.state.task(task).failures + 1;
        let may_retry = failures < self.state.config.policy.max_failures;
        match failure.kind {
            FailureKind::OutOfMemory | FailureKind::NotApplicable => {
                let reason = failure.error.clone();
                self.commit(Record::Excluded { task, strategy, reason }, now_s);
            }
            // Once may be a person or a passing shortage; twice is the strategy.
            FailureKind::Killed if self.was_killed_before(id, task, &strategy) => {
                let reason = failure.error.clone();
                self.commit(Record::Excluded { task, strategy, reason }, now_s);
            }
            FailureKind::Task if !has_trained => self.give_up(task, failure, now_s),
            _ if may_retry => {
                let doublings = i32::try_from(failures - 1).unwrap_or(i32::MAX).min(10);
                let wait_s = self.state.config.policy.backoff_s * 2.0_f64.powi(doublings);
                self.commit(Record::Retrying { task, not_before_s: now_s + wait_s }, now_s);
            }
            _ => self.give_up(task, failure, now_s),
        }
    }

    /// Whether the attempt before this one was killed too, under the same strategy, and no step was
    /// saved since.
    fn was_killed_before(&self, id: AttemptId, task: TaskId, strategy: &Strategy) -> bool {
        let before = self.state.training_attempts(task).filter(|(other, _)| *other < id).last();
        let saved_step = self.state.task(task).checkpoint_step;
        before.is_some_and(|(_, attempt)| {
            attempt.strategy == *strategy
                && attempt.was_killed_from_outside()
                && attempt.ended_at_step() == Some(saved_step)
        })
    }

    fn give_up(&mut self, task: TaskId, failure: &RankFailure, now_s: f64) {
        let end =
            TaskEnd::Failed { error: failure.error.clone(), traceback: failure.traceback.clone() };
        self.commit(Record::TaskEnded { task, end }, now_s);
    }

    /// Gives up tasks that no technique can run.
    pub(crate) fn give_up_hopeless(&mut self, now_s: f64) {
        if self.state.phase() != Phase::Planning {
            return;
        }
        let hopeless: Vec<(TaskId, TaskEnd)> = self
            .state
            .task_ids()
            .filter(|task| self.state.task(*task).status == TaskStatus::Waiting)
            .filter_map(|task| Some((task, self.why_hopeless(task)?)))
            .collect();
        for (task, end) in hopeless {
            self.commit(Record::TaskEnded { task, end }, now_s);
        }
    }
}
