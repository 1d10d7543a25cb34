//! The events of a run as lines for people: what happened, in order, each event once.
//!
//! `writer` lays out a line and remembers what was told. `arrivals` gathers tasks and nodes that
//! come together (`gathered`) into one line. `inspections`, `trials`, `plans`, `training` and
//! `pool` write the lines of their records. `records` takes each record to the file that writes its
//! line.
//!
//! Invariants: a transcript prints nothing itself. It takes its facts from the state, the history
//! and the record, and remembers only what it needs to avoid repetition.
//!
//! May use: `layout`, `facts`, `phrases` and `plans`.

pub(crate) mod arrivals;
pub(crate) mod gathered;
pub(crate) mod inspections;
pub(crate) mod plans;
pub(crate) mod pool;
pub(crate) mod records;
pub(crate) mod training;
pub(crate) mod trials;
pub(crate) mod writer;
