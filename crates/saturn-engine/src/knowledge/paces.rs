//! What training shows of strategies, noted for all tasks of their group.
//!
//! A strategy that was planned on an estimate alone is measured by its own first steps, as soon as
//! they are known. One that a trial has measured is corrected when a plan is about to be made: where
//! what trains departs from what plans count on, that is noted first, so that plans see running tasks
//! and waiting ones by the same clock, and a resumed run knows it too.
//!
//! Beside that, each *interval* of an attempt's training is put on record as a measurement of its
//! strategy, once: for all tasks of the group and for later runs, which keep it in the store. An
//! interval has as many steps as all before it, so that records are few and a crash loses no more than
//! half of what was found. One that contradicts what plans count on is noted at once, and a plan asked for.
//!
//! What a script does after its training (a *rest*) can't be tried, and is planned by a guess: one that
//! has ended is an interval of one step, launch included, for the others of its group and later runs.
//!
//! What else ran beside an attempt is not told apart: an interval says what training took in the
//! company that it had.

use std::collections::BTreeMap;
use std::sync::Arc;

use saturn_core::{Strategy, Trained};

use crate::engine::turn::Engine;
use crate::facts::ids::AttemptId;
use crate::facts::record::{Purpose, Record};
use crate::state::attempt::{Attempt, MIN_STEPS_TO_CORRECT, Warm};
use crate::state::run::State;
use crate::state::trial::{TRAINED_SD, TrialKey, TrialState};

/// A departure from what plans count on by less than this part of it is no news.
const LEAST_NEWS: f64 = 0.02;

/// A shorter interval says too little, seconds: the ways of the two words that bound it would count.
const MIN_INTERVAL_S: f64 = 1.0;
/// What steps differ by from one another, as a part, where no trial has told.
const STEP_SD: f64 = 0.1;
/// What rests of a group differ by from one another, as a part.
const REST_SD: f64 = 0.2;
/// An interval contradicts what plans count on where it departs by more than so many of its errors.
const CONTRADICTION_SDS: f64 = 2.0;

/// Steps that live attempts were clocked over, and the seconds that those took.
#[derive(Debug, Default, Clone, Copy)]
struct Clocked {
    steps: f64,
    taken_s: f64,
}

impl Engine {
    /// Notes what trains under an estimate, by its own first steps. Whether it just did.
    pub(crate) fn note_first_steps(&mut self, id: AttemptId, now_s: f64) -> bool {
        let Some(attempt) = self.state.attempts.get(&id) else { return false };
        if attempt.purpose != Purpose::Train || !self.state.chooses_trials() {
            return false;
        }
        let Some(step_s) = self.state.observed_step_s(attempt) else { return false };
        let gpu_type = self.state.gang_type(&attempt.gang);
        let trial = self.state.trial_of(attempt.task, &attempt.strategy, gpu_type);
        let is_new = |trial: &TrialState| trial.outcome.is_none() && trial.trained_step_s.is_none();
        if !trial.is_some_and(is_new) {
            return false;
        }
        let record = Record::Observed {
            group: self.state.group_of(attempt.task).key.clone(),
            gpu_type: gpu_type.to_owned(),
            strategy: Strategy::clone(&attempt.strategy),
            step_s,
        };
        self.commit(record, now_s);
        true
    }

    /// Puts an interval of training on record once it is as long as all before it. Whether it contradicts
    /// what plans count on.
    pub(crate) fn note_interval(&mut self, id: AttemptId, now_s: f64) -> bool {
        let Some(attempt) = self.state.attempts.get(&id) else { return false };
        let (Some(warm), Some(from)) = (attempt.warm, attempt.recorded.or(attempt.warm)) else {
            return false;
        };
        let (steps, _) = attempt.clocked_since(from);
        if steps < from.step.saturating_sub(warm.step) {
            return false;
        }
        let Some(trained) = self.put_on_record(id, now_s) else { return false };
        let Some(attempt) = self.state.attempts.get(&id) else { return false };
        let group = self.state.task(attempt.task).group;
        let is_like = |other: &Attempt| {
            other.strategy.is_like(&attempt.strategy)
                && self.state.task(other.task).group == group
                && self.state.gang_type(&other.gang) == self.state.gang_type(&attempt.gang)
        };
        let least = CONTRADICTION_SDS * trained.relative_error;
        let departures = self.state.departures(least, is_like);
        let is_news = !departures.is_empty();
        for record in departures {
            self.commit(record, now_s);
            self.planning.ask_again();
        }
        is_news
    }

