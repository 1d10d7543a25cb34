//! One solve, from a problem to a plan that has passed the checker.
//!
//! - [`entry`]: the way in: checks of the problem and of the plan
//! - [`staying`]: plans that move running tasks, only where that gains enough
//! - [`stages`]: chooses lists or general, with or without switches; then early ends
//! - [`warm`]: the plan at hand
//! - [`auto`]: the default backend for lists: a search with a proof or bounds beside it
//! - [`general`]: the backends where there are facts that lists do not know
//! - [`taking`]: how gangs that a search or the exact program placed become the plan
//! - [`sizes`]: the same tasks on several clusters, for `saturn whatif`
//! - [`further`]: what is left of a run, on further nodes too
//!
//! May use: every room.

pub(crate) mod auto;
pub(crate) mod entry;
pub(crate) mod further;
pub(crate) mod general;
pub(crate) mod robust;
pub(crate) mod sizes;
pub(crate) mod stages;
mod staying;
pub(crate) mod tail;
pub(crate) mod taking;
pub(crate) mod warm;
