//! How an attempt fails, and what its end means.
//!
//! - The first failure of any rank kills its whole gang. A failure that is only an echo of another
//!   rank's (`FailureKind::PeerLost`) does so after a moment, in which the cause may be heard.
//! - Once all of a gang's processes are gone, its end is recorded. Whether a device is to blame:
//!   `devices`. Whether the task is tried again: `retries`.

use crate::facts::failure::{FailureKind, RankFailure};
use crate::facts::ids::AttemptId;
use crate::facts::record::{AttemptEnd, Purpose, Record, TaskEnd};
use crate::health::cramped::{trial_gone, with_who_cramped};
use crate::health::devices::{abandon, abandoned_gone, blame_device_or_task};
use crate::health::memory::Health;
use crate::health::retries::{blame_task_if_repeated, recover};
use crate::ledger::book::Ledger;
use crate::ledger::timers::{ECHO_GRACE_S, Timer, overdue_at_s};
use crate::measuring::cooldowns::Cooldowns;
use crate::measuring::inspections::inspection_failed;
use crate::measuring::training::{note_rest, put_on_record};
use crate::state::attempt::Attempt;

/// Notes a rank's failure and kills its gang. If the failure is only an echo, the gang is killed
/// once the cause has had time to be heard.
pub(crate) fn rank_failed(ledger: &mut Ledger, id: AttemptId, failure: RankFailure, now_s: f64) {
    let Some(attempt) = ledger.state.attempts.get_mut(&id) else { return };
    attempt.failed_ranks.insert(failure.rank);
    if attempt.is_dying() {
        // The gang dies because it was told to: whatever a rank reports now is no cause.
        return;
    }
    if failure.kind == FailureKind::PeerLost {
        attempt.echo_s = attempt.echo_s.or(Some(now_s));
        attempt.failure.get_or_insert(failure);
        ledger.timers.set(now_s + ECHO_GRACE_S, Timer::Attempt(id));
    } else {
        attempt.failure = Some(failure);
        ledger.kill(id, now_s);
    }
}

/// Deals with an attempt that may be overdue.
pub(crate) fn look_at_attempt(ledger: &mut Ledger, health: &mut Health, id: AttemptId, now_s: f64) {
    let Some(attempt) = ledger.state.attempts.get(&id) else { return };
    let Some(at_s) = overdue_at_s(&ledger.state, attempt) else { return };
    if at_s > now_s {
        ledger.timers.set(at_s, Timer::Attempt(id));
    } else if attempt.is_dying() {
        abandon(ledger, health, id, now_s);
    } else if attempt.echo_s.is_some() {
        ledger.kill(id, now_s);
    } else {
        let stall_s = ledger.state.config.policy.stall_s;
        let failure = RankFailure {
            rank: 0,
            kind: FailureKind::Stalled,
            error: format!("the task's processes reported nothing for {stall_s:.0} s"),
            traceback: String::new(),
        };
        rank_failed(ledger, id, failure, now_s);
    }
}

pub(crate) fn launch_failed(
    ledger: &mut Ledger,
    health: &mut Health,
    cooldowns: &mut Cooldowns,
    id: AttemptId,
    kind: FailureKind,
    error: String,
    now_s: f64,
) {
    let failure = RankFailure { rank: 0, kind, error, traceback: String::new() };
    let Some(attempt) = ledger.state.attempts.get_mut(&id) else {
        return abandoned_gone(ledger, health, id, now_s);
    };
    // When an agent dies its ranks die too. A rank may have said before why it fails.
    let is_echo = |failure: &RankFailure| failure.kind == FailureKind::PeerLost;
    if attempt.failure.as_ref().is_none_or(is_echo) {
        attempt.failure = Some(failure);
    }
    gang_gone(ledger, health, cooldowns, id, now_s);
}

/// Concludes an attempt, all of whose processes are gone.
pub(crate) fn gang_gone(
    ledger: &mut Ledger,
    health: &mut Health,
    cooldowns: &mut Cooldowns,
    id: AttemptId,
    now_s: f64,
) {
    let Some(attempt) = ledger.state.attempts.get(&id).cloned() else { return };
    if attempt.is_lost && !attempt.completed {
        return ledger.lose(id, now_s);
    }
    put_on_record(ledger, id, now_s);
    let task = attempt.task;
    let saved_step = ledger.state.task(task).checkpoint_step;
    let step_s = trained_step_s(ledger, &attempt);
    let failure = match &attempt.failure {
        // A rank may fail while it tears down after the gang has done its work.
        Some(failure) if !attempt.completed => failure.clone(),
        None if !attempt.completed && !attempt.is_dying() => RankFailure {
            rank: 0,
            kind: FailureKind::Died,
            error: "all ranks ended without saying that they were done".to_owned(),
            traceback: String::new(),
        },
        _ => return conclude_without_failure(ledger, id, &attempt, step_s, now_s),
    };
    let failure = with_who_cramped(health, &attempt, failure);
    let failure =
        blame_task_if_repeated(ledger, health, cooldowns, &attempt, failure, saved_step, now_s);
    let end = AttemptEnd::Failed { failure: failure.clone() };
    ledger.commit(Record::Ended { attempt: id, end, step: saved_step, step_s }, now_s);
    let is_absolved = failure.kind.may_be_machines_fault()
        && blame_device_or_task(ledger, health, &attempt, now_s);
    // A trial speaks for all tasks of its group, also where its own task was cancelled meanwhile.
    if ledger.state.has_ended(task) && attempt.purpose != Purpose::Trial {
        return;
    }
    match attempt.purpose {
        Purpose::Inspection => inspection_failed(ledger, &attempt, &failure, now_s),
        Purpose::Trial => trial_gone(ledger, health, &attempt, failure, now_s),
        Purpose::Train => recover(ledger, health, &attempt, &failure, !is_absolved, now_s),
    }
}

/// An attempt ended as it should, or because it was told to die.
fn conclude_without_failure(
    ledger: &mut Ledger,
    id: AttemptId,
    attempt: &Attempt,
    step_s: Option<f64>,
    now_s: f64,
) {
    let task = attempt.task;
    let step = attempt.step;
    let has_all_steps = ledger.state.task(task).steps.is_some_and(|steps| step >= steps);
    let is_trained = attempt.purpose == Purpose::Train
        && attempt.completed
        && (has_all_steps || attempt.says_trained);
    let was_to_stop = attempt.stopping.is_some() || attempt.until_step.is_some();
    let (end, step) = if !attempt.completed {
        (AttemptEnd::Killed, ledger.state.task(task).checkpoint_step)
    } else if was_to_stop && !is_trained {
        (AttemptEnd::Stopped, step)
    } else {
        (AttemptEnd::Finished, step)
    };
    let is_done = is_trained && end == AttemptEnd::Finished;
    if is_done {
        note_rest(ledger, id, now_s);
    }
    ledger.commit(Record::Ended { attempt: id, end, step, step_s }, now_s);
    if is_done && !ledger.state.has_ended(task) {
        let loss = ledger.state.task(task).loss;
        ledger.end_task(task, TaskEnd::Done { loss }, now_s);
    }
}

/// Seconds a step that an attempt took, where it trained long enough to tell.
fn trained_step_s(ledger: &Ledger, attempt: &Attempt) -> Option<f64> {
    let tells = attempt.purpose == Purpose::Train && ledger.state.is_in_shape(attempt);
    tells.then(|| ledger.state.observed_step_s(attempt)).flatten()
}
