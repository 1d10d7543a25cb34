//! What goes wrong: failures and retries, bad devices, nodes that go, tasks that can't run.
//!
//! Invariants: a failure costs one task or one device, never the run. What memory of failures is lost at a
//! resume makes the engine more patient, never less safe.
//!
//! May use: every room before it.

pub(crate) mod devices;
pub(crate) mod disks;
pub(crate) mod failures;
pub(crate) mod hopeless;
pub(crate) mod nodes;
pub(crate) mod stuck;
