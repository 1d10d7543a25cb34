//! What the solver is asked, and which plan is adopted.
//!
//! - `problem` states what is left of the run as a planning problem; `warm_start` is what is left of
//!   the plan in force, as an answer to that problem.
//! - `plannable` says for which tasks a plan can have places.
//! - `asking` decides when the solver is asked; `asked` tells whether the problem is a new one, and
//!   `fingerprint` is what it remembers of the last problem.
//! - `deadlines` says which deadlines a plan need not keep, if no plan keeps all.
//! - `extend` puts tasks without a place behind the plan in force, without the solver.
//! - `validity` finds places that can't be followed. `variants` are plans like the solver's answer
//!   that stop fewer tasks. `incumbent` judges plans by the forecast, `adopting` adopts the best,
//!   and `taking_up` tells running attempts what the adopted plan has them do.
//! - `experiment` chooses the trials that may save more than they cost.
//! - `outlook` is the planning problem of a run that has not begun; `remaining_work` is that of a
//!   run in progress, for plans that are only looked at.
//!
//! Invariants: a plan is adopted for what the forecast says of it, never for what its solver says.
//! A solve that fails costs a better plan, never a task.
//!
//! May use: `facts`, `state`, `knowledge`, `changes`, `ledger` and `forecast`.

pub(crate) mod adopting;
pub(crate) mod alone;
pub(crate) mod asked;
pub(crate) mod asking;
pub(crate) mod deadlines;
pub(crate) mod experiment;
pub(crate) mod extend;
pub(crate) mod fingerprint;
pub(crate) mod incumbent;
pub(crate) mod outlook;
pub(crate) mod plannable;
pub(crate) mod problem;
pub(crate) mod remaining_work;
pub(crate) mod taking_up;
pub(crate) mod validity;
pub(crate) mod variants;
pub(crate) mod warm_start;
