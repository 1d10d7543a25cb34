//! What the estimator promises, and how well it holds on measured tables.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod conditioned;
mod devices;
mod fit;
mod properties;
mod scores;
mod shapes;
mod tables;
mod validation;
