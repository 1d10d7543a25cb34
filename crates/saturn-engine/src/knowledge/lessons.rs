//! What a group's trials and its training say of all its strategies together.

use saturn_core::TrialOutcome;

use crate::knowledge::correction::Seen;
use crate::state::group::Group;
use crate::state::lesson::{Correction, Lesson};
use crate::state::trial::TRAINED_SD;

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
        let correction = Correction::learnt(&seen.collect::<Vec<_>>());
        let tried = self.trials.values().filter_map(|trial| match &trial.outcome {
            Some(TrialOutcome::Measured { checkpoint_s, .. }) => *checkpoint_s,
            _ => None,
        });
        self.lesson = Lesson {
            correction,
            save_s: tried.max_by(f64::total_cmp),
            evaluation_in_steps: self.evaluation_in_steps(),
        };
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
