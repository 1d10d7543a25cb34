//! Why a question got no answer, or a command was not carried out.

use saturn_engine::RefusalCode;

/// The kind of a failure, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// There is no run of this name.
    NoSuchRun,
    /// The run has no task, attempt or rank of this name or number.
    NotThere,
    /// The question or the command itself is wrong.
    BadRequest,
    /// The run refuses the command, with its own code.
    Refused(RefusalCode),
    /// No process drives the run, so that nobody can carry out the command.
    NotDriven,
    /// The process that drives the run does not answer in time.
    NoAnswer,
    /// Too many questions at once.
    Busy,
    /// The run's files can't be read, or something else failed here.
    Internal,
}

/// A failure in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its kind.
    pub kind: FailureKind,
    /// What is wrong, for people.
    pub reason: String,
}

impl FailureKind {
    /// A failure of this kind.
    pub fn because(self, reason: impl Into<String>) -> Failure {
        Failure { kind: self, reason: reason.into() }
    }
}
