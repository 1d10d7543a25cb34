//! The turn that ties the rooms: an event comes in, a decision goes out.
//!
//! Invariants: the order of the rooms within a turn is fixed here and nowhere else.
//!
//! May use: every room.

pub(crate) mod commands;
pub(crate) mod judgements;
pub(crate) mod turn;
