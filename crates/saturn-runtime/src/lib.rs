//! The real driver of a run: a durable journal, worker processes, solves, reports.
//!
//! It performs what [`saturn_engine::Engine`] decides and tells it what happened; it makes no
//! scheduling decision of its own. One thread (the driver) owns the engine, the journal and the
//! table of gangs; every other thread only reads from a pipe, a socket or a child and sends what it
//! read to the driver.
//!
//! Invariants:
//! - Records reach the disk before the actions that were decided with them are performed.
//! - One process drives a run at a time (`run.lock`), and none starts while a worker of an earlier
//!   one lives (`workers.lock`).
//! - No worker outlives the driver.

mod clock;
mod cold;
mod devices;
mod driver;
mod error;
mod files;
mod gangs;
mod journal;
mod protocol;
mod ranks;
mod request;
mod run;
mod run_dir;
mod solve;
mod warm;

pub use error::{RuntimeError, with_causes};
pub use request::RunRequest;
pub use run::{DeviceMemory, Outcome, Watcher, report, resume, start};
pub use solve::{PlanError, Solved, Stopwatch, solve_file};
