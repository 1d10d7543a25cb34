//! The store: the results of trials and training, kept for later runs in a directory of the user's
//! own.
//!
//! - `directory` is the store itself: its files, and how a file is replaced.
//! - `platform` is the hardware and software that a trial is valid for.
//! - `shelf` is a run's view of the store; `keeper` is the thread that puts a run's trials there.
//!
//! Invariants: however many processes write, no trial is lost. A trial is offered only to a run
//! on the platform that it is valid for.
//!
//! May use: `devices` and `system`.

pub(crate) mod directory;
pub(crate) mod keeper;
pub(crate) mod platform;
pub(crate) mod shelf;
