//! What every other room needs of the operating system: errors, clocks, files, wake-ups.
//!
//! - `error` has every error that ends a run or keeps it from starting.
//! - `clock` is the only reader of the machine's clock; `bell` wakes the driver's thread.
//! - `disk` has the operations on files that tests make fail. `home` is the user's Saturn home;
//!   `run_id` makes names of runs.
//! - `solve` runs the solver on a real clock.
//!
//! Invariants: a file that is replaced is complete and on disk before it gets its name.
//!
//! May use: no other room.

pub(crate) mod bell;
pub(crate) mod clock;
pub(crate) mod disk;
pub(crate) mod error;
pub(crate) mod home;
pub(crate) mod run_id;
pub(crate) mod solve;
