//! Proofs that a small problem has no better plan, by exhaustion.
//!
//! - [`decide`]: deals tasks to nodes in every way that the areas allow
//! - [`strip`]: decides one node with its tasks
//!
//! May use: `problem`, `course`.

pub(crate) mod decide;
pub(crate) mod strip;
