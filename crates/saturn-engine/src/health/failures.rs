//! What a failure means: kill the rest of the gang, find the cause, retry or give up.
//!
//! - The first failure of any rank kills its whole gang. One that is only an echo of another's
//!   ([`FailureKind::PeerLost`]) does so after a moment, in which the cause may be heard.
//! - A strategy that ran out of memory, or that its technique refuses, or that was killed from outside
//!   or by the kernel for the machine's memory twice in a row, is excluded for that task, and a new plan
//!   is made.
//! - What the task's own functions raise is not retried, unless the attempt had trained some steps:
//!   then it may be the data's or the machine's whim.
//! - What would happen again the same way is not retried either.
//! - What fails because a process of Saturn's or a node failed is tried again and counts neither as the
//!   task's nor as its device's failure; but a task under which that happens time after time, without a
//!   new checkpoint, is given up, since it may be the cause.
//! - A full disk is nobody's failure: the task waits until there is space (`space`).
//! - Everything else goes back to the last checkpoint after a wait that doubles with each failure,
//!   until `max_failures` in a row without a new checkpoint. Failures that turn out to be a device's
//!   don't count (`health`).

use std::collections::BTreeMap;

use crate::engine::turn::Engine;
use crate::facts::config::Level;
use crate::facts::failure::{FailureKind, RankFailure};
use crate::facts::ids::{AttemptId, TaskId};
use crate::facts::record::{AttemptEnd, Purpose, Record, TaskEnd};
use crate::ledger::timers::Timer;
use crate::state::attempt::Attempt;
use crate::state::space::NO_SPACE_WAIT_S;

/// How long the cause of an echo is waited for, seconds.
const ECHO_GRACE_S: f64 = 2.0;
/// Failures of Saturn's own in a row, without a new checkpoint between them, that a task is forgiven.
const MAX_SATURN_FAILURES: u32 = 10;
/// How often the wait before a retry doubles at most.
const MAX_DOUBLINGS: u32 = 10;
/// The same after failures of Saturn's own.
const MAX_SATURN_DOUBLINGS: u32 = 6;

/// The signal that the kernel sends when memory has run out.
const SIGKILL: i32 = 9;
/// What a process says in its last words when memory runs out where nobody catches it: in a thread
/// of a library's own.
const OUT_OF_MEMORY_WORDS: [&str; 2] = ["std::bad_alloc", "can't allocate memory"];

/// How often in a row Saturn's own processes have failed under each task, while this process drives the
/// run, and the step of its checkpoint then.
#[derive(Debug, Default)]
pub(crate) struct SaturnFailures {
    tasks: BTreeMap<TaskId, (u64, u32)>,
    /// Until when groups are neither looked at nor tried, seconds.
    rests: BTreeMap<usize, f64>,
}

impl SaturnFailures {
    /// Counts one more; how many there are in a row.
    fn add(&mut self, task: TaskId, saved_step: u64) -> u32 {
        let (step, number) = self.tasks.entry(task).or_insert((saved_step, 0));
        if *step != saved_step {
            (*step, *number) = (saved_step, 0);
        }
        *number += 1;
        *number
    }

    /// Whether looks and trials of a group rest.
    pub(crate) fn has_rest(&self, group: usize, now_s: f64) -> bool {
        self.rests.get(&group).is_some_and(|until_s| now_s < *until_s)
    }
}

impl Engine {
    /// Notes a rank's failure and kills its gang: at once, or where it is only an echo once the
    /// cause has had time to be heard.
    pub(crate) fn rank_failed(&mut self, id: AttemptId, failure: RankFailure, now_s: f64) {
        let Some(attempt) = self.state.attempts.get_mut(&id) else { return };
        attempt.failed_ranks.insert(failure.rank);
        if attempt.is_dying() {
            // It dies because it was told to: whatever it says now is no cause.
            return;
        }
        if failure.kind == FailureKind::PeerLost {
            attempt.echo_s = attempt.echo_s.or(Some(now_s));
            attempt.failure.get_or_insert(failure);
            self.timers.set(now_s + ECHO_GRACE_S, Timer::Attempt(id));
        } else {
            attempt.failure = Some(failure);
            self.kill(id, now_s);
        }
    }

    /// When an attempt must be looked at: its processes outlive their kill, an echo's cause stays
    /// unknown, or it is silent. A black-box technique may train in processes of its own, of which
    /// nothing is heard: its silence means nothing.
    pub(crate) fn overdue_at_s(&self, attempt: &Attempt) -> Option<f64> {
        let config = &self.state.config;
        if let Some(killed_s) = attempt.killed_s {
            return Some(killed_s + config.policy.kill_grace_s);
        }
        if let Some(echo_s) = attempt.echo_s {
            return Some(echo_s + ECHO_GRACE_S);
        }
        let is_managed = config.level_of(&attempt.strategy.technique) == Level::Managed;
        is_managed.then_some(attempt.heard_s + config.policy.stall_s)
    }

