//! What can be wrong with what is to be estimated: what stands there, and what would be right.

use thiserror::Error;

/// Why there is no estimate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EstimateError {
    /// No device of the table has this name.
    #[error("there is no GPU `{name}` in the table; known are {known}")]
    UnknownDevice {
        /// The name that was given.
        name: String,
        /// All names of the table.
        known: String,
    },
    /// The device has no such arithmetic.
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
        /// In the words of the JSON reader.
        detail: String,
    },
    /// The configuration is of a model whose shape this crate does not know.
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
        /// Tokens that were asked for.
        asked: u32,
        /// Positions that the model has.
        most: u32,
    },
    /// The strategy can't train this model with this batch.
    #[error("{reason}")]
    Unsuitable {
        /// What stands in the way.
        reason: String,
    },
}
