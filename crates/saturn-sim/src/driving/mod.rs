//! A run on the virtual cluster: the engine, the world, a journal, and a driver between them.
//!
//! - `simulation` is the driver, with the deeds of people and nodes. `calm` makes a run without the
//!   fuzzer's faults. `missing` finds the node that a run waits for.
//! - `seam` has the interfaces by which others watch the engine or do harm to it. Runs that only
//!   evaluate have neither.
//! - `meter` measures the engine's time on a clock that the caller hands in.
//!
//! Invariants: as the real driver does, the driver stores the records of a decision, then performs
//! its actions.
//!
//! May use: `solving`, `world` and `workloads`.

pub(crate) mod calm;
pub(crate) mod meter;
pub(crate) mod missing;
pub(crate) mod seam;
pub(crate) mod simulation;
pub(crate) mod stopper;
