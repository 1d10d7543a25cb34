//! Attempts that run out of memory beside a program outside Saturn, which took the memory.
//!
//! - Such a failure says nothing of the strategy: it excludes none, a trial has no outcome by it,
//!   and nothing is stored for later runs. The device is left to the other program (`outside`), and
//!   the attempt is repeated on others.
//! - If a person shares the device with the other program, it is used again. So that an attempt is
//!   not repeated there for ever, the failure counts as one that chance may cause.

use crate::facts::failure::{FailureKind, RankFailure};
use crate::health::memory::{Beside, Health};
use crate::ledger::book::Ledger;
use crate::measuring::trials::trial_failed;
use crate::state::attempt::Attempt;

/// Who used devices of an attempt beside it, if it ran out of their memory.
pub(crate) fn cramped_by(health: &Health, attempt: &Attempt, kind: FailureKind) -> Option<Beside> {
    if kind != FailureKind::OutOfMemory {
        return None;
    }
    health.outside.beside(attempt)
}

/// The failure of an attempt; of memory that others used, it says so.
pub(crate) fn with_who_cramped(
    health: &Health,
    attempt: &Attempt,
    failure: RankFailure,
) -> RankFailure {
    match cramped_by(health, attempt, failure.kind) {
        Some(Beside { user, .. }) => {
            let error = format!("{} (outside Saturn, {user} uses the device too)", failure.error);
            RankFailure { error, ..failure }
        }
        None => failure,
    }
}

/// A trial's gang is gone without an outcome: it failed, unless others cramped it.
pub(crate) fn trial_gone(
    ledger: &mut Ledger,
    health: &Health,
    attempt: &Attempt,
    failure: RankFailure,
    now_s: f64,
) {
    match cramped_by(health, attempt, failure.kind) {
        None => trial_failed(ledger, attempt, failure, now_s),
        Some(Beside { is_shared: false, .. }) => {}
        Some(Beside { is_shared: true, .. }) => {
            let failure = RankFailure { kind: FailureKind::Machine, ..failure };
            trial_failed(ledger, attempt, failure, now_s);
        }
    }
}
