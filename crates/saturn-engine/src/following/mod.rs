//! Following the plan in force: what starts, and on which devices.
//!
//! `dispatch` starts tasks that are first on all of their devices. `host_memory` holds back tasks
//! for which a node has too little host memory. `idle` gives idle devices work before the solver
//! answers.
//!
//! Invariants: the order of the plan binds, its times don't. No two attempts share a device.
//!
//! May use: `facts`, `state`, `knowledge`, `ledger` and `planning`.

pub(crate) mod dispatch;
pub(crate) mod host_memory;
pub(crate) mod idle;
