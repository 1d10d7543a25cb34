//! The orchestrator as a state machine without I/O.
//!
//! The engine is told what happened ([`Event`]) and when (`now_s`), and answers with what to write
//! down ([`Record`]) and what to do ([`Action`]). It never reads a clock, sleeps, opens a file or
//! talks to a process, so the real driver and a simulation run the same code, and a run can be
//! rebuilt from its journal.
//!
//! The world is open: tasks and nodes come and go, and each task has a stage of its own. Measuring is
//! work among other work; a plan is made as soon as a task can be planned, and made anew when what it
//! rests on changes.
//!
//! Invariants:
//! - [`State`] changes durably only through [`State::apply`] of a [`Record`]. Folding the records
//!   of a journal, or of any prefix of it, rebuilds the state. What reports say between two records
//!   (the live step and loss) is a convenience, never needed to resume.
//! - Records are to be stored before the actions of the same [`Decision`] are performed.
//! - No device is ever given to two live attempts, and no task has two live attempts.
//! - What a plan promises is what the engine's own forecast of following it gives.
//!
//! Times are seconds on the run's clock, which starts at 0 and stands still while no process drives
//! the run.

pub mod config;
pub mod engine;
pub mod estimate;
mod evaluation;
pub mod event;
pub mod forecast;
pub mod ids;
pub mod judgement;
pub mod launcher;
pub mod migrate;
pub mod observer;
pub mod record;
pub mod state;
mod stuck;

mod about;
mod adopting;
mod apply;
mod apply_trials;
mod by_device;
mod control;
mod correction;
mod dispatch;
mod experiment;
mod extend;
mod going_on;
mod group;
mod health;
mod hopeless;
mod host_memory;
mod idle;
mod inspections;
mod knowledge;
mod notes;
mod order;
mod outlook;
mod paces;
mod planning;
mod pool;
mod queues;
mod recovery;
mod remaining;
mod rooms;
mod scaling;
mod space;
mod stage;
mod timers;
mod trials;
mod wanted;
mod wide;

pub use config::{
    Allowed, DeviceKind, EvaluationSpec, Goal, GoalMode, Level, Machines, Mode, Policy, RunConfig,
    TaskSpec, TechniqueRef, TrialBudget, Wishes,
};
pub use engine::{Decision, Engine};
pub use estimate::{Choice, Warm};
pub use evaluation::{BestEvaluation, Evaluation, Metrics};
pub use event::{
    Action, Command, Event, FailureKind, NewTask, RankFailure, RankReport, SolveAnswer, SolveOrder,
};
pub use forecast::{Forecast, forecast};
pub use group::{Group, InspectionState, TrialKey, TrialState};
pub use ids::{AttemptId, DeviceId, NodeId, TaskId, devices};
pub use judgement::{Judged, Judgement, NamedJudgement, Ruling};
pub use knowledge::Estimate;
pub use launcher::{GangPart, LaunchError, LaunchOrder, Launcher, News, Widths, Work};
pub use observer::Observer;
pub use outlook::{Outlook, outlook};
pub use record::{
    AttemptEnd, ChosenTrial, Place, PlanSource, Purpose, Record, RunEnd, RunPlan, StopReason,
    TaskEnd, no_strategy,
};
pub use space::NoSpace;
pub use stage::Stage;
pub use state::{Attempt, DeviceState, NodeState, State, TaskState, TaskStatus};
