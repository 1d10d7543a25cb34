//! The real driver of a run: a durable journal, worker processes, solves, reports.
//!
//! It performs the actions that [`saturn_engine::Engine`] decides and tells it what happened. It
//! makes no scheduling decision of its own.
//!
//! - [`start`] and [`resume`] drive a run in the calling thread until it ends.
//! - [`control::ask`] sends a command or a question to a run that another process drives.
//! - [`Exchange`] carries letters between a run and the [`Agent`]s of a cluster's nodes. Each agent
//!   launches processes on its machine as a run on one machine does.
//! - [`outlook`] makes a planning problem of tasks before they are run.
//! - [`Store`] keeps the results of trials for later runs.
//! - [`status`], [`explain`] and [`report`] describe any run, whether a process drives it or not.
//!   [`left`] poses what is left of it as a planning problem.
//!
//! Invariants:
//! - Records reach the disk before the actions that were decided with them are performed.
//! - One process drives a run at a time (`run.lock`). A new driver does not start while a worker of
//!   an earlier driver lives (`workers.lock`). Two runs of one user never hold the same device
//!   (`claims`).
//! - No worker outlives the driver, except those that the kernel can't end.
//! - An observer never delays a run (`followers`). A full disk pauses the run.
//!
//! Threads: the driver owns the engine, the journal and the launcher. Followers fold the records
//! for people who watch or ask. Every other thread only reads from a pipe, a socket or a child
//! process, and passes on what it reads.

mod bell;
mod claims;
mod clock;
mod cluster;
pub mod control;
mod devices;
mod disk;
mod doctor;
mod driver;
mod driving;
mod error;
mod followers;
mod ground;
mod hardware;
mod host_memory;
mod journal;
mod journal_seat;
mod launcher;
mod left;
mod outlook;
mod pools;
mod preview;
mod recording;
mod reports;
mod request;
mod run;
mod run_dir;
mod solve;
mod space;
mod store;
mod trackers;
mod waiting;

pub use cluster::{Agent, AgentSetup, Exchange, StoreOpener};
pub use disk::{Disk, Operation};
pub use doctor::{Finding, Mark, examine};
pub use driving::Outcome;
pub use error::{RuntimeError, io_words, with_causes};
pub use journal_seat::elsewhere;
pub use left::{Left, Unplanned, left, left_at, left_of_recording};
pub use outlook::{Outlook, outlook};
pub use pools::newest_pool;
pub use recording::{Recorded, recorded};
pub use reports::{
    Reported, explain, judged, read, read_report, report, status, trace, write_page, write_trace,
};
pub use request::RunRequest;
pub use run::{DeviceMemory, Interpreter, ResumeOptions, Watcher, interpreter_of, resume, start};
pub use solve::{PlanError, Solved, Stopwatch, solve_file};
pub use store::{Added, Store, is_key};
