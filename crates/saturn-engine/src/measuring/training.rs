//! What training shows of strategies, put on record for all tasks of their group.
//!
//! A strategy that was planned on an estimate is measured by its own first steps, as soon as their
//! time is known. A strategy that a trial has measured is corrected just before a plan is made.
//! Where training departs from what plans count on, a record says so first. So plans see running
//! and waiting tasks by the same clock, and a resumed run knows the correction too.
//!
//! Each *interval* of an attempt's training is also put on record once, as a measurement of its
//! strategy. The measurement holds for all tasks of the group, and for later runs, which read it
//! from the store. An interval has as many steps as all intervals before it. So records are few,
//! and a crash loses at most half of what was found. An interval that contradicts what plans count
//! on is put on record at once, and a plan is asked for.
//!
//! The part of a script after its training (a *rest*) can't be tried, and is planned by a guess. A
//! rest that has ended is an interval of one step, launch included, for the other rests of its
//! group and later runs.
//!
//! An interval says how long training took beside whatever else ran on the machine.

use saturn_core::{Strategy, Trained};

use crate::facts::ids::AttemptId;
use crate::facts::record::{Purpose, Record};
use crate::ledger::book::Ledger;
use crate::state::attempt::{Attempt, MIN_STEPS_TO_CORRECT};
use crate::state::trial::{TRAINED_SD, TrialState};

/// A shorter interval says too little, seconds: delays of the two reports that bound it would
/// count.
const MIN_INTERVAL_S: f64 = 1.0;
/// Standard deviation of steps from one another, as a part, if no trial has told.
const STEP_SD: f64 = 0.1;
/// Standard deviation of a group's rests from one another, as a part.
const REST_SD: f64 = 0.2;
/// An interval contradicts what plans count on if it departs by more than so many standard
/// deviations.
const CONTRADICTION_SDS: f64 = 2.0;

/// Puts on record the first steps of an attempt that trains under an estimate. Returns whether this
/// call did so.
pub(crate) fn note_first_steps(ledger: &mut Ledger, id: AttemptId, now_s: f64) -> bool {
    let Some(attempt) = ledger.state.attempts.get(&id) else { return false };
    if attempt.purpose != Purpose::Train
        || !ledger.state.chooses_trials()
        || !ledger.state.is_in_shape(attempt)
    {
        return false;
    }
    let Some(step_s) = ledger.state.observed_step_s(attempt) else { return false };
    // Nothing tells yet how the strategy trains on a node that is well.
    let slowness = ledger.state.slowness_of(&attempt.gang, now_s);
    let step_s = step_s / slowness.map_or(1.0, |one| one.factor);
    let gpu_type = ledger.state.gang_type(&attempt.gang);
    let trial = ledger.state.trial_of(attempt.task, &attempt.strategy, gpu_type);
    let is_new = |trial: &TrialState| trial.outcome.is_none() && trial.trained_step_s.is_none();
    if !trial.is_some_and(is_new) {
        return false;
    }
    let record = Record::Observed {
        group: ledger.state.group_of(attempt.task).key.clone(),
        gpu_type: gpu_type.to_owned(),
        strategy: Strategy::clone(&attempt.strategy),
        step_s,
    };
    ledger.commit(record, now_s);
    true
}

/// Puts an interval of training on record once it is as long as all intervals before. Returns
/// whether the interval contradicts what plans count on.
pub(crate) fn note_interval(ledger: &mut Ledger, id: AttemptId, now_s: f64) -> bool {
    let Some(attempt) = ledger.state.attempts.get(&id) else { return false };
    let (Some(warm), Some(from)) = (attempt.warm, attempt.recorded.or(attempt.warm)) else {
        return false;
    };
    if attempt.clocked_since(from).0 < warm.clocked_until(from).0 {
        return false;
    }
    let Some(trained) = put_on_record(ledger, id, now_s) else { return false };
    let Some(attempt) = ledger.state.attempts.get(&id) else { return false };
    let is_like = |other: &&Attempt| {
        other.strategy.is_like(&attempt.strategy)
            && ledger.state.gang_type(&other.gang) == ledger.state.gang_type(&attempt.gang)
    };
    let like = ledger.state.attempts_of_group(ledger.state.task(attempt.task).group);
    let least = CONTRADICTION_SDS * trained.relative_error;
    let departures = ledger.state.departures(least, like.filter(is_like));
    let is_news = !departures.is_empty();
    for record in departures {
        ledger.commit(record, now_s);
        ledger.agenda.ask_again();
    }
    is_news
}

/// Puts an attempt's steps since its last interval on record, if they are enough. Returns what they
/// took.
pub(crate) fn put_on_record(ledger: &mut Ledger, id: AttemptId, now_s: f64) -> Option<Trained> {
    let attempt = ledger.state.attempts.get(&id)?;
    let until = ledger.state.well_until(attempt);
    let (steps, taken_s) = attempt.recorded.or(attempt.warm)?.clocked_until(until);
    let is_enough = steps >= MIN_STEPS_TO_CORRECT && taken_s >= MIN_INTERVAL_S;
    if !is_enough || attempt.purpose != Purpose::Train || !ledger.state.is_in_shape(attempt) {
        return None;
    }
    let gpu_type = ledger.state.gang_type(&attempt.gang);
    let trial = ledger.state.trial_of(attempt.task, &attempt.strategy, gpu_type);
    let step_sd = trial.and_then(TrialState::variation).unwrap_or(STEP_SD);
    let trained = Trained {
        step_s: taken_s / steps as f64,
        steps,
        relative_error: TRAINED_SD.hypot(step_sd / (steps as f64).sqrt()),
        measured_unix_s: None,
    };
    ledger.commit(Record::Clocked { attempt: id, trained }, now_s);
    if let Some(attempt) = ledger.state.attempts.get_mut(&id) {
        attempt.recorded = Some(until);
    }
    Some(trained)
}

/// Puts on record how long a rest took that has ended well.
pub(crate) fn note_rest(ledger: &mut Ledger, id: AttemptId, now_s: f64) {
    let Some(attempt) = ledger.state.attempts.get(&id) else { return };
    let task = ledger.state.task(attempt.task);
    let taken_s = now_s - attempt.launched_s;
    let Some(num) = task.steps.filter(|_| task.spec.is_rest && taken_s > 0.0) else { return };
    let group = task.group;
    let gpu_type = ledger.state.gang_type(&attempt.gang).to_owned();
    let strategy = Strategy::clone(&attempt.strategy);
    let trained = Trained {
        step_s: taken_s / num as f64,
        steps: num,
        relative_error: REST_SD,
        measured_unix_s: None,
    };
    ledger.commit(Record::Clocked { attempt: id, trained }, now_s);
    let group = &ledger.state.groups[group];
    let known = group.trial(&strategy, &gpu_type).and_then(|trial| trial.trained);
    if let Some(Trained { step_s, .. }) = known {
        let group = group.key.clone();
        ledger.commit(Record::Observed { group, gpu_type, strategy, step_s }, now_s);
        ledger.agenda.ask_again();
    }
}
