//! A run on a terminal while it goes on: `console` prints the transcript, above the live region of
//! `live`, and at the end the summary of `summary`.
//!
//! Invariants: a console is an observer. It decides nothing, and a closed terminal ends no run.
//!
//! May use: `layout`, `facts`, `phrases`, `explain`, `plans` and `transcript`.

pub(crate) mod console;
pub mod live;
pub(crate) mod summary;
