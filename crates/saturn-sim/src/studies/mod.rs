//! Runs for the measuring programs in `bin/`.
//!
//! - `scale` is a week on a large pool, `outages` a month of failures, `introspection` planning
//!   again or not, `measured` the cost and worth of trials, `sharing` a pool of several people.
//!
//! Invariants: the programs read the clock, not the studies.
//!
//! May use: `policies`, `cases`, `driving`, `solving`, `world` and `workloads`.

pub(crate) mod introspection;
pub(crate) mod measured;
pub(crate) mod outages;
pub(crate) mod scale;
pub(crate) mod sharing;
