//! The basic data types of Saturn: planning problems, plans and profiles; and the plan checker.
//!
//! Everything here is a value: no I/O, no clock, no threads, no Python. The checker is written from
//! the definition of the planning problem and shares no code with the solver. So it finds wrong
//! plans even if the solver has a bug.

pub mod checker;
mod error;
mod fits;
mod forecast_errors;
pub mod inspection;
mod lateness;
pub mod measure;
pub mod names;
mod number;
mod object;
mod objective;
mod places;
pub mod plan;
mod plan_file;
pub mod problem;
pub mod profile;
mod robust;
mod trained;
mod validate;

pub use checker::{Violation, check, verified};
pub use error::ProblemError;
pub use forecast_errors::{ForecastErrors, quantile};
pub use inspection::{Finding, Inspection, Verdict};
pub use lateness::Lateness;
pub use objective::Objective;
pub use plan::{
    Assignment, Gang, OPTIMAL_GAP, Placement, Plan, PlanStatus, Reason, Refutation, SolveEnd,
    WHOLE, seconds_late,
};
pub use problem::{
    Candidate, Cluster, HeldDevices, Node, Owner, Problem, ProblemTask, Running, Wide,
};
pub use profile::{Knobs, Origin, Profile, Strategy, StrategyKey, Trial, TrialOutcome};
pub use robust::{Outcome, Robust};
pub use trained::Trained;
