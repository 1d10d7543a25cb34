//! Recorded runs, once more in the simulator: how far a simulated makespan is from a real one.
//!
//! `play` reads the journal of a run that has ended. From it come the tasks, what was done to
//! the run from outside (`script`), and how long everything took that the run did (`costs`).
//! Decisions are not taken from it: the same engine and solver make them anew, with what the run
//! knew at its beginning, and with what its inspections and trials found once they have found it
//! again. Of equally good plans the replay takes the run's (`solves`). Then `spent` says where
//! the devices' time went in both, so that a difference can be named.
//!
//! Nothing is fitted to more than one run: each figure is from the journal that is replayed.
//!
//! `attempts` reads the run's attempts, `figures` and `shape` their times. `pending` holds what was
//! done from outside until the replay has come so far.
//!
//! Invariants: decisions are made anew, never taken from the journal.
//!
//! May use: `driving`, `solving`, `world` and `workloads`.

pub(crate) mod attempts;
pub(crate) mod costs;
pub(crate) mod figures;
pub(crate) mod pending;
pub(crate) mod play;
pub(crate) mod script;
pub(crate) mod shape;
pub(crate) mod solves;
pub(crate) mod spent;
