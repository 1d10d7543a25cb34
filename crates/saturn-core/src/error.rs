//! Errors of a file from outside: where the fault is, what is there, and what would be right.
//!
//! Locations are paths into the file, such as `tasks[3].strategies[0].runtime_s`.

use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::object::Object;

/// Why a planning problem or a profile was refused. Reading stops at the first fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProblemError {
    /// The text is not JSON.
    #[error("not JSON at line {line} column {column}: {detail}{hint}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The message of the JSON reader.
        detail: String,
        /// A guess at what the user meant; may be empty.
        hint: &'static str,
    },
    /// A field is missing, unknown or of the wrong type.
    #[error("`{at}`: {detail} (line {line} column {column})")]
    Shape {
        /// Path into the file.
        at: String,
        /// What is there and what is expected. For an unknown field, the known fields.
        detail: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// A value has the right type but is impossible.
    #[error("`{at}` is {found}: expected {expected}")]
    Value {
        /// Path into the file.
        at: String,
        /// The offending value.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A name is unknown in the file.
    #[error("`{at}` is `{name}`: expected the name of {expected}")]
    UnknownName {
        /// Path into the file.
        at: String,
        /// The name.
        name: String,
        /// The kind of thing that the name should refer to.
        expected: &'static str,
    },
    /// Facts contradict each other, although each is possible by itself.
    #[error("`{at}`: {reason}")]
    Contradiction {
        /// Path into the file.
        at: String,
        /// The contradiction, and what would be right.
        reason: String,
    },
    /// Two things have the same name.
    #[error("`{at}` is `{name}`, which `{first}` is already: names must be unique")]
    DuplicateName {
        /// Path to the second of them.
        at: String,
        /// The name.
        name: String,
        /// Path to the first of them.
        first: String,
    },
}

/// Reads `text` as a `T`. Errors name the location.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, ProblemError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let Object(value) = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let at = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_data() { shape(at, &inner) } else { syntax(&inner) }
    })?;
    reader.end().map_err(|error| syntax(&error))?;
    Ok(value)
}

fn shape(at: String, error: &serde_json::Error) -> ProblemError {
    let at = if at == "." || at == "?" { "the file".to_owned() } else { at };
    ProblemError::Shape {
        at,
        detail: in_words(&without_position(error)),
        line: error.line(),
        column: error.column(),
    }
}

fn syntax(error: &serde_json::Error) -> ProblemError {
    let detail = without_position(error);
    let hint = if detail.starts_with("expected value") {
        " (JSON has no NaN or Infinity, no comments and no single quotes)"
    } else {
        ""
    };
    ProblemError::Syntax { line: error.line(), column: error.column(), detail, hint }
}

/// The message without serde's trailing " at line 3 column 4".
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&suffix).unwrap_or(&text).to_owned()
}

/// Rewrites serde's message about a wrong type or value in terms of JSON: what is right, then what
/// is there.
fn in_words(detail: &str) -> String {
    let invalid = ["invalid type: ", "invalid value: "];
    let rest = invalid.iter().find_map(|prefix| detail.strip_prefix(prefix));
    let Some((found, expected)) = rest.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return detail.to_owned();
    };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other => other,
    };
    let number = |kind: &str| found.strip_prefix(kind).map(|value| value.trim_matches('`'));
    let found = match found {
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        text if text.starts_with("string ") => format!("the {text}"),
        _ => number("integer ")
            .or_else(|| number("floating point "))
            .or_else(|| number("boolean "))
            .unwrap_or(found)
            .to_owned(),
    };
    format!("expected {expected}, found {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_type_is_told_in_words_of_json() {
        for (detail, words) in [
            ("invalid type: sequence, expected an object", "expected an object, found a list"),
            ("invalid type: map, expected a sequence", "expected a list, found an object"),
            ("invalid type: null, expected a number", "expected a number, found null"),
            (
                "invalid value: integer `-5`, expected u64",
                "expected a whole number from 0 on, found -5",
            ),
            (
                "invalid type: floating point `1.5`, expected a string",
                "expected a string, found 1.5",
            ),
            ("invalid type: boolean `true`, expected f64", "expected a number, found true"),
            (
                "invalid type: string \"a, expected b\", expected a boolean",
                "expected true or false, found the string \"a, expected b\"",
            ),
            ("missing field `tasks`", "missing field `tasks`"),
        ] {
            assert_eq!(in_words(detail), words);
        }
    }
}
