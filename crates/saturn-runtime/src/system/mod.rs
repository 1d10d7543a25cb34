//! What every other room needs of the operating system: errors, clocks, wake-ups.
//!
//! - `error` has every error that ends a run or keeps it from starting.
//! - `clock` is the only reader of the machine's clock; `bell` wakes the driver's thread.
//! - `looker` looks at what may hang, on a thread of its own.
//! - `processes` reads what Linux shows of a process.
//! - `run_id` makes names of runs.
//! - `solve` runs the solver on a real clock.
//!
//! May use: no other room.

pub(crate) mod bell;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod looker;
pub(crate) mod processes;
pub(crate) mod run_id;
pub(crate) mod solve;
