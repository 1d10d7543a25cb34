//! A strategy on a type of device, and what trials and training have shown of it.

use std::sync::Arc;

use saturn_core::{Knobs, Origin, Strategy, StrategyKey, Trained, TrialOutcome};

use crate::facts::ids::AttemptId;
use crate::state::lesson::Estimate;

/// Standard deviation of a trial's seconds a step, as a part, if the trial doesn't say.
pub(crate) const TRIAL_SD: f64 = 0.04;

/// Standard deviation of training's seconds a step, as a part.
pub(crate) const TRAINED_SD: f64 = 0.02;

/// Standard deviation of training from the figure before it, as a part, beside that figure's own
/// error.
const DEPARTURE_SD: f64 = 0.1;

/// Names a trial within its group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrialKey {
    /// Technique and device count.
    pub strategy: StrategyKey,
    /// Type of device.
    pub gpu_type: String,
}

/// What is known of a strategy on a type of device, for all tasks of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialState {
    /// The strategy; its knobs are those that the technique chose, once it has.
    pub strategy: Arc<Strategy>,
    /// The outcome; `None` until the trial has ended.
    pub outcome: Option<TrialOutcome>,
    /// Where the outcome was measured, if it came from an earlier run.
    pub reused: Option<Arc<Origin>>,
    /// Failures, by chance perhaps, since this process drives the run.
    pub failures: u32,
    /// How many tasks, of which nothing had worked before, have failed under it by an error of their
    /// own functions. The strategy may have made them raise.
    pub own_failures: u32,
    /// The attempt that runs it now.
    pub attempt: Option<AttemptId>,
    /// The estimate, if the strategy was not measured and something is known of strategies like it.
    pub estimate: Option<Estimate>,
    /// Its knobs were chosen by a trial, of this or of another number of devices.
    pub has_knobs: bool,
    /// Seconds a step that training took, newest; more to be trusted than the trial's.
    pub trained_step_s: Option<f64>,
    /// Training in this run has shown that, and not only an earlier run.
    pub is_trained_here: bool,
    /// The rate that all intervals of training together found, with the intervals of earlier runs.
    pub trained: Option<Trained>,
    /// Seconds from launch to the first step of a training that went on from a checkpoint, newest.
    pub trained_load_s: Option<f64>,
    /// Seconds that an evaluation took in training, newest.
    pub trained_evaluation_s: Option<f64>,
}

impl TrialState {
    /// A strategy of which nothing is known.
    pub(crate) fn unknown(key: &StrategyKey) -> Self {
        let strategy =
            Strategy { technique: key.technique.clone(), gpus: key.gpus, knobs: Knobs::new() };
        Self {
            strategy: Arc::new(strategy),
            outcome: None,
            reused: None,
            failures: 0,
            own_failures: 0,
            attempt: None,
            estimate: None,
            has_knobs: false,
            trained_step_s: None,
            is_trained_here: false,
            trained: None,
            trained_evaluation_s: None,
            trained_load_s: None,
        }
    }

    /// Seconds that an evaluation takes: as training showed it last, else as the trial measured it.
    pub(crate) fn evaluation_s(&self) -> Option<f64> {
        let tried_s = || match self.outcome {
            Some(TrialOutcome::Measured { evaluation_s, .. }) => evaluation_s,
            _ => None,
        };
        self.trained_evaluation_s.or_else(tried_s)
    }

    /// Seconds from launch until it trains at its pace, from a checkpoint or from the beginning.
    pub(crate) fn load_s(&self, is_going_on: bool) -> f64 {
        let trained_s = self.trained_load_s.filter(|_| is_going_on);
        let trained_s = trained_s.map(|load_s| load_s + self.warmup_s());
        let estimated_s = || self.estimate.map(|estimate| estimate.setup_s);
        trained_s.or_else(|| self.measured_setup_s()).or_else(estimated_s).unwrap_or(0.0)
    }

    /// Whether plans may count on it: it was measured, it has trained, or its estimate is as sure
    /// as a trial would be.
    pub fn is_known(&self) -> bool {
        self.known_step_s().is_some() || self.outcome.is_none() && self.trained_step_s.is_some()
    }

    /// Whether plans may count on it, and yet it was neither measured nor trained under.
    pub fn is_estimate(&self) -> bool {
        self.is_known() && self.measured_step_s().is_none() && self.trained_step_s.is_none()
    }

    /// Seconds a step after so many steps of training were clocked. That is their mean, unless
    /// steps differ much from one another (batches padded to different lengths). These few may then
    /// be unlike the others, so the figure from before has a share in it.
    pub(crate) fn clocked_step_s(&self, steps: f64, taken_s: f64) -> f64 {
        let clocked_s = taken_s / steps;
        let (Some(TrialOutcome::Measured { step_s, variation: Some(variation), .. }), true) =
            (&self.outcome, clocked_s > 0.0)
        else {
            return clocked_s;
        };
        let before_s = self.trained_step_s.unwrap_or(*step_s);
        // Both are taken as Normal in the logarithm, and weighed by how sure they are.
        let before = self.relative_error().powi(2) + DEPARTURE_SD.powi(2);
        let weight = before / (before + variation.powi(2) / steps);
        before_s * (clocked_s / before_s).powf(weight)
    }

    /// Seconds a step that plans may count on.
    pub fn known_step_s(&self) -> Option<f64> {
        let sure = self.estimate.filter(|estimate| self.outcome.is_none() && estimate.is_sure());
        self.measured_step_s().or(sure.map(|estimate| estimate.step_s))
    }

    /// Seconds a step that the trial measured.
    pub fn measured_step_s(&self) -> Option<f64> {
        match self.outcome {
            Some(TrialOutcome::Measured { step_s, .. }) => Some(step_s),
            _ => None,
        }
    }

    /// Seconds from launch until it trains at its pace, as the trial measured that.
    pub(crate) fn measured_setup_s(&self) -> Option<f64> {
        match self.outcome {
            Some(TrialOutcome::Measured { setup_s, .. }) => Some(setup_s + self.warmup_s()),
            _ => None,
        }
    }

    /// Seconds that a launch's first step takes beyond later ones, as far as that was measured.
    fn warmup_s(&self) -> f64 {
        match self.outcome {
            Some(TrialOutcome::Measured { warmup_s, .. }) => warmup_s.unwrap_or(0.0),
            _ => 0.0,
        }
    }

    /// Standard error of the trial's seconds a step, as a part of them.
    pub(crate) fn relative_error(&self) -> f64 {
        match self.outcome {
            Some(TrialOutcome::Measured { relative_error, .. }) => {
                relative_error.unwrap_or(TRIAL_SD)
            }
            _ => TRIAL_SD,
        }
    }

    /// Standard deviation of the task's steps from one another, as a part, if the trial has told.
    pub(crate) fn variation(&self) -> Option<f64> {
        match self.outcome {
            Some(TrialOutcome::Measured { variation, .. }) => variation,
            _ => None,
        }
    }
}
