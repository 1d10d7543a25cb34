//! Lower bounds on the makespan.
//!
//! [`area`]: cheap, for every problem. [`dual_feasible`]: a linear program, for up to about a
//! hundred tasks. Each file says why its bound holds.

pub(crate) mod area;
pub(crate) mod config_lp;
pub(crate) mod dual_feasible;
