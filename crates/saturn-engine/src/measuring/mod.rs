//! Inspections and trials: what is measured, when, and what the results mean.
//!
//! `inspections` looks at models before trials. `trials` launches trials and takes in their
//! outcomes. `room` stops training for trials, and `shares` says whose.  `going_on` lets a trial's steps become the first steps of training. `training` puts on
//! record what training itself shows. `cooldowns` says which groups wait for a while.
//!
//! Invariants: no trial shares a device with another attempt. A failure that may be chance is no
//! outcome.
//!
//! May use: `facts`, `state`, `knowledge`, `ledger`, `planning` and `following`.

pub(crate) mod cooldowns;
pub(crate) mod going_on;
pub(crate) mod inspections;
pub(crate) mod room;
pub(crate) mod shares;
pub(crate) mod training;
pub(crate) mod trials;
