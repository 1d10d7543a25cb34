//! The ranges of numbers in files, and the descriptions of these ranges in messages.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};

use crate::error::ProblemError;

/// The longest time that a file may state: some 30,000 years. Sums of a million such times stay
/// exact enough to compare.
pub(crate) const MAX_SECONDS: f64 = 1e12;
/// The shortest runtime that a file may state.
pub(crate) const MIN_SECONDS: f64 = 1e-6;
/// The most devices of one node, or of one strategy.
pub(crate) const MAX_GPUS: u32 = 65_535;
/// The most devices of a cluster.
pub(crate) const MAX_CLUSTER_GPUS: u64 = 10_000_000;

/// The most bytes of host memory that a node may have, or a strategy take: an exbibyte. Sums over the
/// devices of a node stay far below the largest number.
pub(crate) const MAX_BYTES: u64 = 1 << 60;

pub(crate) const EXPECTED_RUNTIME: &str = "a number of seconds from 1e-6 to 1e12";
pub(crate) const EXPECTED_GPUS: &str = "a whole number of GPUs from 1 to 65535";
pub(crate) const EXPECTED_COST: &str = "a number of seconds from 0 to 1e12";
const EXPECTED_BYTES: &str = "a whole number of bytes from 0 to 1152921504606846976";
const EXPECTED_RATIO: &str = "a number from 0 to 1e12";
const EXPECTED_ERROR: &str = "a number from 0 to 3";
const EXPECTED_PRICE: &str = "a price from 0 to 1e12";
const EXPECTED_WEIGHT: &str = "a number from 1e-6 to 1e6";

/// Whether `value` can be a runtime.
pub(crate) fn runtime_is_valid(value: f64) -> bool {
    (MIN_SECONDS..=MAX_SECONDS).contains(&value)
}

/// `value` as text, without hundreds of zeros.
fn shown(value: f64) -> String {
    if value == 0.0 || (1e-3..1e15).contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

/// Refuses a time that can't be a runtime.
pub(crate) fn check_runtime(at: impl Fn() -> String, value: f64) -> Result<(), ProblemError> {
    if runtime_is_valid(value) {
        return Ok(());
    }
    Err(ProblemError::Value { at: at(), found: shown(value), expected: EXPECTED_RUNTIME })
}

/// Refuses a time that is negative, not a number, or too large.
pub(crate) fn check_cost(at: impl Fn() -> String, value: f64) -> Result<(), ProblemError> {
    if (0.0..=MAX_SECONDS).contains(&value) {
        return Ok(());
    }
    Err(ProblemError::Value { at: at(), found: shown(value), expected: EXPECTED_COST })
}

/// Refuses a ratio that is negative, not a number, or too large.
pub(crate) fn check_ratio(at: impl Fn() -> String, value: f64) -> Result<(), ProblemError> {
    if (0.0..=1e12).contains(&value) {
        return Ok(());
    }
    Err(ProblemError::Value { at: at(), found: shown(value), expected: EXPECTED_RATIO })
}

/// Refuses a standard deviation of the logarithm of a runtime that is negative, not a number, or so
/// large that drawn runtimes mean nothing.
pub(crate) fn check_error(at: impl Fn() -> String, value: f64) -> Result<(), ProblemError> {
    if (0.0..=3.0).contains(&value) {
        return Ok(());
    }
    Err(ProblemError::Value { at: at(), found: shown(value), expected: EXPECTED_ERROR })
}

/// Refuses a price that is negative, not a number, or too large.
pub(crate) fn check_price(at: impl Fn() -> String, value: f64) -> Result<(), ProblemError> {
    if (0.0..=1e12).contains(&value) {
        return Ok(());
    }
    Err(ProblemError::Value { at: at(), found: shown(value), expected: EXPECTED_PRICE })
}

/// Refuses a weight that is not positive, or too small or too large.
pub(crate) fn check_weight(at: impl Fn() -> String, value: f64) -> Result<(), ProblemError> {
    if (1e-6..=1e6).contains(&value) {
        return Ok(());
    }
    Err(ProblemError::Value { at: at(), found: shown(value), expected: EXPECTED_WEIGHT })
}

/// Refuses a GPU count of 0, or one that is too large.
pub(crate) fn check_gpus(at: impl Fn() -> String, value: u32) -> Result<(), ProblemError> {
    if (1..=MAX_GPUS).contains(&value) {
        return Ok(());
    }
    Err(ProblemError::Value { at: at(), found: value.to_string(), expected: EXPECTED_GPUS })
}

/// Refuses more bytes than a machine may have.
pub(crate) fn check_bytes(at: impl Fn() -> String, value: u64) -> Result<(), ProblemError> {
    if value <= MAX_BYTES {
        return Ok(());
    }
    Err(ProblemError::Value { at: at(), found: value.to_string(), expected: EXPECTED_BYTES })
}

/// Reads a number; the text describes it in messages.
struct Real(&'static str);

impl Visitor<'_> for Real {
    type Value = f64;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(self.0)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }
}

/// Reads seconds. `validate` checks the range.
pub(crate) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    deserializer.deserialize_any(Real("a number of seconds"))
}

/// Reads seconds into an optional field.
pub(crate) fn some_seconds<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<f64>, D::Error> {
    seconds(deserializer).map(Some)
}

/// Reads a number without a unit of time into an optional field.
pub(crate) fn some_real<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<f64>, D::Error> {
    real(deserializer).map(Some)
}

/// Reads a number without a unit of time. `validate` checks the range.
pub(crate) fn real<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    deserializer.deserialize_any(Real("a number"))
}

struct Gpus;

impl Visitor<'_> for Gpus {
    type Value = u32;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(EXPECTED_GPUS)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u32, E> {
        u32::try_from(value)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &EXPECTED_GPUS))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u32, E> {
        Err(E::invalid_value(de::Unexpected::Signed(value), &EXPECTED_GPUS))
    }
}

/// Reads a GPU count. `validate` checks the range.
pub(crate) fn gpus<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    deserializer.deserialize_any(Gpus)
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(EXPECTED_BYTES)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        Ok(value)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
        Err(E::invalid_value(de::Unexpected::Signed(value), &EXPECTED_BYTES))
    }
}

/// Reads a number of bytes. `validate` checks the range.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(Bytes)
}

/// Reads a number of bytes into an optional field.
pub(crate) fn some_bytes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    bytes(deserializer).map(Some)
}
