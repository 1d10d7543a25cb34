//! What can be asked about runs, and what is answered. Nothing here knows of HTTP.
//!
//! - `source` is the interface to whatever knows the runs.
//! - `data` has the answers that no view has, and `failure` why there is none.
//!
//! May use: nothing of this crate.

pub(crate) mod data;
pub(crate) mod failure;
pub(crate) mod source;
