//! The interfaces behind which processes and people are.
//!
//! A `launcher` starts, stops and kills gangs and tells what became of them. An `observer` is told
//! what happens. The runtime and the simulator implement both.
//!
//! Invariants: nothing here decides. An order for a launcher holds everything that the launcher
//! needs.
//!
//! May use: `facts` and `state`.

pub(crate) mod launcher;
pub(crate) mod observer;
