//! A finding of the doctor.

use serde::{Deserialize, Serialize};

/// How good a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mark {
    /// As it should be.
    Ok,
    /// Runs work, but slower or with less than they could.
    Warn,
    /// Something that runs need is missing or does not work.
    Bad,
}

/// A finding of the doctor about one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finding {
    /// The subject: `torch`, `host memory`.
    pub(super) subject: String,
    /// How good the finding is.
    pub(super) mark: Mark,
    /// The state of the subject, in words.
    pub(super) found: String,
    /// What to do about it.
    pub(super) advice: Option<String>,
}

impl Finding {
    /// All is as it should be.
    pub(super) fn ok(subject: &str, found: impl Into<String>) -> Self {
        Self { subject: subject.to_owned(), mark: Mark::Ok, found: found.into(), advice: None }
    }

    /// Runs work, but slower or with less than they could.
    pub(super) fn warn(subject: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::with(Mark::Warn, subject, found, advice)
    }

    /// Something that runs need is missing or does not work.
    pub(super) fn bad(subject: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::with(Mark::Bad, subject, found, advice)
    }

    fn with(
        mark: Mark,
        subject: &str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (subject, found) = (subject.to_owned(), found.into());
        Self { subject, mark, found, advice: Some(advice.into()) }
    }
}
