//! The desk at which all policies work: the state, the decision so far, and what is to be looked at.
//!
//! Invariants: every record goes through `commit`, and every action through `act`, in the order in which
//! they are to be stored and performed. What the ledger remembers beside the state can be lost: a
//! resumed run starts with an agenda that looks at everything.
//!
//! May use: `facts`, `state`, `knowledge` and `changes`.

pub(crate) mod notes;
pub(crate) mod queues;
pub(crate) mod timers;
