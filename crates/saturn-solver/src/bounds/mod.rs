//! Lower bounds.
//!
//! On the makespan: [`area`], cheap and for every problem; [`dual_feasible`], a linear program, for
//! up to about a hundred tasks; [`config_lp`] for plans with switches. On weighted completion:
//! [`ascent`], which searches for [`prices`] of devices over time. Each file says why its bound
//! holds.

pub(crate) mod area;
pub(crate) mod ascent;
pub(crate) mod config_lp;
pub(crate) mod dual_feasible;
pub(crate) mod prices;