    /// Deals with an attempt that may be overdue.
    pub(crate) fn look_at_attempt(&mut self, id: AttemptId, now_s: f64) {
        let Some(attempt) = self.state.attempts.get(&id) else { return };
        let Some(at_s) = self.overdue_at_s(attempt) else { return };
        if at_s > now_s {
            self.timers.set(at_s, Timer::Attempt(id));
        } else if attempt.is_dying() {
            self.abandon(id, now_s);
        } else if attempt.echo_s.is_some() {
            self.kill(id, now_s);
        } else {
            let stall_s = self.state.config.policy.stall_s;
            let failure = RankFailure {
                rank: 0,
                kind: FailureKind::Stalled,
                error: format!("the task's processes reported nothing for {stall_s:.0} s"),
                traceback: String::new(),
            };
            self.rank_failed(id, failure, now_s);
        }
    }

    pub(crate) fn launch_failed(
        &mut self,
        id: AttemptId,
        kind: FailureKind,
        error: String,
        now_s: f64,
    ) {
        let failure = RankFailure { rank: 0, kind, error, traceback: String::new() };
        if let Some(attempt) = self.state.attempts.get_mut(&id) {
            attempt.failure = Some(failure);
        }
        self.gang_gone(id, now_s);
    }

    /// Concludes an attempt, all of whose processes are gone.
    pub(crate) fn gang_gone(&mut self, id: AttemptId, now_s: f64) {
        let Some(attempt) = self.state.attempts.get(&id).cloned() else { return };
        if attempt.is_lost && !attempt.completed {
            return self.lose(id, now_s);
        }
        self.put_on_record(id, now_s);
        let task = attempt.task;
        let saved_step = self.state.task(task).checkpoint_step;
        let step_s = self.trained_step_s(&attempt);
        let failure = match &attempt.failure {
            // A rank may fail while it tears down after the gang has done its work.
            Some(failure) if !attempt.completed => failure.clone(),
            None if !attempt.completed && !attempt.is_dying() => RankFailure {
                rank: 0,
                kind: FailureKind::Died,
                error: "all ranks ended without saying that they were done".to_owned(),
                traceback: String::new(),
            },
            _ => return self.well_gone(id, &attempt, step_s, now_s),
        };
        let failure = self.forgiven_often(&attempt, failure, saved_step, now_s);
        let end = AttemptEnd::Failed { failure: failure.clone() };
        self.commit(Record::Ended { attempt: id, end, step: saved_step, step_s }, now_s);
        let is_absolved = failure.kind.may_be_machines_fault() && self.judge(&attempt, now_s);
        if self.state.has_ended(task) {
            return;
        }
        match attempt.purpose {
            Purpose::Inspection => self.inspection_failed(&attempt, &failure, now_s),
            Purpose::Trial => self.trial_failed(&attempt, failure, now_s),
            Purpose::Train => self.recover(&attempt, &failure, !is_absolved, now_s),
        }
    }

    /// A failure of Saturn's own counts as its task's where it has happened too often in a row. Until then
    /// its group's looks and trials rest for a while.
    fn forgiven_often(
        &mut self,
        attempt: &Attempt,
        failure: RankFailure,
        saved_step: u64,
        now_s: f64,
    ) -> RankFailure {
        if failure.kind != FailureKind::Saturn {
            return failure;
        }
        let in_a_row = self.saturn_failures.add(attempt.task, saved_step);
        if in_a_row <= MAX_SATURN_FAILURES {
            if attempt.purpose != Purpose::Train {
                let until_s = now_s + self.saturn_wait_s(attempt.task);
                let group = self.state.task(attempt.task).group;
                self.saturn_failures.rests.insert(group, until_s);
                self.timers.set(until_s, Timer::Trials);
            }
            return failure;
        }
        let times = MAX_SATURN_FAILURES + 1;
        let error = format!("{} ({times} times in a row, under this task)", failure.error);
        RankFailure { kind: FailureKind::Certain, error, ..failure }
    }

