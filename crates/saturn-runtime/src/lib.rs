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
//! - [`probe`] finds out about a machine and a directory before a run begins there.
//! - [`status`], [`explain`] and [`report`] describe any run, whether a process drives it or not.
//!   [`left`] states the remaining work of a run as a planning problem.
//!
//! Invariants:
//! - Records reach the disk before the actions that were decided with them are performed.
//! - One process drives a run at a time (`run.lock`). A new driver does not start while a worker of
//!   an earlier driver lives (`workers.lock`). Two runs of one user never hold the same device
//!   (`claims`).
//! - Workers end with their driver. There are two exceptions: processes that the kernel can't end, and
//!   the ranks of a run that lets them outlive its driver (`outliving`).
//! - An observer never delays a run (`followers`). A full disk pauses the run.
//!
//! Threads: the driver owns the engine, the journal and the launcher. Followers fold the records
//! for people who watch or ask. Every other thread only reads from a pipe, a socket or a child
//! process, and passes on what it reads.
//!
//! The source is in *rooms*, folders in one direction: `system` → `devices` → `keeping` →
//! `launching` → `asking` → `run_files` → `probing` → `cluster` → `outliving` → `answering` →
//! `opening` → `driving`. A room uses the rooms before it, never those after it. Each room opens with a page,
//! its `mod.rs`.

mod answering;
mod asking;
mod cluster;
mod devices;
mod driving;
mod keeping;
mod launching;
mod opening;
mod outliving;
mod probing;
mod run_files;
mod system;

/// What can be found out about a machine and a directory before a run begins there.
pub mod probe {
    pub use crate::probing::interpreter::{Said, run_module};
    pub use crate::probing::machine::{Machine, machine};
    pub use crate::probing::places::{
        SocketError, network_file_system, try_control_socket, try_journal,
    };
}

/// The output of tasks' workers.
pub mod logs {
    pub use crate::answering::log_files::{AttemptKind, AttemptLogs, Logs, attempts, newest};
}

/// For measurements of long journals.
pub mod measured {
    pub use crate::run_files::measured::{reopen, write_journal};
}

pub use answering::left::{Left, Unplanned, left, left_at, left_of_recording};
pub use answering::reports::{
    Reported, explain, judged, read, read_report, report, status, trace, write_page, write_trace,
};
pub use asking::control;
pub use cluster::agent::{Agent, AgentSetup, StoreOpener};
pub use cluster::exchange::Exchange;
pub use driving::drive::Outcome;
pub use driving::run::{DeviceMemory, Interpreter, ResumeOptions, interpreter_of, resume, start};
pub use opening::other_python::change_python;
pub use opening::outlook::{Outlook, outlook};
pub use opening::request::RunRequest;
pub use opening::shares::{Quotas, Rules, Shares};
pub use opening::watcher::Watcher;
pub use outliving::agent::RunAgent;
pub use outliving::guest::GuestAgent;
pub use outliving::starting::{Outlived, outlived, stop_outlived};
pub use run_files::journal_location::elsewhere;
pub use run_files::pools::{is_joined, joined_pool, newest_pool, own_task};
pub use run_files::reader::{JournalHead, ReadRecord, RunReader, journal_head, written_at};
pub use run_files::recording::{Recorded, recorded};
pub use run_files::tuners::{cancel_sweep, has_tuner};
pub use system::error::RuntimeError;
pub use system::solve::{PlanError, Solved, Stopwatch, solve_file};