    /// Puts an attempt's steps since its last interval on record, where they are enough: what they took.
    pub(crate) fn put_on_record(&mut self, id: AttemptId, now_s: f64) -> Option<Trained> {
        let attempt = self.state.attempts.get(&id)?;
        let (steps, taken_s) = attempt.clocked_since(attempt.recorded.or(attempt.warm)?);
        let is_enough = steps >= MIN_STEPS_TO_CORRECT && taken_s >= MIN_INTERVAL_S;
        if !is_enough || attempt.purpose != Purpose::Train {
            return None;
        }
        let gpu_type = self.state.gang_type(&attempt.gang);
        let trial = self.state.trial_of(attempt.task, &attempt.strategy, gpu_type);
        let step_sd = trial.and_then(TrialState::variation).unwrap_or(STEP_SD);
        let trained = Trained {
            step_s: taken_s / steps as f64,
            steps,
            relative_error: TRAINED_SD.hypot(step_sd / (steps as f64).sqrt()),
            measured_unix_s: None,
        };
        let Attempt { step, stepped_s: at_s, blocked_s, .. } = *attempt;
        self.commit(Record::Clocked { attempt: id, trained }, now_s);
        if let Some(attempt) = self.state.attempts.get_mut(&id) {
            attempt.recorded = Some(Warm { step, at_s, blocked_s });
        }
        Some(trained)
    }

    /// Notes how long a rest took that ends well, for all that count on its strategy.
    pub(crate) fn note_rest(&mut self, id: AttemptId, now_s: f64) {
        let Some(attempt) = self.state.attempts.get(&id) else { return };
        let task = self.state.task(attempt.task);
        let taken_s = now_s - attempt.launched_s;
        let Some(num) = task.steps.filter(|_| task.spec.is_rest && taken_s > 0.0) else { return };
        let group = task.group;
        let gpu_type = self.state.gang_type(&attempt.gang).to_owned();
        let strategy = Strategy::clone(&attempt.strategy);
        let trained = Trained {
            step_s: taken_s / num as f64,
            steps: num,
            relative_error: REST_SD,
            measured_unix_s: None,
        };
        self.commit(Record::Clocked { attempt: id, trained }, now_s);
        let group = &self.state.groups[group];
        let known = group.trial(&strategy, &gpu_type).and_then(|trial| trial.trained);
        if let Some(Trained { step_s, .. }) = known {
            let group = group.key.clone();
            self.commit(Record::Observed { group, gpu_type, strategy, step_s }, now_s);
            self.planning.ask_again();
        }
    }

    /// Notes where what trains now departs from what plans count on.
    pub(crate) fn note_paces(&mut self, now_s: f64) {
        for record in self.state.departures(LEAST_NEWS, |_| true) {
            self.commit(record, now_s);
        }
    }
}

impl State {
    /// Where what these attempts train is off by more than `least`, as a part, from what plans count on.
    fn departures(&self, least: f64, is_of: impl Fn(&Attempt) -> bool) -> Vec<Record> {
        let mut clocked: BTreeMap<(usize, Arc<TrialKey>), Clocked> = BTreeMap::new();
        let trains = |attempt: &&Attempt| attempt.purpose == Purpose::Train && is_of(attempt);
        for attempt in self.attempts.values().filter(trains) {
            let Some((steps, taken_s)) = attempt.clocked() else { continue };
            let gpu_type = self.gang_type(&attempt.gang).to_owned();
            let key = TrialKey { strategy: attempt.strategy.key(), gpu_type };
            let group = self.task(attempt.task).group;
            let sum = clocked.entry((group, Arc::new(key))).or_default();
            sum.steps += steps;
            sum.taken_s += taken_s;
        }
        let departure = |((group, key), sum): ((usize, Arc<TrialKey>), Clocked)| {
            let group = &self.groups[group];
            let trial: &TrialState = group.trials.get(&*key)?;
            let step_s = trial.clocked_step_s(sum.steps, sum.taken_s);
            let counted_s = trial.trained_step_s.or_else(|| trial.known_step_s());
            let is_news = |counted_s: f64| (step_s / counted_s - 1.0).abs() > least;
            counted_s.is_none_or(is_news).then(|| Record::Observed {
                group: group.key.clone(),
                gpu_type: key.gpu_type.clone(),
                strategy: Strategy::clone(&trial.strategy),
                step_s,
            })
        };
        clocked.into_iter().filter_map(departure).collect()
    }
}
