//! Inspections and trials: what is measured, when, and what the results mean.
//!
//! Invariants: no trial shares a device with another attempt. A failure that may be chance is no outcome.
//!
//! May use: `facts`, `state`, `knowledge`, `ledger`, `planning` and `following`.

pub(crate) mod going_on;
pub(crate) mod inspections;
pub(crate) mod trials;
