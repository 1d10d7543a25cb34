//! The vocabulary: how a fact is said, the same in every view.
//!
//! `words` names strategies, devices, outcomes and failures. `events` says what a record tells: a
//! node that left, a plan that was kept, an attempt that was asked to stop. `tasks` says where
//! tasks stand, `inspected` what an inspection found, `limits` what a task or node is limited to.
//! `device_uses` says where the time of devices went.
//!
//! Invariants: a fact has its words here, once. Views add only what their place asks for: a name in
//! front, a time, colour. Text from users and workers is escaped here.
//!
//! May use: `layout` and `facts`.

pub(crate) mod device_uses;
pub(crate) mod events;
pub(crate) mod inspected;
pub(crate) mod limits;
pub(crate) mod tasks;
pub mod words;
