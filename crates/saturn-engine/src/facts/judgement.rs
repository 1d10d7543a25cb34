//! What a run's stopper says of a task: train on, wait, or end.

use saturn_core::measure;
use serde::{Deserialize, Serialize};

use crate::facts::evaluation::Metrics;

/// A stopper's ruling on a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// It trains on; where it is held it is taken up again.
    GoOn,
    /// It stops at a checkpoint, and waits.
    Hold,
    /// It ends at a checkpoint.
    Stop,
}

/// What a stopper saw of a task, and what comes of that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Finished steps of the task when the values were reported.
    pub step: u64,
    /// The values that the stopper saw, by metric; empty if it ruled by other tasks' values.
    #[serde(default, with = "measure::by_name")]
    pub values: Metrics,
    /// The ruling; `None`: the earlier ruling still holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Ruling>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A judgement of a task that goes by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedJudgement {
    /// Which task.
    pub task: String,
    /// What is said of it.
    #[serde(flatten)]
    pub judgement: Judgement,
}
