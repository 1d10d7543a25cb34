//! Plain data: what the engine is told, what the journal stores, and what the engine asks for.
//!
//! - `ids`, `config`, `machines`, `wishes`: the names of things within a run, and what a run, its
//!   machines and its tasks are.
//! - `event`: what happens to the engine, and the actions that the engine asks for. `microseconds`
//!   rounds the times of one of these.
//! - `record`, `plan`: what a journal keeps. `kind` names the kinds of records. `migrate` reads journals
//!   of earlier versions.
//! - `failure`, `ends`, `evaluation`, `judgement`: parts of events and records.
//! - `owner`: whose a task is. `sharing`: how the tasks of several people are planned together.
//! - `refusal`: why a command is refused.
//!
//! Invariants: a value here means the same in every process and in every later version. The
//! serialized names are frozen by the tests of the journal's format.
//!
//! May use: `saturn-core`, and no other room.

pub(crate) mod config;
pub(crate) mod ends;
pub(crate) mod evaluation;
pub(crate) mod event;
pub(crate) mod failure;
pub(crate) mod ids;
pub(crate) mod judgement;
mod kind;
pub(crate) mod machines;
mod microseconds;
pub mod migrate;
pub(crate) mod owner;
pub(crate) mod plan;
pub(crate) mod record;
pub(crate) mod refusal;
pub(crate) mod sharing;
mod wishes;
