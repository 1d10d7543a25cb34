//! What a run takes from the user's store of profiles (`saturn-store`), and what it puts there.
//!
//! - `shelf` is a run's view of the store: stored trials for its tasks, and its own for later runs.
//! - `keeper` is the thread that puts them there.
//!
//! Invariants: a slow or full disk of the store delays no run. What is measured reaches the journal
//! before the store.
//!
//! May use: `system`.

pub(crate) mod keeper;
pub(crate) mod shelf;
