//! The doctor: what this machine has for runs, what will not work on it, and what to do about that.
//!
//! - `examine` asks all parts: `machine` (devices and limits), `places` (directories and sockets)
//!   and `interpreter` (Python and torch). Each answers with findings (`finding`).
//!
//! Invariants: the doctor tries things out with the code that runs use. It leaves nothing behind,
//! takes no lock that a run waits for, and repairs nothing.
//!
//! May use: `run_files`, `asking`, `launching`, `store`, `devices` and `system`.

pub(crate) mod examine;
pub(crate) mod finding;
pub(crate) mod interpreter;
pub(crate) mod machine;
pub(crate) mod places;
