//! What a group's trials and its training say of all its strategies together.

use saturn_core::TrialOutcome;

use crate::knowledge::correction::Seen;
use crate::state::group::Group;
use crate::state::lesson::{Correction, Told};
use crate::state::trial::{TRAINED_SD, TrialKey, TrialState};

/// The least standard deviation of a trial, however steady its steps: another launch would differ.
const LEAST_TRIAL_SD: f64 = 0.02;

impl Group {
    /// Works out the lesson anew, after a change of the group's trials.
    pub(crate) fn learn(&mut self) {
        let seen = self.trials.iter().filter_map(|(key, trial)| {
            let (trained_s, tried_s) = (trial.trained_step_s?, trial.measured_step_s()?);
            let sd = trial.relative_error().hypot(TRAINED_SD);
            let is_told = trained_s > 0.0 && tried_s > 0.0;
            let technique = key.strategy.technique.as_str();
            is_told.then(|| Seen { technique, ratio: trained_s / tried_s, sd })
        });
        let seen: Vec<Seen<'_>> = seen.collect();
        let seen_last = self.lesson.seen.iter().map(|(technique, ratio, sd)| Seen {
            technique,
            ratio: *ratio,
            sd: *sd,
        });
        // Most changes concern none of these numbers, and to learn from them takes hundreds of
        // small systems of equations.
        if !seen_last.eq(seen.iter().copied()) {
            self.lesson.correction = Correction::learnt(&seen);
            let seen = seen.iter().map(|one| (one.technique.to_owned(), one.ratio, one.sd));
            self.lesson.seen = seen.collect();
        }
        self.lesson.has_figures = self.trials.values().any(|trial| {
            let step_s = trial.measured_step_s().or(trial.trained_step_s);
            step_s.is_some() || trial.estimate.is_some()
        });
        let tried = self.trials.values().filter_map(|trial| match &trial.outcome {
            Some(TrialOutcome::Measured { checkpoint_s, .. }) => *checkpoint_s,
            _ => None,
        });
        self.lesson.save_s = tried.max_by(f64::total_cmp);
        self.lesson.evaluation_in_steps = self.evaluation_in_steps();
        if !self.told().eq(self.footing.told.iter().copied()) {
            self.footing.told = self.told().collect();
            self.footing.has_changed = true;
        }
    }

    /// What is told of each strategy, in the order of the trials.
    pub(crate) fn told(&self) -> impl Iterator<Item = Told> + '_ {
        self.trials.iter().map(|(key, trial)| Told {
            is_open: trial.outcome.is_none(),
            step_s: self.told_step_s(key, trial),
            setup_s: trial.measured_setup_s(),
        })
    }

    /// What is told of a strategy's seconds a step, with the standard deviation of their logarithm.
    pub(crate) fn told_step_s(&self, key: &TrialKey, trial: &TrialState) -> Option<(f64, f64)> {
        let (step_s, sd) = match (trial.measured_step_s(), trial.trained_step_s) {
            (Some(step_s), _) => (step_s, trial.relative_error().max(LEAST_TRIAL_SD)),
            // Training takes longer than a trial measures, by as much as elsewhere in the group.
            (None, Some(step_s)) => {
                (step_s / self.lesson.correction.of(&key.strategy.technique), TRAINED_SD)
            }
            (None, None) => return None,
        };
        (step_s > 0.0 && step_s.is_finite()).then_some((step_s, sd))
    }

    /// The duration of an evaluation in steps, the mean over the strategies where both durations
    /// are known: an estimate for the other strategies. An evaluation is forward passes, so it is
    /// faster where steps are faster.
    pub(crate) fn evaluation_in_steps(&self) -> Option<f64> {
        let ratios = self.trials.values().filter_map(|trial| {
            let step_s = trial.trained_step_s.or_else(|| trial.measured_step_s())?;
            Some(trial.evaluation_s()? / step_s).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        });
        let (number, sum) =
            ratios.fold((0.0, 0.0), |(number, sum), one| (number + 1.0, sum + one.ln()));
        (number > 0.0).then(|| (sum / number).exp())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use proptest::prelude::*;
    use saturn_core::StrategyKey;

    use super::*;
    use crate::state::group::InspectionState;
    use crate::state::lesson::{Footing, Lesson};
    use crate::state::trial::{TrialKey, TrialState};

    /// A group with trials of two techniques, on one to three devices, of which nothing is known.
    fn group() -> Group {
        let keys = ["ddp", "fsdp"].into_iter().flat_map(|technique| {
            (1..=3).map(move |gpus| StrategyKey { technique: technique.to_owned(), gpus })
        });
        let trials: BTreeMap<_, _> = keys
            .map(|strategy| {
                let trial = TrialState::unknown(&strategy);
                (Arc::new(TrialKey { strategy, gpu_type: "fast".to_owned() }), trial)
            })
            .collect();
        Group {
            key: "group".to_owned(),
            tasks: Vec::new(),
            num_open: 0,
            attempts: BTreeSet::new(),
            inspection: InspectionState::default(),
            trials,
            chosen: BTreeSet::new(),
            no_space: None,
            lesson: Lesson::default(),
            footing: Footing::default(),
        }
    }

    fn measured(step_s: f64) -> TrialOutcome {
        TrialOutcome::Measured {
            step_s,
            setup_s: 1.0,
            checkpoint_s: Some(step_s),
            peak_memory_bytes: 1,
            timed_steps: 10,
            relative_error: None,
            warmup_s: None,
            variation: None,
            batches_per_epoch: None,
            evaluation_s: None,
        }
    }

    proptest! {
        /// What a run learns change by change, and a resume from the records of the changes, is
        /// what the numbers say that are known now.
        #[test]
        fn what_is_learnt_on_the_way_is_what_would_be_learnt_anew(
            changes in prop::collection::vec((0_usize..6, 0_u8..4, 1_u8..4), 1..20),
        ) {
            let mut group = group();
            for (index, what, number) in changes {
                let seconds = f64::from(number) / 2.0;
                let trial = group.trials.values_mut().nth(index).expect("there are six");
                match what {
                    0 => trial.outcome = Some(measured(seconds)),
                    1 => trial.trained_step_s = Some(seconds),
                    2 => trial.trained_step_s = None,
                    _ => trial.trained_evaluation_s = Some(seconds),
                }
                group.learn();
                let mut anew = Group { lesson: Lesson::default(), ..group.clone() };
                anew.learn();
                prop_assert_eq!(&group.lesson, &anew.lesson);
            }
        }
    }
}
