//! Errors of an estimate's input: what is there, and what would be right.

use thiserror::Error;

/// Why there is no estimate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EstimateError {
    /// No device of the table has this name.
    #[error("there is no GPU `{name}` in the table; known are {known}")]
    UnknownDevice {
        /// The name that was given.
        name: String,
        /// All names in the table.
        known: String,
    },
    /// The device lacks this arithmetic.
    #[error("{device} does not compute in {precision}; it can {known}")]
    NoPrecision {
        /// Name of the device.
        device: String,
        /// The precision that was asked for.
        precision: String,
        /// Precisions that it has.
        known: String,
    },
    /// The text of a configuration is not JSON.
    #[error("not JSON: {detail}")]
    NotJson {
        /// The message of the JSON reader.
        detail: String,
    },
    /// The configuration is of a model type that this crate does not know.
    #[error(
        "`model_type` is {found}; known are {known}. For other models give their size, such as \
         params=7e9,layers=32,hidden=4096"
    )]
    UnknownModel {
        /// What stands there.
        found: String,
        /// The types that are known.
        known: String,
    },
    /// A field of a configuration, or of a stated size, is missing or wrong.
    #[error("`{field}` is {found}; expected {expected}")]
    Field {
        /// Name of the field.
        field: String,
        /// What stands there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// The sequence is longer than the model can take.
    #[error("a sequence of {asked} tokens is longer than the model's {most} positions")]
    TooLong {
        /// The sequence length that was asked for.
        asked: u32,
        /// The number of positions that the model has.
        most: u32,
    },
    /// The strategy can't train this model with this batch.
    #[error("{reason}")]
    Unsuitable {
        /// Why it can't.
        reason: String,
    },
}
