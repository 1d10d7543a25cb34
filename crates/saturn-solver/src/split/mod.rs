//! Planned switches: the best plan without them, then pieces of tasks annealed and polished.
//!
//! Gangs wider than a node are not cut, and a plan that has one is left as it is.
//!
//! - [`solve`]: one solve with switches
//! - [`search`]: the search in rounds
//! - [`pieces`]: the state, and when its pieces end
//! - [`anneal`]: the moves on some nodes
//! - [`region`]: which nodes of a large problem are annealed together
//! - [`polish`]: the best shares of the pieces, by a linear program
//! - [`reading`]: a plan as pieces
//! - [`early`]: tasks that end early, within the makespan of a plan
//!
//! May use: `problem`, `course`, `bounds`, `lists`.

pub(crate) mod anneal;
pub(crate) mod early;
pub(crate) mod pieces;
pub(crate) mod polish;
pub(crate) mod reading;
pub(crate) mod region;
pub(crate) mod search;
pub(crate) mod solve;