    /// An attempt ended as it should, or because it was told to die.
    fn well_gone(&mut self, id: AttemptId, attempt: &Attempt, step_s: Option<f64>, now_s: f64) {
        let task = attempt.task;
        let step = attempt.step;
        let has_all_steps = self.state.task(task).steps.is_some_and(|steps| step >= steps);
        let is_trained = attempt.purpose == Purpose::Train
            && attempt.completed
            && (has_all_steps || attempt.says_trained);
        let was_to_stop = attempt.stopping.is_some() || attempt.until_step.is_some();
        let (end, step) = if !attempt.completed {
            (AttemptEnd::Killed, self.state.task(task).checkpoint_step)
        } else if was_to_stop && !is_trained {
            (AttemptEnd::Stopped, step)
        } else {
            (AttemptEnd::Finished, step)
        };
        let is_done = is_trained && end == AttemptEnd::Finished;
        if is_done {
            self.note_rest(id, now_s);
        }
        self.commit(Record::Ended { attempt: id, end, step, step_s }, now_s);
        if is_done && !self.state.has_ended(task) {
            let loss = self.state.task(task).loss;
            self.end_task(task, TaskEnd::Done { loss }, now_s);
        }
    }

    /// Seconds a step that an attempt took, where it trained long enough to tell.
    fn trained_step_s(&self, attempt: &Attempt) -> Option<f64> {
        if attempt.purpose == Purpose::Train { self.state.observed_step_s(attempt) } else { None }
    }

    /// Has a failed task tried again, as it was or otherwise, or gives it up. `counts`: whether the
    /// failure is its own.
    pub(crate) fn recover(
        &mut self,
        attempt: &Attempt,
        failure: &RankFailure,
        counts: bool,
        now_s: f64,
    ) {
        let task = attempt.task;
        let has_trained = attempt.started.is_some_and(|(from, _)| attempt.step > from);
        let key = attempt.strategy.key();
        let failures = self.state.task(task).failures + u32::from(counts);
        let may_retry = failures < self.state.config.policy.max_failures;
        let was_killed_before = self.was_killed.get(&task) == Some(&key);
        match failure.kind {
            FailureKind::OutOfMemory | FailureKind::NotApplicable => {
                let reason = failure.error.clone();
                self.commit(Record::Excluded { task, key, reason }, now_s);
            }
            // Once may be a person or a passing shortage; twice is the strategy.
            FailureKind::Killed | FailureKind::HostMemory if was_killed_before => {
                let reason = failure.error.clone();
                self.commit(Record::Excluded { task, key, reason }, now_s);
            }
            FailureKind::NoSpace => {
                let not_before_s = now_s + NO_SPACE_WAIT_S;
                self.commit(Record::Retrying { task, not_before_s, counts: false }, now_s);
            }
            FailureKind::Saturn => {
                let not_before_s = now_s + self.saturn_wait_s(task);
                self.commit(Record::Retrying { task, not_before_s, counts: false }, now_s);
            }
            FailureKind::Certain => self.give_up(task, failure, now_s),
            FailureKind::Task if !has_trained => self.give_up(task, failure, now_s),
            _ if may_retry => {
                let not_before_s = now_s + self.retry_wait_s(failures);
                self.commit(Record::Retrying { task, not_before_s, counts }, now_s);
            }
            _ => self.give_up(task, failure, now_s),
        }
    }

    /// Seconds before a retry where Saturn's own processes have failed under a task.
    fn saturn_wait_s(&self, task: TaskId) -> f64 {
        let in_a_row = self.saturn_failures.tasks.get(&task).map_or(1, |(_, number)| *number);
        self.retry_wait_s(in_a_row.min(1 + MAX_SATURN_DOUBLINGS))
    }

    /// Seconds before a retry after so many failures in a row.
    fn retry_wait_s(&self, failures: u32) -> f64 {
        let doublings = failures.saturating_sub(1).min(MAX_DOUBLINGS);
        self.state.config.policy.backoff_s * f64::from(1_u32 << doublings)
    }

    fn give_up(&mut self, task: TaskId, failure: &RankFailure, now_s: f64) {
        let end =
            TaskEnd::Failed { error: failure.error.clone(), traceback: failure.traceback.clone() };
        self.end_task(task, end, now_s);
    }

    /// Ends a task, and with it those that wait for it in vain.
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
            // A person may have wished otherwise since.
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
}

/// The failure of a rank that died without saying why.
pub(crate) fn died(rank: u32, code: i32, last_words: String) -> RankFailure {
    let (kind, error) = if code == -SIGKILL {
        let error = "killed by signal 9, which Saturn did not send".to_owned();
        (FailureKind::Killed, error)
    } else if let Some(words) =
        OUT_OF_MEMORY_WORDS.into_iter().find(|words| code < 0 && last_words.contains(words))
    {
        let error = format!("the process died of signal {}: {words}", -code);
        (FailureKind::OutOfMemory, error)
    } else if code < 0 {
        (FailureKind::Died, format!("the process died of signal {}", -code))
    } else {
        (FailureKind::Died, format!("the process exited with code {code} and reported no error"))
    };
    RankFailure { rank, kind, error, traceback: last_words }
}
