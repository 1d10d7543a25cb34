//! Problems whose nodes are not independent of each other, or that lists don't know: gangs that need
//! several nodes, releases, precedence, deadlines, weights, windows and prices of nodes, and the cost
//! as objective.
//!
//! The searches for plain problems owe their speed to nodes being independent of each other; here a
//! gang may wait for one on another node. So the state is one order of all tasks with a choice for
//! each ([`play`]), searched by annealing ([`anneal`]) from plans built in one go ([`construct`]), with
//! bounds of its own ([`bounds`]) and, for a few tasks, the exact program.

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
