//! The ledger: the state, the decision of the present turn, and the agenda of changes. Every
//! policy works on it.
//!
//! [`Ledger::commit`](book::Ledger::commit), in `book`, applies a record and puts it into the
//! decision. It notes (`notes`) which devices, tasks and trials must be
//! looked at because of the record. They go on the `agenda`, and idle devices and tasks without a
//! place into `idle`. `by_group` sorts tasks by their groups. `timers` say when to look again.
//! `queues` say how far each device has come in the plan in force. `attempts` launches, stops and
//! kills gangs, and ends tasks.
//!
//! Invariants: every record goes through `commit`, and every action through `act`, in the order in
//! which they are to be stored and performed. What the ledger remembers beside the state can be
//! lost: a resumed run starts with an agenda that looks at everything.
//!
//! May use: `facts`, `state`, `knowledge` and `changes`.

pub(crate) mod agenda;
pub(crate) mod attempts;
pub(crate) mod book;
pub(crate) mod by_group;
pub(crate) mod idle;
pub(crate) mod notes;
pub(crate) mod queues;
pub(crate) mod timers;
