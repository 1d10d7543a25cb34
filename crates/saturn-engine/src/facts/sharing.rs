//! How people share the devices of one run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::ids::TaskId;

/// A day: device time that was used a day ago counts half.
const HALF_LIFE_S: f64 = 86_400.0;
/// The least seconds between two moves of one task.
const REST_S: f64 = 1800.0;

/// A person who submits tasks, by the number that the machine knows the person by. `None` is the
/// person whose process drives the run.
pub type Uid = Option<u32>;

/// The rules by which the tasks of several people are planned together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sharing {
    /// How large the people's shares are beside one another, by login name. A person who is not here
    /// has 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub shares: BTreeMap<String, f64>,
    /// How many devices these people's tasks may hold at once, by login name: the people's *quotas*. A
    /// person who is not here may hold all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub quotas: BTreeMap<String, u32>,
    /// The login name of the person whose process drives the run.
    pub host: String,
    /// Whether nobody's tasks are to end later than they would alone on the person's share. Otherwise
    /// only the weights of tasks are by person.
    pub guarantees: bool,
    /// Device time that was used so many seconds ago counts half.
    pub half_life_s: f64,
    /// A task that a plan has moved is not moved again for so many seconds.
    pub rest_s: f64,
}

impl Default for Sharing {
    fn default() -> Self {
        Self {
            shares: BTreeMap::new(),
            quotas: BTreeMap::new(),
            host: String::new(),
            guarantees: true,
            half_life_s: HALF_LIFE_S,
            rest_s: REST_S,
        }
    }
}

impl Guarantee {
    /// The part of the task, out of 1, that would be left at a time.
    pub(crate) fn left(&self, now_s: f64) -> f64 {
        let left = (self.by_s - now_s) / (self.by_s - self.start_s).max(f64::MIN_POSITIVE);
        self.part * left.clamp(0.0, 1.0)
    }
}

/// A guarantee, and the task that it is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Guaranteed {
    /// The task.
    pub task: TaskId,
    /// What its owner can count on.
    #[serde(flatten)]
    pub guarantee: Guarantee,
}

/// What a person can count on for a task: its place in the plan that the person would have alone, on
/// the person's share of the devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Guarantee {
    /// When the task would begin, seconds on the run's clock.
    pub start_s: f64,
    /// When it would end, seconds on the run's clock.
    pub by_s: f64,
    /// The part of the task, out of 1, that it would train in this time. It would have trained the
    /// rest before, in a place of an earlier plan.
    pub part: f64,
}
