//! The facts that several views show, beside those in the engine's state.
//!
//! `history` keeps what the state forgets, as values of `past`; `replay` folds a journal into both.
//! `outcome` compares what happened with the plan, and `planned_by` says what the plan rested on.
//! `expect` says when tasks will end, and `errors` how wrong earlier forecasts were, and with
//! `trial_errors` trials. `device_time` says where the time of devices went, with the uses of
//! `device_use` and, of idle devices, the causes of `idle_causes`. `standstills` keeps when the
//! driver stood still. `counts`, `goal`, `run_status` and `ways` answer the questions that several
//! views ask of the state. `tally` counts for programs that watch runs.
//!
//! Invariants: numbers and names alone, no sentences. The same records give the same facts, in a
//! live run and in one read back from its journal.
//!
//! May use: no other room.

pub(crate) mod counts;
pub(crate) mod device_time;
pub(crate) mod device_use;
pub(crate) mod errors;
pub(crate) mod expect;
pub(crate) mod goal;
pub(crate) mod history;
mod idle_causes;
pub mod outcome;
pub(crate) mod past;
pub(crate) mod planned_by;
pub(crate) mod replay;
pub(crate) mod run_status;
pub(crate) mod standstills;
pub(crate) mod tally;
pub(crate) mod trial_errors;
mod trials_took;
pub(crate) mod ways;
