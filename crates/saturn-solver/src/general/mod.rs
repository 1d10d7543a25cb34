//! Problems that lists can't handle, or whose nodes are not independent of each other. Such a
//! problem has gangs that need several nodes, releases, precedence, deadlines, weights, windows or
//! prices of nodes, or the cost as objective.
//!
//! The searches for plain problems are fast because nodes are independent of each other. Here a
//! gang may wait for a gang on another node. So the state is one order of all tasks with a choice
//! for each ([`play`]). Annealing ([`anneal`]) searches these states from plans built in one go
//! ([`construct`]). The general search has its own bounds ([`bounds`]) and, for a few tasks, the
//! exact program.

mod anneal;
mod bounds;
mod construct;
mod guide;
mod instance;
mod plain;
mod play;
mod replay;
mod search;
mod solve;
mod wait;
mod warm;
mod wide;
mod yardsticks;

pub(crate) use instance::Instance;
pub(crate) use play::Placed;
pub(crate) use replay::replay;
pub(crate) use solve::{Exact, is_in_exact_reach, solve, solve_exactly};
