//! Evaluations of tasks' models: what they found, when they are due, and the time that they take.
//!
//! Between two steps training stands still for an evaluation, as it does for a checkpoint. An
//! evaluation is due every so many steps and after the last step. Where an attempt stops before its
//! task's end, one that is due there is left to the next attempt.

use std::collections::BTreeMap;

use saturn_core::{TrialOutcome, measure};
use serde::{Deserialize, Serialize};

use crate::facts::ids::AttemptId;
use crate::state::group::{Group, TrialState};
use crate::state::run::{State, TaskState};

/// Metrics by their names; `None` of what was no finite number, in journals of earlier versions.
pub type Metrics = BTreeMap<String, Option<f64>>;

/// What an evaluation found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Finished steps of the model that was evaluated.
    pub step: u64,
    /// What was measured of it.
    #[serde(with = "measure::by_name")]
    pub metrics: Metrics,
}

/// The best of a task's evaluations, whose checkpoint is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestEvaluation {
    /// The metric that says which is the best.
    pub metric: String,
    /// What was found.
    #[serde(flatten)]
    pub evaluation: Evaluation,
}

impl BestEvaluation {
    /// The best value of the metric.
    pub fn value(&self) -> Option<f64> {
        self.evaluation.metrics.get(&self.metric).copied().flatten()
    }
}

impl TaskState {
    /// How many evaluations an attempt does that goes on from `from` finished steps, and ends after
    /// `to`.
    pub(crate) fn evaluations(&self, from: u64, to: u64) -> u64 {
        let Some(spec) = self.spec.evaluation else { return 0 };
        let done = self.evaluation.as_ref().map_or(0, |last| last.step);
        let first = from.max(done + 1);
        let at_end = u64::from(self.steps == Some(to) && to >= first);
        let Some(every) = spec.every_steps else { return at_end };
        let up_to = |step: u64| step / every.get();
        up_to(to.max(first) - 1) - up_to(first - 1) + at_end
    }

    /// Whether an evaluation is due after so many steps, and not done.
    pub(crate) fn awaits_evaluation(&self, step: u64) -> bool {
        let Some(spec) = self.spec.evaluation else { return false };
        let done = self.evaluation.as_ref().map_or(0, |last| last.step);
        let is_due = self.steps == Some(step)
            || spec.every_steps.is_some_and(|every| step.is_multiple_of(every.get()));
        is_due && step > done
    }
}

impl TrialState {
    /// Seconds that an evaluation takes: as training showed it last, else as the trial measured it.
    pub(crate) fn evaluation_s(&self) -> Option<f64> {
        let tried_s = || match self.outcome {
            Some(TrialOutcome::Measured { evaluation_s, .. }) => evaluation_s,
            _ => None,
        };
        self.trained_evaluation_s.or_else(tried_s)
    }
}

impl Group {
    /// Evaluations take as long as so many steps, in the mean over the strategies where both are
    /// known: how long they take under the others. An evaluation is forwards, so it is faster where
    /// steps are.
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

impl State {
    /// Takes in that a task's model was evaluated, or that it was before and that this was not known.
    pub(crate) fn apply_evaluated(
        &mut self,
        id: AttemptId,
        evaluation: &Evaluation,
        best: Option<&BestEvaluation>,
        taken_s: Option<f64>,
        now_s: f64,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        if let Some(taken_s) = taken_s {
            attempt.blocked_s += taken_s;
            if evaluation.step >= attempt.step {
                attempt.step = evaluation.step;
                attempt.stepped_s = now_s;
            }
        }
        let attempt = attempt.clone();
        if let Some(task) = self.tasks.get_mut(attempt.task.0) {
            task.evaluation = Some(evaluation.clone());
            task.best = best.cloned();
            task.evaluating_s += taken_s.unwrap_or(0.0);
        }
        if taken_s.is_some() {
            self.with_trial(&attempt, |trial| trial.trained_evaluation_s = taken_s);
        }
    }
}
