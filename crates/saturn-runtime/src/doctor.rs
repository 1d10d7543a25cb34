//! The doctor: what this machine has for runs, what will not work on it, and what to do about that.
//!
//! - The doctor tries things out with the code that runs use. It makes a journal where runs go,
//!   listens on a socket and asks it, and forks ranks that talk to each other.
//! - The doctor leaves nothing behind, takes no lock that a run waits for, and repairs nothing.
//! - A finding has one subject. Its advice says what follows from it.

mod interpreter;
mod machine;
mod places;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::devices::Machine;

/// How good a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
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
pub struct Finding {
    /// The subject: `torch`, `host memory`.
    pub subject: String,
    /// How good the finding is.
    pub mark: Mark,
    /// The state of the subject, in words.
    pub found: String,
    /// What to do about it.
    pub advice: Option<String>,
}

impl Finding {
    /// All is as it should be.
    fn ok(subject: &str, found: impl Into<String>) -> Self {
        Self { subject: subject.to_owned(), mark: Mark::Ok, found: found.into(), advice: None }
    }

    /// Runs work, but slower or with less than they could.
    fn warn(subject: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::with(Mark::Warn, subject, found, advice)
    }

    /// Something that runs need is missing or does not work.
    fn bad(subject: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
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

/// Examines the machine, the directory where runs go, and the interpreter that runs scripts. Skips
/// the interpreter if `python` is `None`.
pub fn examine(runs_dir: &Path, python: Option<&Path>) -> Vec<Finding> {
    let machine = Machine::look();
    let num_gpus = machine.gpus().map_or(0, |gpus| gpus.len());
    let mut findings = vec![Finding::ok("saturn", env!("CARGO_PKG_VERSION"))];
    findings.extend(machine::examine(&machine));
    findings.extend(places::examine(runs_dir));
    if let Some(python) = python {
        findings.extend(interpreter::examine(python, num_gpus));
    }
    findings
}
