//! The interfaces behind which processes and people are.
//!
//! Invariants: nothing here decides. An order for a launcher holds everything that the launcher needs.
//!
//! May use: `facts` and `state`.

pub(crate) mod launcher;
pub(crate) mod observer;
