//! What ranks say, and how their processes end.

use saturn_core::TrialOutcome;

use crate::facts::event::RankReport;
use crate::facts::failure::{FailureKind, RankFailure};
use crate::facts::ids::AttemptId;
use crate::facts::record::{Purpose, Record};
use crate::following::host_memory::HostMemoryQueue;
use crate::health::cramped::cramped_by;
use crate::health::deaths::died;
use crate::health::devices::abandoned_rank_gone;
use crate::health::failures::{gang_gone, rank_failed};
use crate::health::memory::Health;
use crate::ledger::book::Ledger;
use crate::measuring::cooldowns::Cooldowns;
use crate::measuring::inspections::inspected;
use crate::measuring::training::{note_first_steps, note_interval};
use crate::measuring::trials::trial_reported;
use crate::state::attempt::Attempt;

/// Takes in a rank's report. Returns whether timers and rooms should be looked at because of it.
pub(crate) fn reported(
    ledger: &mut Ledger,
    health: &Health,
    host_memory: &HostMemoryQueue,
    (id, rank): (AttemptId, u32),
    report: RankReport,
    now_s: f64,
) -> bool {
    let Some(attempt) = ledger.state.attempts.get_mut(&id) else { return false };
    attempt.heard_s = now_s;
    let task = attempt.task;
    match report {
        RankReport::Alive => return false,
        RankReport::Progress { step, loss, step_s } => {
            ledger.state.observe(id, step, loss, step_s, now_s);
            let is_new = note_first_steps(ledger, id, now_s);
            return note_interval(ledger, id, now_s) || is_new;
        }
        RankReport::Started { step, setup_s } => {
            ledger.commit(Record::Started { attempt: id, step, setup_s }, now_s);
            return false;
        }
        RankReport::Checkpoint { step, save_s, blocked_s, loss } => {
            let record = Record::Checkpointed { attempt: id, step, save_s, blocked_s, loss };
            ledger.commit(record, now_s);
        }
        RankReport::Evaluated { evaluation, best, evaluation_s } => {
            let known = ledger.state.task(task);
            let is_known = known.evaluation.as_ref() == Some(&evaluation) && known.best == best;
            if evaluation_s.is_some() || !is_known {
                let attempt = id;
                let record = Record::Evaluated { attempt, evaluation, best, evaluation_s };
                ledger.commit(record, now_s);
            }
            return false;
        }
        RankReport::Inspected { inspection } => inspected(ledger, id, *inspection, now_s),
        RankReport::Trial { outcome: TrialOutcome::OutOfMemory { detail }, .. }
            if is_cramped_trial(health, attempt) =>
        {
            // Its ranks end by themselves, and the trial has failed then.
            let (kind, error, traceback) = (FailureKind::OutOfMemory, detail, String::new());
            attempt.failed_ranks.insert(rank);
            attempt.failure = Some(RankFailure { rank, kind, error, traceback });
        }
        RankReport::Trial { knobs, outcome, step } => {
            trial_reported(ledger, host_memory, id, knobs, outcome, step, now_s);
        }
        RankReport::Finished { step, loss } => {
            ledger.state.observe(id, step, loss, None, now_s);
            completed(ledger, id, step);
            if let Some(attempt) = ledger.state.attempts.get_mut(&id) {
                attempt.says_trained = true;
            }
        }
        RankReport::Stopped { step } => {
            ledger.state.observe(id, step, None, None, now_s);
            completed(ledger, id, step);
        }
        RankReport::Failed { kind, error, traceback } => {
            rank_failed(ledger, id, RankFailure { rank, kind, error, traceback }, now_s);
        }
        RankReport::Note { text } => {
            ledger.commit(Record::Noted { task: Some(task), text }, now_s);
        }
    }
    true
}

/// Whether a trial that runs out of memory does so beside other programs: then that is no outcome.
fn is_cramped_trial(health: &Health, attempt: &Attempt) -> bool {
    attempt.purpose == Purpose::Trial
        && !attempt.completed
        && cramped_by(health, attempt, FailureKind::OutOfMemory).is_some()
}

fn completed(ledger: &mut Ledger, id: AttemptId, step: u64) {
    if let Some(attempt) = ledger.state.attempts.get_mut(&id) {
        attempt.completed = true;
        attempt.step = step;
    }
}

/// A rank's process has ended and was reaped.
pub(crate) fn rank_exited(
    ledger: &mut Ledger,
    health: &mut Health,
    cooldowns: &mut Cooldowns,
    id: AttemptId,
    (rank, code, last_words): (u32, i32, String),
    now_s: f64,
) {
    let Some(attempt) = ledger.state.attempts.get_mut(&id) else {
        return abandoned_rank_gone(ledger, health, id, now_s);
    };
    attempt.live_ranks = attempt.live_ranks.saturating_sub(1);
    attempt.heard_s = now_s;
    let all_gone = attempt.live_ranks == 0;
    if code != 0 && !attempt.is_dying() && !attempt.failed_ranks.contains(&rank) {
        rank_failed(ledger, id, died(rank, code, last_words), now_s);
    }
    if all_gone {
        gang_gone(ledger, health, cooldowns, id, now_s);
    }
}
