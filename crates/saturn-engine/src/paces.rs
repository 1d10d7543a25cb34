//! What training shows of strategies, noted for all tasks of their group.
//!
//! A strategy that was planned on an estimate alone is measured by its own first steps, as soon as
//! they are known. One that a trial has measured is corrected when a plan is about to be made: where
//! what trains departs from what plans count on, that is noted first, so that plans see running tasks
//! and waiting ones by the same clock, and a resumed run knows it too.

use std::collections::BTreeMap;
use std::sync::Arc;

use saturn_core::Strategy;

use crate::engine::Engine;
use crate::ids::AttemptId;
use crate::record::{Purpose, Record};
use crate::state::{Attempt, State, TrialKey, TrialState};

/// A departure from what plans count on by less than this part of it is no news.
const LEAST_NEWS: f64 = 0.02;

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

    /// Notes where what trains now departs from what plans count on.
    pub(crate) fn note_paces(&mut self, now_s: f64) {
        for record in self.state.departures() {
            self.commit(record, now_s);
        }
    }
}

impl State {
    fn departures(&self) -> Vec<Record> {
        let mut clocked: BTreeMap<(usize, Arc<TrialKey>), Clocked> = BTreeMap::new();
        let trains = |attempt: &&Attempt| attempt.purpose == Purpose::Train;
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
            let is_news = |counted_s: f64| (step_s / counted_s - 1.0).abs() > LEAST_NEWS;
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
