//! The inspection of each group's model, before any trial of the group.
//!
//! One process builds the model once and says of every managed technique and number of devices
//! whether it can run at all. A strategy that can't gets its outcome from that, and no gang is
//! launched for it. An inspection holds no device, so it can start at once; only a few run at the
//! same time. Black-box techniques bring a model of their own: a group that is tried under these
//! alone is not inspected.
//!
//! On CPU slots an inspection takes a core's time, which would slow down the steps that a trial
//! times beside it. So young inspections and trials keep apart there: inspections go first, since
//! they are short, and trials wait on their devices. After `APART_S` nothing waits for an
//! inspection or a trial any more. A loader may fetch its first batch for minutes, and a trial with
//! long steps hardly notices an inspection. Training does not wait: the clocks of its attempts
//! leave out the steps beside a young inspection (`State::observe`).
//!
//! An error of the task's own functions ends that task alone, and the group is inspected with
//! another of its tasks (`blame`). An inspection that fails otherwise is repeated once; then the
//! group goes without, and its trials find what can't run.

use saturn_core::Inspection;

use crate::facts::config::DeviceKind;
use crate::facts::failure::RankFailure;
use crate::facts::ids::AttemptId;
use crate::facts::record::{Purpose, Record, no_strategy};
use crate::ledger::book::Ledger;
use crate::ledger::timers::Timer;
use crate::measuring::cooldowns::Cooldowns;
use crate::state::attempt::Attempt;
use crate::state::blame::{end_of, is_early, is_own_failure};
use crate::state::trials::APART_S;

/// Inspections that run at the same time: they compute, beside attempts that train.
const MAX_AT_ONCE: usize = 2;

/// Launches the inspections that are due, the first come first.
pub(crate) fn launch_inspections(ledger: &mut Ledger, cooldowns: &Cooldowns, now_s: f64) {
    if ledger.state.to_inspect.is_empty() {
        return;
    }
    if keeps_apart_from(ledger, Purpose::Trial, now_s) {
        return;
    }
    let num_at_work = ledger.state.num_inspections();
    let may = |group: &usize| !cooldowns.is_cooling_down(*group, now_s);
    let next = ledger.state.to_inspect.iter().copied().filter(may);
    let next = next.filter_map(|group| ledger.state.representative(group));
    for task in next.take(MAX_AT_ONCE.saturating_sub(num_at_work)).collect::<Vec<_>>() {
        let nowhere = (Vec::new(), None);
        ledger.launch(task, Purpose::Inspection, no_strategy(), nowhere, now_s);
    }
}

/// Whether trials that could start wait for inspections that run or are due.
pub(crate) fn trials_keep_apart(ledger: &mut Ledger, cooldowns: &Cooldowns, now_s: f64) -> bool {
    // A group in a cooldown, or whose tasks are all too early, is inspected later: trials don't
    // wait for that.
    let state = &ledger.state;
    let may = |group: usize| {
        !cooldowns.is_cooling_down(group, now_s) && state.representative(group).is_some()
    };
    let is_due = state.config.device_kind == DeviceKind::Cpu
        && state.to_inspect.iter().any(|group| may(*group))
        && ledger.state.num_inspections() < MAX_AT_ONCE;
    keeps_apart_from(ledger, Purpose::Inspection, now_s) || is_due
}

/// Whether a launch waits for young attempts of a purpose. Sets a timer for when they are old.
fn keeps_apart_from(ledger: &mut Ledger, purpose: Purpose, now_s: f64) -> bool {
    if ledger.state.config.device_kind != DeviceKind::Cpu {
        return false;
    }
    let old_s =
        ledger.state.measuring(purpose).map(|one| one.launched_s + APART_S).fold(0.0, f64::max);
    if old_s > now_s {
        ledger.timers.set(old_s, Timer::Trials);
    }
    old_s > now_s
}

pub(crate) fn inspected(ledger: &mut Ledger, id: AttemptId, inspection: Inspection, now_s: f64) {
    let Some(attempt) = ledger.state.attempts.get_mut(&id) else { return };
    if attempt.purpose != Purpose::Inspection {
        return;
    }
    attempt.completed = true;
    let task = attempt.task;
    let group = ledger.state.group_of(task);
    if group.inspection.found.is_none() {
        let group = group.key.clone();
        ledger.commit(Record::Inspected { group, inspection }, now_s);
    }
}

/// An inspection failed. If the functions of the inspected task are to blame, that task ends.
pub(crate) fn inspection_failed(
    ledger: &mut Ledger,
    attempt: &Attempt,
    failure: &RankFailure,
    now_s: f64,
) {
    if is_early(&ledger.state, attempt, failure.kind) {
        return;
    }
    if is_own_failure(&ledger.state, attempt, failure.kind) {
        let end = end_of(&ledger.state, attempt.task, failure);
        ledger.end_task(attempt.task, end, now_s);
    }
}
