//! The real driver of a run: a durable journal, worker processes, solves, reports.
//!
//! It performs what [`saturn_engine::Engine`] decides and tells it what happened; it makes no
//! scheduling decision of its own.
//!
//! - [`start`] and [`resume`] drive a run in the calling thread until it ends.
//! - [`control::ask`] asks a run that another process drives: a command, its status, an explanation.
//! - [`Exchange`] carries letters between a run and the [`Agent`]s of a cluster's nodes, each of which
//!   launches on its machine what a run on one machine launches itself.
//! - [`outlook`] says what is known of tasks that are not to be run yet.
//! - [`Store`] keeps what trials found for later runs.
//! - [`status`], [`explain`] and [`report`] tell of any run, driven or not.
//!
//! Invariants:
//! - Records reach the disk before the actions that were decided with them are performed.
//! - One process drives a run at a time (`run.lock`), and none starts while a worker of an earlier
//!   one lives (`workers.lock`). No device of a machine is given to two runs of a user (`claims`).
//! - No worker outlives the driver, but for those that the kernel can't end.
//! - Nobody who watches delays a run (`followers`). A full disk pauses it.
//!
//! Threads: the driver owns the engine, the journal and the launcher. Followers fold records of
//! their own for the people who watch or ask. Every other thread only reads from a pipe, a socket or
//! a child, and passes on what it read.

mod bell;
mod claims;
mod clock;
mod cluster;
pub mod control;
mod devices;
mod disk;
mod doctor;
mod driver;
mod error;
mod followers;
mod hardware;
mod host_memory;
mod journal;
mod journal_seat;
mod launcher;
mod outlook;
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
pub use error::{RuntimeError, io_words, with_causes};
pub use journal_seat::elsewhere;
pub use outlook::{Outlook, outlook};
pub use reports::{
    Reported, explain, judged, read, read_report, report, status, trace, write_page, write_trace,
};
pub use request::RunRequest;
pub use run::{
    DeviceMemory, Interpreter, Outcome, ResumeOptions, Watcher, interpreter_of, resume, start,
};
pub use solve::{PlanError, Solved, Stopwatch, solve_file};
pub use store::{Added, Store, is_key};
