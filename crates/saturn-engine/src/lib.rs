//! The orchestrator as a state machine without I/O.
//!
//! The engine is told what happened ([`Event`]) and when (`now_s`), and answers with what to write
//! down ([`Record`]) and what to do ([`Action`]). It never reads a clock, sleeps, opens a file or
//! talks to a process. So the real driver and a simulation run the same code, and a run can be
//! rebuilt from its journal.
//!
//! Tasks and nodes come and go at any time, and each task has a stage of its own. Trials share the
//! devices with training. The engine asks for a plan as soon as a task can be planned, and again
//! when an input of the plan changes.
//!
//! Invariants:
//! - [`State`] changes durably only through [`State::apply`] of a [`Record`]. Folding the records
//!   of a journal, or of any prefix of it, rebuilds the state. What reports say between two records
//!   (the live step and loss) is a convenience, never needed to resume.
//! - Records are to be stored before the actions of the same [`Decision`] are performed.
//! - No device is ever given to two live attempts, and no task has two live attempts.
//! - The times that a plan promises come from the engine's own forecast of following it.
//!
//! # A turn
//!
//! The source is in *rooms*, folders in one direction: `facts` → `state` → `knowledge` →
//! `changes` → `ledger` → `forecast` → `planning` → `following` → `measuring` → `health` →
//! `interfaces` → `engine`. A room uses the rooms before it, never those after it:
//! `tests/all/rooms.rs` reads the imports and the calls. Each room opens with a page, its `mod.rs`.
//! To follow an event, read in this order:
//!
//! ```text
//! Event            facts/event.rs
//!   │  Engine::handle   engine/turn.rs: take_in, wake, advance
//!   ▼
//! Record           facts/record.rs
//!   │  Ledger::commit   ledger/book.rs: apply, note, hand out
//!   ▼
//! State            state/run.rs; State::apply in changes/apply.rs
//!   │  notes            ledger/notes.rs: what must be looked at because of the record
//!   ▼
//! Agenda           ledger/agenda.rs, queues.rs, idle.rs, timers.rs
//!   │  advance          measuring, health, following and planning look at their parts of it,
//!   │                   and commit further records
//!   ▼
//! Decision         ledger/book.rs: records to store, then actions to perform
//! ```
//!
//! An example is a task's end. Its last rank exits (`engine/reports.rs`), and `health/failures.rs`
//! commits `Ended` and `TaskEnded`. The notes put its devices on the agenda, and
//! `following/dispatch.rs` launches the tasks that are now first on them.
//!
//! Times are seconds on the run's clock, which starts at 0 and stands still while no process drives
//! the run.

mod changes;
mod engine;
mod facts;
mod following;
mod forecast;
mod health;
mod interfaces;
mod knowledge;
mod ledger;
mod measuring;
mod planning;
mod state;

pub use engine::rehearsal::Rehearsal;
pub use engine::turn::Engine;
pub use facts::config::{
    Allowed, DeviceKind, EvaluationSpec, Goal, GoalMode, Level, Mode, Policy, RunConfig, TaskSpec,
    TechniqueRef, TrialBudget, Wishes,
};
pub use facts::evaluation::{BestEvaluation, Evaluation, Metrics};
pub use facts::event::{
    Action, Command, Event, NewTask, RankReport, SolveAnswer, SolveOrder, Undead,
};
pub use facts::failure::{FailureKind, RankFailure};
pub use facts::ids::{AttemptId, DeviceId, NodeId, TaskId, devices};
pub use facts::judgement::{Judgement, NamedJudgement, Ruling};
pub use facts::machines::{MachineMemory, Machines};
pub use facts::migrate;
pub use facts::owner::Owner;
pub use facts::plan::{Place, PlanSource, RunPlan};
pub use facts::record::{
    AttemptEnd, ChosenTrial, Purpose, Record, RunEnd, StopReason, TaskEnd, no_strategy,
};
pub use facts::refusal::{Refusal, RefusalCode};
pub use facts::sharing::{Guarantee, Guaranteed, Sharing, Uid};
pub use forecast::follow::{Forecast, forecast};
pub use interfaces::launcher::{GangPart, LaunchError, LaunchOrder, Launcher, News, Widths, Work};
pub use interfaces::observer::Observer;
pub use knowledge::strategies::Choice;
pub use ledger::book::Decision;
pub use planning::outlook::{Outlook, outlook};
pub use planning::remaining_work::{RemainingWork, remaining_work};
pub use state::attempt::{Attempt, LeftOut, Recent, Warm};
pub use state::device::{DeviceState, NodeState, Slowness};
pub use state::group::{Group, InspectionState};
pub use state::lesson::Estimate;
pub use state::people::Person;
pub use state::run::State;
pub use state::space::NoSpace;
pub use state::stage::Stage;
pub use state::task::{Judged, TaskState, TaskStatus};
pub use state::trial::{TrialKey, TrialState};
