//! The words of Saturn as plain data: planning problems, plans, profiles, and the plan checker.
//!
//! Everything here is a value: no I/O, no clock, no threads, no Python. The checker is written from
//! the definition of the planning problem and shares no code with the solver, so that a plan which
//! passes it is right even where the solver is wrong.

pub mod checker;
mod error;
pub mod names;
mod number;
mod object;
pub mod plan;
pub mod problem;
pub mod profile;

pub use checker::{Violation, check};
pub use error::ProblemError;
pub use plan::{Assignment, Gang, Placement, Plan, PlanStatus, WHOLE};
pub use problem::{Candidate, Cluster, Node, Problem, ProblemTask};
pub use profile::{Knobs, Profile, Strategy, Trial, TrialOutcome};
