//! What the solver is asked, and which plan is adopted.
//!
//! Invariants: a plan is adopted for what the forecast says of it, never for what its solver says. A solve
//! that fails costs a better plan, never a task.
//!
//! May use: `facts`, `state`, `knowledge`, `ledger` and `forecast`.

pub(crate) mod adopting;
pub(crate) mod asking;
pub(crate) mod experiment;
pub(crate) mod extend;
pub(crate) mod fingerprint;
pub(crate) mod outlook;
pub(crate) mod problem;
pub(crate) mod validity;
