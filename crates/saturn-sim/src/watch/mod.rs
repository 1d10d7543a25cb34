//! The rules that hold at every event, checked while a run goes on.
//!
//! - `invariants` compares the engine's state with the world, and with the fold of its journal.
//! - `host_memory` says whether a waiting task should have been given host memory.
//! - `hindsight` says the same once the times are known, where nothing disturbs the run.
//! - `overdue` says when gangs are to be killed, and given up.
//! - `paces` says that training tells how long its steps took.
//! - `promises` says that tasks start and end when the plan says, where nothing disturbs it.
//! - `rulings` says when a stopper's rulings bring a plan.
//! - `idle` says when devices stand idle for too long beside tasks that could start.
//!
//! Invariants: a watch changes nothing: a run has the same history with it and without it.
//!
//! May use: `driving`, `world` and `workloads`.

pub(crate) mod hindsight;
pub(crate) mod host_memory;
pub(crate) mod idle;
pub(crate) mod invariants;
pub(crate) mod overdue;
pub(crate) mod paces;
pub(crate) mod promises;
mod quotas;
pub(crate) mod rulings;
