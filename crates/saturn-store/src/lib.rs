//! The store: what trials and training measured, kept for later runs in a directory of the user's
//! own. Below it, the operations on files that the store and a run's own files share.
//!
//! - [`Store`] adds, reads and forgets trials; [`Platform`] says which of them are valid here. The
//!   store also keeps how wrong the forecasts of earlier runs were (`forecasts`).
//! - [`Disk`] replaces a file in one step, and is the seam at which tests make files fail.
//! - [`home`] is the user's Saturn home; [`FileError`], [`io_words`] and [`with_causes`] tell what
//!   went wrong.
//!
//! Invariants: a file that is replaced is complete and on disk before it gets its name. However
//! many processes write, no trial is lost. A trial is offered only on the platform that it is valid
//! for.
//!
//! This crate knows no run, no engine and no device: a platform is given to it in words.

mod directory;
mod disk;
mod error;
mod forecasts;
mod home;
mod of_runs;
mod platform;
mod trial_errors;

pub use directory::{Added, Store, is_key, is_like};
pub use disk::{Disk, Operation};
pub use error::{FileError, io_words, with_causes};
pub use home::home;
pub use platform::Platform;
pub use trial_errors::{DEFAULT_DEPARTURES, trial_spread};
