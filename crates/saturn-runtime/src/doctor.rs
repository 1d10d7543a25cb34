//! The doctor: what this machine has for runs, what will not work on it, and what to do about that.
//!
//! - What can be tried is tried, by the code that a run does it with: a journal is made where runs
//!   go, a socket is listened on and asked, ranks are forked and speak with each other.
//! - Nothing stays behind, no lock is taken that a run waits for, and nothing is mended.
//! - A finding is of one subject; what follows from a finding stands in its advice.

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
    /// Runs work, but something is less than it could be.
    Warn,
    /// Something that runs need is missing or does not work.
    Bad,
}

/// What the doctor found of one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// What it is about: `torch`, `host memory`.
    pub subject: String,
    /// How good that is.
    pub mark: Mark,
    /// What is there, in words.
    pub found: String,
    /// What to do about it.
    pub advice: Option<String>,
}

impl Finding {
    /// It is as it should be.
    fn ok(subject: &str, found: impl Into<String>) -> Self {
        Self { subject: subject.to_owned(), mark: Mark::Ok, found: found.into(), advice: None }
    }

    /// Runs work all the same.
    fn warn(subject: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::with(Mark::Warn, subject, found, advice)
    }

    /// Runs don't work.
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

/// Examines the machine, the directory where runs go, and the interpreter that scripts are run with;
/// without an interpreter, the rest.
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
