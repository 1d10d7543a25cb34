//! The errors of a workload: the found value, its place, and the expected value.

use saturn_core::names::escape_terminal;
use thiserror::Error;

/// No cost is higher, seconds.
pub(crate) const MOST_SECONDS: f64 = 1e9;

/// Why a workload can't be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum WorkloadError {
    /// It is no TOML, or has a field that is missing, unknown or of the wrong type.
    #[error("line {line} column {column}: {detail}")]
    Toml {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The found text, and the expected text.
        detail: String,
    },
    /// It is a sweep.
    #[error(
        "this is a sweep of real tasks, and a workload of `saturn simulate` has their step times; \
         plan the sweep by measured trials with `saturn plan`, or describe a workload as in \
         examples/simulate.toml"
    )]
    Sweep,
    /// A value is impossible.
    #[error("`{at}` is {found}; expected {expected}")]
    Value {
        /// Path into the file.
        at: String,
        /// The found value.
        found: String,
        /// The expected value.
        expected: String,
    },
}

/// Fields that only a sweep has.
const OF_SWEEP: [&str; 2] = ["script", "function"];

impl WorkloadError {
    /// Why a text that does not read as a workload is none.
    pub(crate) fn of_text(text: &str, error: &toml::de::Error) -> Self {
        let has_field = |file: toml::Table| OF_SWEEP.iter().any(|field| file.contains_key(*field));
        if text.parse().is_ok_and(has_field) { Self::Sweep } else { Self::of_toml(text, error) }
    }

    /// The TOML reader's message about a text.
    fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Self::Toml {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            detail: in_words(error.message()),
        }
    }
}

/// The TOML reader's message in words of TOML: it knows only Rust's names of types.
fn in_words(message: &str) -> String {
    let message = message.lines().collect::<Vec<_>>().join("; ");
    let names = [
        ("usize", "a whole number from 0 on"),
        ("u64", "a whole number from 0 on"),
        ("u32", "a whole number from 0 on"),
        ("f64", "a number"),
        ("a boolean", "true or false"),
        ("a sequence", "a list"),
        ("a map", "a table"),
    ];
    for (name, word) in names {
        if let Some(before) = message.strip_suffix(&format!("expected {name}")) {
            return format!("{before}expected {word}");
        }
    }
    message
}

pub(crate) fn seconds(at: &str, seconds: f64) -> Result<f64, WorkloadError> {
    if (0.0..=MOST_SECONDS).contains(&seconds) {
        return Ok(seconds);
    }
    Err(value(at, &seconds.to_string(), "a number of seconds from 0 to 1e9"))
}

pub(crate) fn quoted(text: &str) -> String {
    format!("`{}`", escape_terminal(text))
}

pub(crate) fn value(at: &str, found: &str, expected: &str) -> WorkloadError {
    let at = escape_terminal(at);
    WorkloadError::Value { at, found: found.to_owned(), expected: expected.to_owned() }
}
