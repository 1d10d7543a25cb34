//! Judges a history: whether it obeys the rules.
//!
//! The judge knows the engine's vocabulary (events, records, actions) and none of its code: no
//! state, no policy, no fold. It reads the history once, in order, and keeps books of its own.
//! Against these it checks each decision: its event, its records and its actions.
//!
//! - `reader` reads the history into the `books`; `drivers` says what of them outlives a driver.
//!   `duties` and `duty` say what a decision owes.
//! - `tasks`, `attempts`, `ends`, `recovery`, `returns`, `looks`, `early`, `stuck`, `host_memory`,
//!   `beside` and `search` are the rules; `outside` is the books' page about other
//!   programs, `people` about people whose agents are not there.
//!
//! Invariants: the judge shares no code with the engine, and never asks its state.
//!
//! May use: `driving`, `world` and `workloads`.

pub(crate) mod attempts;
pub(crate) mod beside;
pub(crate) mod books;
pub(crate) mod drivers;
pub(crate) mod duties;
pub(crate) mod duty;
pub(crate) mod early;
pub(crate) mod ends;
pub(crate) mod host_memory;
pub(crate) mod looks;
pub(crate) mod outside;
mod people;
pub(crate) mod reader;
pub(crate) mod recovery;
pub(crate) mod returns;
pub(crate) mod search;
pub(crate) mod stuck;
pub(crate) mod tasks;
