//! Tests of the estimator's promises, and of its accuracy on measured tables.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod conditioned;
mod devices;
mod fit;
mod properties;
mod scores;
mod shapes;
mod tables;
mod validation;
