//! What can be found out about a machine and a directory before a run begins there. `saturn doctor`
//! tells it to people.
//!
//! - `machine` has the facts of devices, memory and limits, as a run would see them.
//! - `places` tries what a run does in its directory: a journal, a control socket.
//! - `interpreter` runs a module of the user's Python, as a run's workers are run.
//!
//! Invariants: nothing that is tried stays behind.
//!
//! May use: `devices`, `launching`, `asking`, `run_files` and `system`.

pub(crate) mod interpreter;
pub(crate) mod machine;
pub(crate) mod places;
