//! A driver that stood still, and heard nothing meanwhile.
//!
//! A full disk, a shared disk that hangs, a stopped terminal or a debugger can keep the driver from
//! listening for minutes. What its ranks said meanwhile waits to be read. So that time counts
//! neither as their silence, nor as the time that killed processes took to end. The reports that
//! waited come all at once: they tell how far an attempt is, and not how fast.

use crate::facts::record::Record;
use crate::ledger::book::Ledger;
use crate::state::attempt::Attempt;

/// Within so many seconds the driver has read what waited for it.
const READ_S: f64 = 2.0;

/// A shorter standstill is not recorded, seconds. If the disk is as slow as this, each record makes
/// the driver stand still once more.
const LEAST_RECORDED_S: f64 = 2.0;

/// Forgives all attempts the seconds for which the driver stood still, and clocks their steps anew.
/// Timers that have become due meanwhile are looked at, and set again for the later times. The record
/// tells people why tasks took longer than planned.
pub(crate) fn stood_still(ledger: &mut Ledger, for_s: f64, now_s: f64) {
    let later = |at_s: f64| (at_s + for_s).min(now_s).max(at_s);
    for attempt in ledger.state.attempts.values_mut() {
        attempt.heard_s = later(attempt.heard_s);
        attempt.killed_s = attempt.killed_s.map(later);
        attempt.echo_s = attempt.echo_s.map(later);
        clock_anew(attempt, now_s);
    }
    if for_s >= LEAST_RECORDED_S && ledger.state.ended.is_none() {
        ledger.commit(Record::StoodStill { for_s }, now_s);
    }
}

/// Clocks an attempt's steps anew, once its reports that have waited are read.
pub(crate) fn clock_anew(attempt: &mut Attempt, now_s: f64) {
    attempt.settled_s = now_s + READ_S;
    (attempt.warm, attempt.recorded, attempt.recent, attempt.last_report) =
        (None, None, None, None);
}
