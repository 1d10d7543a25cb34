//! What people and trackers are told about a run.
//!
//! - `followers` are threads beside the driver that fold the records for the console and for
//!   questions. `trackers` is the process that passes metrics on.
//! - `reports` answers questions about any run: it asks the driver, or reads the journal if no
//!   process drives the run. `left` makes a planning problem of the work that a run has left.
//!   `preview` says what a submission would do.
//! - `guests` says what other people of the machine may do in a shared pool, and are told.
//! - `log_files` are the output of tasks' workers. `day_time` tells deadlines as times of day.
//!
//! Invariants: an observer never delays a run.
//!
//! May use: `run_files`, `asking`, `launching`, `keeping` and `system`.

pub(crate) mod day_time;
pub(crate) mod followers;
pub(crate) mod guests;
pub(crate) mod left;
pub(crate) mod log_files;
pub(crate) mod preview;
pub(crate) mod reports;
pub(crate) mod trackers;
