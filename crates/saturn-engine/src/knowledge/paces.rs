//! Where training departs from what plans count on.

use std::collections::BTreeMap;
use std::sync::Arc;

use saturn_core::Strategy;

use crate::facts::record::{Purpose, Record};
use crate::state::attempt::Attempt;
use crate::state::run::State;
use crate::state::trial::{TrialKey, TrialState};

/// A departure from what plans count on by less than this part is no news.
pub(crate) const LEAST_NEWS: f64 = 0.02;

/// Steps that live attempts were clocked over, and the seconds that those took.
#[derive(Debug, Default, Clone, Copy)]
struct Clocked {
    steps: f64,
    taken_s: f64,
}

impl State {
    /// The strategies of these attempts whose training departs by more than `least`, as a part,
    /// from what plans count on: a record for each.
    pub(crate) fn departures<'a>(
        &self,
        least: f64,
        attempts: impl Iterator<Item = &'a Attempt>,
    ) -> Vec<Record> {
        let mut clocked: BTreeMap<(usize, Arc<TrialKey>), Clocked> = BTreeMap::new();
        let trains =
            |attempt: &&Attempt| attempt.purpose == Purpose::Train && self.is_in_shape(attempt);
        for attempt in attempts.filter(trains) {
            let Some((steps, taken_s)) = self.well_clocked(attempt) else { continue };
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
            let is_news = |counted_s: f64| (step_s / counted_s - 1.0).abs() > least;
            let is_new = match (trial.trained_step_s, trial.known_step_s()) {
                (Some(trained_s), _) => is_news(trained_s),
                // Plans count on the corrected figure. Training that departs from the trial alone
                // confirms the correction.
                (None, Some(tried_s)) => {
                    let factor = group.lesson.correction.of(&trial.strategy.technique);
                    is_news(tried_s) || is_news(tried_s * factor)
                }
                (None, None) => true,
            };
            is_new.then(|| Record::Observed {
                group: group.key.clone(),
                gpu_type: key.gpu_type.clone(),
                strategy: Strategy::clone(&trial.strategy),
                step_s,
            })
        };
        clocked.into_iter().filter_map(departure).collect()
    }
}
