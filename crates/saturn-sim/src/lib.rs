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

mod calm;
mod drawn;
mod fate;
mod faults;
mod gang;
mod greedy;
mod heap;
mod history;
mod host_bytes;
mod introspection;
mod invariants;
mod judge;
mod launcher;
mod measured;
mod meter;
mod missing;
mod outages;
mod planner;
pub mod policy;
pub mod replay;
mod run;
mod saboteur;
mod scale;
mod scenario;
mod simulation;
pub mod story;
mod table;
mod truth;
mod workload;
mod workload_file;
mod world;

pub use calm::Calm;
pub use faults::{Fault, Hits, Odds};
pub use history::{Fact, History};
pub use introspection::{Pair, compare};
pub use measured::{Shape, Spending, Way, spend};
pub use meter::Cost;
pub use outages::{Outages, Scale, outages};
pub use planner::{ByProof, Planner};
pub use run::{Verdict, digest, run, run_with};
pub use saboteur::Bug;
pub use scale::{WEEK_S, week};
pub use scenario::{MAX_S, scenario};
pub use simulation::{Deed, Found, Simulation, Violation};
pub use table::{Curve, Model, Table, TableError};
pub use truth::{GroupTruth, TechniqueTruth, Truth};
pub use workload::{Size, TECHNIQUES, TYPES, Workload, task, technique};
pub use workload_file::{WorkloadError, WorkloadFile};
pub use world::{Manners, World};
