//! What is to be trained, and how fast each task truly is.
//!
//! - `truth` has the true times of groups, techniques and devices. `table` reads measured times.
//! - `workload` draws nodes, tasks and their truth from a seed.
//! - `host_bytes` says how much host memory an attempt takes.
//!
//! Invariants: equal seeds give equal workloads. The engine never sees the truth.
//!
//! May use: no other room.

pub(crate) mod host_bytes;
pub(crate) mod table;
pub(crate) mod truth;
pub(crate) mod workload;
