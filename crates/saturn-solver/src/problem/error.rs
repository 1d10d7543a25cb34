//! What can go wrong in a solve. An infeasible problem and a spent time limit are not errors.

use saturn_core::{ProblemError, Violation};
use thiserror::Error;

/// Why a solve gave no answer.
#[derive(Debug, Error)]
pub enum SolveError {
    /// The problem breaks an invariant of `saturn_core::Problem`.
    #[error("invalid problem: {0}")]
    Problem(#[from] ProblemError),
    /// An option is out of range.
    #[error("`{option}` is {found}: expected {expected}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// The offending value.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// The solver's own plan failed the checker: a fault in the solver. The plan is withheld.
    #[error("the solver's plan is wrong, which is a fault in Saturn: {}", first(.0))]
    Wrong(Vec<Violation>),
}

fn first(violations: &[Violation]) -> String {
    violations.first().map(ToString::to_string).unwrap_or_default()
}
