//! The orchestrator as a state machine without I/O.
//!
//! The engine is told what happened ([`Event`]) and when (`now_s`), and answers with what to write
//! down ([`Record`]) and what to do ([`Action`]). It never reads a clock, sleeps, opens a file or
//! talks to a process, so the real driver and a simulation run the same code, and a run can be
//! rebuilt from its journal.
//!
//! Invariants:
//! - [`State`] changes durably only through [`State::apply`] of a [`Record`]. Folding the records
//!   of a journal, or of any prefix of it, rebuilds the state. What reports say between two records
//!   (the live step and loss) is a convenience for people, never needed to resume.
//! - Records are to be stored before the actions of the same [`Decision`] are performed.
//! - No device is ever given to two live attempts, and no task has two live attempts.
//!
//! Times are seconds on the run's clock, which starts at 0 and stands still while no process drives
//! the run.

pub mod config;
pub mod engine;
pub mod event;
pub mod forecast;
pub mod ids;
pub mod record;
pub mod state;

mod apply;
mod device_memory;
mod dispatch;
mod planning;
mod recovery;
mod remaining;
mod trials;

pub use config::{DeviceKind, Level, Mode, Policy, RunConfig, TaskSpec, TechniqueRef};
pub use engine::{Decision, Engine};
pub use event::{Action, Event, FailureKind, RankFailure, RankReport, SolveAnswer};
pub use forecast::{Forecast, forecast};
pub use ids::{AttemptId, TaskId};
pub use record::{AttemptEnd, PlannedTask, Purpose, Record, RunEnd, RunPlan, StopReason, TaskEnd};
pub use state::{Attempt, Phase, State, TaskState, TaskStatus, TrialSlot};
