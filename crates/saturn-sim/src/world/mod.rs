//! The virtual cluster: nodes, processes, a disk, and a clock that jumps from one event to the
//! next.
//!
//! - `cluster` is the world, and `launcher` has it behind the engine's interface `Launcher`. `gang`
//!   is the processes of an attempt.
//! - `faults` has the kinds of faults, and `fate` draws a gang's faults at its launch. A world
//!   without odds has no faults.
//! - `recorded` is the interface by which a recorded run gives its times in place of the truth.
//! - `history` keeps what happened; `heap` has what is still to happen.
//!
//! Invariants: the world never looks into the engine. Equal seeds give equal histories.
//!
//! May use: `workloads`.

pub(crate) mod cluster;
pub(crate) mod fate;
pub(crate) mod faults;
pub(crate) mod gang;
pub(crate) mod heap;
pub(crate) mod history;
pub(crate) mod launcher;
pub(crate) mod recorded;
