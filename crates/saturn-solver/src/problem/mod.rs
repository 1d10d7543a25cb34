//! What is asked and what is answered: every other room speaks in these words.
//!
//! - [`options`], [`error`]: what a caller may say, and what can go wrong
//! - [`model`]: the problem, pruned and by index, as all searches read it; [`modes`]: its strategies
//! - [`host_memory`]: whether host memory binds; [`caps`]: which owners' caps bind
//! - [`baselines`]: the GPU counts that simpler planners would choose
//! - [`timeline`], [`calendar`]: when devices of a node are free
//! - [`schedule`]: gangs in an order, and the one place where devices are handed out
//! - [`tardiness`]: how soft deadlines are compared
//! - [`grade`]: the status of a plan, from its value and its bounds
//!
//! May use: `saturn-core`.

pub(crate) mod baselines;
pub(crate) mod calendar;
pub(crate) mod caps;
pub(crate) mod error;
pub(crate) mod grade;
pub(crate) mod host_memory;
pub(crate) mod model;
pub(crate) mod modes;
pub(crate) mod options;
pub(crate) mod schedule;
pub(crate) mod tardiness;
pub(crate) mod timeline;
