//! The turn that ties the rooms: an event comes in, a decision goes out.
//!
//! [`Engine::handle`](crate::Engine::handle), in `turn`, takes an event in and then lets each room
//! bring the run forward, always in the same order. `reports` takes in what ranks report,
//! `commands` what people ask (`names`: the tasks that they name), and `judgements` what the run's
//! stopper rules. `rehearsal` tries a submission on a copy of the run. `adoption` takes on attempts
//! that outlived the last driver.
//!
//! Invariants: the order of the rooms within a turn is fixed here and nowhere else.
//!
//! May use: every room.

pub(crate) mod adoption;
pub(crate) mod commands;
pub(crate) mod judgements;
pub(crate) mod names;
pub(crate) mod rehearsal;
pub(crate) mod reports;
pub(crate) mod turn;
