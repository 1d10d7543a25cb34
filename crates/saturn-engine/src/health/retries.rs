//! Whether a failed task is tried again, when, and under which strategies.
//!
//! - A strategy is excluded for the task if it ran out of memory, or if its technique refuses it.
//!   It is excluded too if the task was killed under it twice in a row, from outside or by the
//!   kernel for the machine's memory. Memory that programs outside Saturn use is no strategy's
//!   fault (`cramped`).
//! - An error that the task's own functions raise is not retried, unless the attempt had trained
//!   some steps: then the data or the machine may be the cause. A failure that would repeat
//!   (`FailureKind::Certain`) is never retried.
//! - A failure of one of Saturn's own processes, or of a node, counts neither as the task's nor as
//!   the device's. But a task whose attempts meet such failures again and again, without a new
//!   checkpoint, is given up: the task may be the cause (`FailureKind::SaturnRepeated`).
//! - A full disk is nobody's failure: the task waits until there is space (`disks`).
//! - Every other failure sends the task back to its last checkpoint after a wait. The wait doubles
//!   with each failure. After `max_failures` in a row without a new checkpoint, the task is given
//!   up. Failures that turn out to be a device's don't count (`devices`).

use crate::facts::failure::{FailureKind, RankFailure};
use crate::facts::ids::TaskId;
use crate::facts::record::{Purpose, Record, TaskEnd};
use crate::health::cramped::cramped_by;
use crate::health::memory::Health;
use crate::ledger::book::Ledger;
use crate::ledger::timers::Timer;
use crate::measuring::cooldowns::Cooldowns;
use crate::state::attempt::Attempt;
use crate::state::space::NO_SPACE_WAIT_S;

/// This many failures of Saturn's own processes in a row, without a new checkpoint, don't count as
/// the task's. The next failure does.
const MAX_SATURN_FAILURES: u32 = 10;

/// How often the wait before a retry doubles at most.
const MAX_DOUBLINGS: u32 = 10;

/// How often the wait doubles at most after failures of Saturn's own processes.
const MAX_SATURN_DOUBLINGS: u32 = 6;

/// Has a failed task tried again, as before or under another strategy, or gives it up. `counts`:
/// whether the failure counts as the task's own.
pub(crate) fn recover(
    ledger: &mut Ledger,
    health: &mut Health,
    attempt: &Attempt,
    failure: &RankFailure,
    counts: bool,
    now_s: f64,
) {
    let task = attempt.task;
    let has_trained = attempt.started.is_some_and(|(from, _)| attempt.step > from);
    let key = attempt.strategy.key();
    let beside = cramped_by(health, attempt, failure.kind);
    let counts = counts && beside.as_ref().is_none_or(|beside| beside.is_shared);
    let failures = ledger.state.task(task).failures + u32::from(counts);
    let may_retry = failures < ledger.state.config.policy.max_failures;
    let was_killed_before = ledger.was_killed.get(&task) == Some(&key);
    match failure.kind {
        FailureKind::OutOfMemory if beside.is_some() && (may_retry || !counts) => {
            let not_before_s = now_s + retry_wait_s(ledger, failures);
            ledger.commit(Record::Retrying { task, not_before_s, counts }, now_s);
        }
        FailureKind::OutOfMemory | FailureKind::NotApplicable => {
            let reason = failure.error.clone();
            ledger.commit(Record::Excluded { task, key, reason }, now_s);
        }
        // One kill may be a person or a passing shortage; two are the strategy's fault.
        FailureKind::Killed | FailureKind::HostMemory if was_killed_before => {
            let reason = failure.error.clone();
            ledger.commit(Record::Excluded { task, key, reason }, now_s);
        }
        FailureKind::NoSpace => {
            let not_before_s = now_s + NO_SPACE_WAIT_S;
            ledger.commit(Record::Retrying { task, not_before_s, counts: false }, now_s);
        }
        FailureKind::Saturn => {
            let not_before_s = now_s + saturn_wait_s(ledger, health, task);
            ledger.commit(Record::Retrying { task, not_before_s, counts: false }, now_s);
        }
        FailureKind::Certain | FailureKind::SaturnRepeated => {
            give_up(ledger, task, failure, now_s);
        }
        FailureKind::Task if !has_trained => give_up(ledger, task, failure, now_s),
        _ if may_retry => {
            let not_before_s = now_s + retry_wait_s(ledger, failures);
            ledger.commit(Record::Retrying { task, not_before_s, counts }, now_s);
        }
        _ => give_up(ledger, task, failure, now_s),
    }
}

/// Seconds before a retry where Saturn's own processes have failed under a task.
fn saturn_wait_s(ledger: &Ledger, health: &Health, task: TaskId) -> f64 {
    let in_a_row = health.saturn_failures.tasks.get(&task).map_or(1, |(_, number)| *number);
    retry_wait_s(ledger, in_a_row.min(1 + MAX_SATURN_DOUBLINGS))
}

/// Seconds before a retry after so many failures in a row.
fn retry_wait_s(ledger: &Ledger, failures: u32) -> f64 {
    let doublings = failures.saturating_sub(1).min(MAX_DOUBLINGS);
    ledger.state.config.policy.backoff_s * f64::from(1_u32 << doublings)
}

fn give_up(ledger: &mut Ledger, task: TaskId, failure: &RankFailure, now_s: f64) {
    ledger.end_task(task, TaskEnd::of_failure(failure), now_s);
}

/// A failure of Saturn's own processes counts as the task's if it has happened too often in a row.
/// Until then the inspections and trials of the group rest for a while.
pub(crate) fn blame_task_if_repeated(
    ledger: &mut Ledger,
    health: &mut Health,
    cooldowns: &mut Cooldowns,
    attempt: &Attempt,
    failure: RankFailure,
    saved_step: u64,
    now_s: f64,
) -> RankFailure {
    if failure.kind != FailureKind::Saturn {
        return failure;
    }
    let in_a_row = health.saturn_failures.add(attempt.task, saved_step);
    if in_a_row <= MAX_SATURN_FAILURES {
        if attempt.purpose != Purpose::Train {
            let until_s = now_s + saturn_wait_s(ledger, health, attempt.task);
            let group = ledger.state.task(attempt.task).group;
            cooldowns.start(group, until_s);
            ledger.timers.set(until_s, Timer::Trials);
        }
        return failure;
    }
    let times = MAX_SATURN_FAILURES + 1;
    let error = format!("{} ({times} times in a row, under this task)", failure.error);
    RankFailure { kind: FailureKind::SaturnRepeated, error, ..failure }
}
