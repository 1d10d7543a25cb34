//! What an evaluation of a task's model found.

use std::collections::BTreeMap;

use saturn_core::measure;
use serde::{Deserialize, Serialize};

/// Metrics by name. Journals of earlier versions have `None` for a value that was not finite.
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
