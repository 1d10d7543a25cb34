//! Scenarios with faults, drawn from seeds, and the verdict on each.
//!
//! - `scenario` draws a whole scenario. `apart` draws parts of it with random numbers of their own;
//!   `rare` draws what seldom happens, and `kinds` draws runs that differ as a whole. `seed` holds what
//!   a seed decides before anything is drawn.
//! - `run` runs and judges a scenario. `story` tells a history in words.
//! - `saboteur` plants bugs, to test that judge and watch find them.
//!
//! Invariants: the trouble of a scenario ends at a set time, and then every task must end.
//!
//! May use: `watch`, `judge`, `driving`, `solving`, `world` and `workloads`.

pub(crate) mod apart;
pub(crate) mod kinds;
pub(crate) mod rare;
pub(crate) mod run;
pub(crate) mod saboteur;
pub(crate) mod scenario;
mod seed;
pub mod story;
