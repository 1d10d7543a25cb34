//! Lower bounds, and the linear programs that some of them solve ([`program`], over HiGHS).
//!
//! On the makespan: [`area`], cheap and for every problem; [`dual_feasible`], a linear program, for
//! up to about a hundred tasks; [`mixes`] and [`config_lp`] for plans with switches. On weighted
//! completion: [`ascent`], which searches for [`prices`] of devices over time. Each file says why
//! its bound holds.
//!
//! May use: `problem`, `course`.

pub(crate) mod area;
pub(crate) mod ascent;
pub(crate) mod config_lp;
pub(crate) mod dual_feasible;
mod fluid;
pub(crate) mod mixes;
pub(crate) mod prices;
pub(crate) mod program;
