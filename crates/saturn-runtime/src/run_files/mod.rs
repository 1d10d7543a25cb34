//! The files of a run: its directory, its locks and its journal.
//!
//! - `run_dir` claims a run directory for a driver.
//! - `journal` stores records; `contents` reads them, and `plans` stores a plan as its differences
//!   from the plan before it (`plan_parts`). `journal_location` says where the journal is.
//! - `replayed` folds a journal into the run's state and history.
//! - `reader` reads a journal as it grows. `recording` reads an ended run for its replay. `pools` finds the user's open run.
//! - `measured` is for measurements of long journals.
//! - `new_tasks` checks tasks that are to join a run.
//! - `tuners` looks for stoppers and studies, and cancels sweeps that have a tuner of their own.
//!
//! Invariants: one process drives a run at a time. The records of a decision are stored all or not
//! at all.
//!
//! May use: `asking`, `launching`, `keeping` and `system`.

pub(crate) mod contents;
pub(crate) mod journal;
pub(crate) mod journal_location;
pub(crate) mod measured;
pub(crate) mod new_tasks;
pub(crate) mod plan_parts;
pub(crate) mod plans;
pub(crate) mod pools;
pub(crate) mod reader;
pub(crate) mod recording;
pub(crate) mod replayed;
pub(crate) mod run_dir;
pub(crate) mod tuners;
