//! The exact mixed-integer program, for problems of a few tasks.
//!
//! - [`milp`]: variables, rows, and how a solution is read
//! - [`places`]: the rows of one task on its nodes
//! - [`sessions`]: the rows of the cost
//!
//! May use: `problem`, `bounds`, `general`.

pub(crate) mod milp;
pub(crate) mod places;
pub(crate) mod sessions;
