//! Following the plan in force: what starts, and on which devices.
//!
//! Invariants: the order of the plan binds, its times don't. No two attempts share a device.
//!
//! May use: `facts`, `state`, `knowledge`, `ledger`, `forecast` and `planning`.

pub(crate) mod dispatch;
pub(crate) mod host_memory;
pub(crate) mod idle;
