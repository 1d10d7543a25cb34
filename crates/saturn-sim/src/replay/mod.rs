//! Recorded runs, once more in the simulator: how far a simulated makespan is from a real one.
//!
//! [`replay`] reads the journal of a run that has ended. From it come the tasks, what was done to
//! the run from outside ([`script`]), and how long everything took that the run did ([`costs`]).
//! Decisions are not taken from it: the same engine and solver make them anew, with what the run
//! knew at its beginning, and with what its inspections and trials found once they have found it
//! again. Of equally good plans the replay takes the run's ([`answer`]). Then [`Spent`] says where
//! the devices' time went in both, so that a difference can be named.
//!
//! Nothing is fitted to more than one run: each figure is from the journal that is replayed.

mod answer;
mod attempts;
mod costs;
mod figures;
mod pending;
mod play;
mod script;
mod shape;
mod solves;
mod spent;

pub(crate) use costs::Costs;
pub use play::{ReplayError, Replayed, replay};
pub(crate) use solves::Answered;
pub use spent::Spent;
