//! The turn that ties the rooms: an event comes in, a decision goes out.
//!
//! [`Engine::handle`](crate::Engine::handle), in `turn`, takes an event in and then lets each room bring
//! the run forward, always in the same order. `reports` takes in the words of ranks, `commands` those of
//! people, `judgements` those of the run's stopper.
//!
//! Invariants: the order of the rooms within a turn is fixed here and nowhere else.
//!
//! May use: every room.

pub(crate) mod commands;
pub(crate) mod judgements;
pub(crate) mod names;
pub(crate) mod reports;
pub(crate) mod turn;
