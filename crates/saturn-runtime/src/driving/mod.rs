//! The driver of a run: events in, records to the journal, actions to the launcher.
//!
//! - `run` starts and resumes runs; `again` is what a resumed run has again. `drive` takes a run from its launcher to its report.
//! - `driver` is the loop: it asks the engine, stores the records, then performs the actions.
//! - `listening` tells whether the loop stood still for a while. `space` watches a full disk,
//!   `in_place` whether the run's directory was moved, `outside` the GPUs that other programs use.
//!
//! Invariants: records reach the disk before the actions that were decided with them are
//! performed. One thread owns the engine, the journal and the launcher.
//!
//! May use: every room before it.

mod again;
pub(crate) mod drive;
pub(crate) mod driver;
pub(crate) mod in_place;
pub(crate) mod listening;
pub(crate) mod outside;
pub(crate) mod run;
pub(crate) mod space;
