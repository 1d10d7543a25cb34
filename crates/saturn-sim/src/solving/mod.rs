//! The answers to the engine's solves.
//!
//! - `planner` answers with the real solver on a clock that stands still, with a recorded run's
//!   plan, or with a fault. `greedy` plans without a search; `drawn` makes a poor plan.
//!
//! Invariants: no solve reads a clock: equal orders have equal answers.
//!
//! May use: `world`.

pub(crate) mod drawn;
pub(crate) mod greedy;
pub(crate) mod planner;
