//! The answers of one user's runs on this machine.
//!
//! - `runs` is the source: it finds runs by name. `kept` decides which of those that were asked about
//!   are followed further.
//! - `followed` is one such run: its journal as far as it was read, and what its driver says.
//! - `events` puts records into words. `summary` is a line of the list of runs. `logs` reads parts
//!   of logs. `pages` is what pages show.
//!
//! Invariants: a run is asked at most twice a second, however many clients ask. Nothing is written.
//!
//! May use: `answers`.

pub(crate) mod events;
pub(crate) mod followed;
pub(crate) mod kept;
pub(crate) mod logs;
pub(crate) mod pages;
pub(crate) mod runs;
pub(crate) mod summary;
