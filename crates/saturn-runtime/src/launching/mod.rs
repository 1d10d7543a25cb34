//! The processes of a run on one machine: their start, their reports, their end.
//!
//! - `launcher` is the engine's `Launcher` for this machine. `gangs` has the live attempts.
//! - `parents` decides which parent process forks a rank, and `parent` is one such process.
//!   `protocol` has the messages to parents and ranks; `ranks` listens to ranks.
//! - `files` writes an attempt's directory. `strays` ends processes that escaped from their rank.
//! - `leftovers` removes the sockets of processes that were killed.
//! - `orders` keeps what a gang is told before its ranks live.
//! - `input` carries the messages of all threads to the launcher. `settings` and `site` say how and
//!   where the run's processes start.
//!
//! Invariants: an attempt is over only when no process of it lives. No worker outlives the process
//! of its launcher, except those that the kernel can't end.
//!
//! May use: `keeping`, `devices` and `system`.

pub(crate) mod files;
pub(crate) mod gangs;
pub(crate) mod input;
pub(crate) mod launcher;
pub(crate) mod leftovers;
pub(crate) mod orders;
pub(crate) mod parent;
pub(crate) mod parents;
pub(crate) mod protocol;
pub(crate) mod ranks;
pub(crate) mod settings;
pub(crate) mod site;
pub(crate) mod strays;
