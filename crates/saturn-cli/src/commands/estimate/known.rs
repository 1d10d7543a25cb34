//! The numbers that a profile has of the model: measured seconds replace the estimates of measured
//! strategies, and correct the estimates of all others.

use std::path::Path;

use saturn_core::{Profile, Trial, TrialOutcome};
use saturn_estimate::{Residuals, Source};
use saturn_store::{Store, io_words, trial_spread};

use super::Row;

/// Standard error of a trial that does not state its own, as a part of its seconds.
const USUAL_ERROR: f64 = 0.05;

/// Seconds a step of some strategies.
#[derive(Default)]
pub(super) struct Known {
    seen: Vec<Seen>,
}

struct Seen {
    technique: String,
    gpus: u32,
    step_s: f64,
    relative_error: f64,
    source: Source,
}

impl Known {
    /// Reads a profile of one model.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let error = io_words(&error);
            format!("failed to read `{name}`: {error}; expected a profile, as a run writes it")
        })?;
        let profile = Profile::from_json(&text).map_err(|error| format!("`{name}`: {error}"))?;
        let same = |one: &Trial, other: &Trial| match (&one.profile_key, &other.profile_key) {
            (Some(one), Some(other)) => one == other,
            _ => one.task == other.task,
        };
        if let Some([first, other]) =
            profile.trials.windows(2).find(|pair| !same(&pair[0], &pair[1]))
        {
            return Err(format!(
                "`{name}`: it is of several models (tasks `{}` and `{}`); expected a profile of one, \
                 such as `saturn profile export KEY FILE` writes",
                first.task, other.task
            ));
        }
        let mut known = Self::default();
        profile.trials.iter().filter_map(seen).for_each(|seen| known.add(seen));
        Ok(known)
    }

    /// Of several knob sets of a technique the fastest counts, as in a row.
    fn add(&mut self, seen: Seen) {
        let is_same = |one: &&mut Seen| one.technique == seen.technique && one.gpus == seen.gpus;
        match self.seen.iter_mut().find(is_same) {
            Some(old) if seen.step_s < old.step_s => *old = seen,
            Some(_) => {}
            None => self.seen.push(seen),
        }
    }

    /// Replaces and corrects the seconds of rows. A stated time that can't be true corrects
    /// nothing.
    pub(super) fn apply(&self, rows: &mut [Row]) {
        let mut residuals = Residuals::default();
        for row in rows.iter_mut() {
            let (strategy, estimate) = (&row.choice.strategy, row.choice.estimate.clone());
            let is_of_row = |seen: &&Seen| {
                seen.technique == strategy.technique() && seen.gpus == strategy.gpus()
            };
            let Some(seen) = self.seen.iter().find(is_of_row) else { continue };
            let model_s = estimate.model_s();
            let measured = estimate.measured(seen.step_s, seen.relative_error, seen.source);
            if !measured.is_too_fast() {
                residuals.add(&seen.technique, model_s, seen.step_s);
            }
            row.choice.estimate = measured;
        }
        for row in rows.iter_mut().filter(|row| row.choice.estimate.source == Source::Model) {
            let technique = row.choice.strategy.technique();
            row.choice.estimate = row.choice.estimate.clone().corrected(&residuals, technique);
        }
    }
}

/// A trial's seconds a step; training counts for more than the trial.
fn seen(trial: &Trial) -> Option<Seen> {
    let (step_s, relative_error, source) = match (&trial.trained, &trial.outcome) {
        (Some(trained), _) => (trained.step_s, trained.relative_error, Source::Trained),
        (None, Some(TrialOutcome::Measured { step_s, relative_error, .. })) => {
            // A trial does not know how unlike one launch is to the next on its devices.
            let hardware = trial.origin.hardware.as_deref();
            let spread = Store::of_user().map_or_else(
                || trial_spread(&[]),
                |store| store.trial_spread(trial.gpu_type.as_deref(), hardware),
            );
            (*step_s, relative_error.unwrap_or(USUAL_ERROR).hypot(spread), Source::Measured)
        }
        (None, _) => return None,
    };
    let (technique, gpus) = (trial.strategy.technique.clone(), trial.strategy.gpus);
    Some(Seen { technique, gpus, step_s, relative_error, source })
}
