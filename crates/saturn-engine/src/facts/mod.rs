//! What is told, stored and ordered: plain data, and no decision.
//!
//! Invariants: a value here means the same in every process and in every later version. The serialized
//! names are frozen by the tests of the journal's format.
//!
//! May use: `saturn-core`, and no other room.

pub(crate) mod config;
pub(crate) mod evaluation;
pub(crate) mod event;
pub(crate) mod failure;
pub(crate) mod ids;
pub(crate) mod judgement;
pub mod migrate;
pub(crate) mod plan;
pub(crate) mod record;
