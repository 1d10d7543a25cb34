//! Problems that lists can't handle, or whose nodes are not independent of each other. Such a
//! problem has gangs that need several nodes, releases, precedence, deadlines, weights, windows or
//! prices of nodes, owners' caps, or the cost as objective.
//!
//! The searches for plain problems are fast because nodes are independent of each other. Here a
//! gang may wait for a gang on another node. So the state is one order of all tasks with a choice
//! for each ([`play`]). Annealing ([`anneal`]) searches these states from plans built in one go
//! ([`construct`]). A plan at hand says when tasks may wait for each other; with these times as
//! [`borders`], nodes are independent again, and lists are annealed. The general search has its own
//! bounds ([`bounds`]) and, for a few tasks, the exact program.
//!
//! May use: `problem`, `course`, `bounds`, `lists`, `completion`.

pub(crate) mod anneal;
pub(crate) mod borders;
pub(crate) mod bounds;
pub(crate) mod caps;
pub(crate) mod construct;
pub(crate) mod guide;
pub(crate) mod instance;
pub(crate) mod plain;
pub(crate) mod play;
pub(crate) mod replay;
pub(crate) mod search;
mod shared;
pub(crate) mod soft;
pub(crate) mod wait;
pub(crate) mod warm;
mod ways;
pub(crate) mod wide;
pub(crate) mod yardsticks;
