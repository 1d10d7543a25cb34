//! Proofs that a small problem has no better plan, by exhaustion.
//!
//! - [`decide`]: deals tasks to nodes in every way that the areas allow
//! - [`cover`]: many nodes with a few tasks on each: whether patterns of the nodes cover all tasks
//! - [`patterns`]: which tasks one node can run within a limit
//! - [`strip`]: decides one node with its tasks
//!
//! May use: `problem`, `bounds`, `course`.

pub(crate) mod cover;
pub(crate) mod decide;
pub(crate) mod patterns;
pub(crate) mod strip;
