//! Saturn's simulator: the same engine and the real solver, on a virtual clock and cluster.
//!
//! A [`World`] holds the truth, drawn from a seed: how fast each task is under each strategy on
//! each type of device ([`Truth`]), its nodes, processes and disk, and its faults ([`Fault`]). A
//! [`Simulation`] is a run in a world. It hands events to the engine, stores its records and
//! performs its actions, as the real driver does.
//!
//! [`policy`] compares Saturn with people's practice and other systems, in the same world without
//! the fuzzer's faults ([`Calm`]), on a workload that a file describes ([`WorkloadFile`]).
//!
//! Only the small programs in `bin/` read a clock or do I/O: equal seeds give equal histories.
//!
//! The source is in *rooms*, folders in one direction: `workloads` → `world` → `solving` →
//! `driving` → `cases` → `policies` → `replaying` → `judge` → `watch` → `fuzz` → `studies`. A room
//! uses the rooms before it, never those after it. So `saturn simulate` uses no room after
//! `replaying`: neither judge nor fuzzer. Each room opens with a page, its `mod.rs`.

mod cases;
mod driving;
mod fuzz;
mod judge;
mod policies;
mod replaying;
mod solving;
mod studies;
mod watch;
mod workloads;
mod world;

pub use cases::workload_error::WorkloadError;
pub use cases::workload_file::WorkloadFile;
pub use driving::calm::Calm;
pub use driving::meter::Cost;
pub use driving::seam::Violation;
pub use driving::simulation::Simulation;
pub use driving::simulation::deeds::Deed;
pub use fuzz::run::{Verdict, digest, run, run_with};
pub use fuzz::saboteur::Bug;
pub use fuzz::scenario::{MAX_S, scenario};
pub use fuzz::story;
pub use solving::planner::{ByProof, Planner};
pub use studies::introspection::{Pair, compare};
pub use studies::measured::{Shape, Spending, Way, spend};
pub use studies::outages::{Outages, Scale, outages};
pub use studies::scale::{FULL_S, WEEK_S, full, run_until, week};
pub use studies::sharing::{Fared, Kind, fare, shared};
pub use workloads::table::{Curve, Model, Table, TableError};
pub use workloads::truth::{GroupTruth, TechniqueTruth, Truth};
pub use workloads::workload::{Size, TECHNIQUES, TYPES, Workload, task, technique};
pub use world::cluster::{Found, Manners, World};
pub use world::faults::{Fault, Hits, Odds};
pub use world::history::{Fact, History};

/// Policies that train a case, and what comes of it.
pub mod policy {
    pub use crate::cases::case::{Case, Job, Knowledge, Moves};
    pub use crate::cases::error::PolicyError;
    pub use crate::cases::outcome::{Held, Outcome, Span};
    pub use crate::cases::script::{Arrivals, Early, Faults, Lost, Pace, Slow};
    pub use crate::policies::interface::{CURRENT_PRACTICE, Policy};
    pub use crate::policies::list::{MORE_POLICIES, POLICIES, policy, simulate};
}

/// Recorded runs, once more in the simulator.
pub mod replay {
    pub use crate::replaying::play::{ReplayError, Replayed, replay};
    pub use crate::replaying::spent::Spent;
}
