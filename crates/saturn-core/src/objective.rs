//! The objective of a plan.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::ProblemError;

/// What a plan minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// The end of the last task, seconds.
    #[default]
    Makespan,
    /// The sum over tasks of weight times end, seconds.
    Completion,
    /// The sum over nodes of price times the time during which the node holds anything, in the
    /// currency of prices.
    Cost,
}

impl Objective {
    /// Every objective, in the order in which help lists them.
    pub const ALL: &[Self] = &[Self::Makespan, Self::Completion, Self::Cost];

    /// The name that users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Makespan => "makespan",
            Self::Completion => "completion",
            Self::Cost => "cost",
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Objective {
    type Err = ProblemError;

    fn from_str(text: &str) -> Result<Self, ProblemError> {
        Self::ALL.iter().copied().find(|one| one.name() == text).ok_or_else(|| {
            ProblemError::Value {
                at: "objective".to_owned(),
                found: format!("`{text}`"),
                expected: "one of `makespan` `completion` `cost`",
            }
        })
    }
}
