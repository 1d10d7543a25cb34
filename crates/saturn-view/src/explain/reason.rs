//! A reason: a code for scripts, and a sentence for people.

use serde::{Deserialize, Serialize};

use crate::explain::code::Code;
use crate::layout::units::clock;

/// A reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The code, for scripts.
    pub code: Code,
    /// The sentence, for people.
    pub sentence: String,
    /// The names of other tasks that the reason names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<String>,
    /// The expected time until which the reason holds, seconds on the run's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_s: Option<f64>,
}

impl Reason {
    pub(super) fn new(code: Code, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), tasks: Vec::new(), until_s: None }
    }

    pub(super) fn about(self, tasks: Vec<String>) -> Self {
        Self { tasks, ..self }
    }

    pub(super) fn until(self, until_s: Option<f64>) -> Self {
        Self { until_s, ..self }
    }
}

/// `a`, `a and b`, `a, b and 9 more`: names in a sentence.
pub(super) fn names(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [one, other] => format!("{one} and {other}"),
        [one, other, others @ ..] => format!("{one}, {other} and {} more", others.len()),
    }
}

/// ` until about 0:53`; empty if the time is unknown.
pub(super) fn until(until_s: Option<f64>) -> String {
    until_s.map(|until_s| format!(" until about {}", clock(until_s))).unwrap_or_default()
}
