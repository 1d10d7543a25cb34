//! What is known of how long things take, beyond what was measured.
//!
//! - `scaling` and `correction` are statistics alone: numbers in, numbers out.
//! - `estimates` says what an unmeasured strategy is expected to take, and what memory rules out.
//! - `lessons` says what a group's trials and training tell of all its strategies together.
//! - `strategies` lists the strategies that a task may run under.
//! - `durations` says how long a task takes under one of them, and when a live attempt ends.
//! - `host_needs` works out what many strategies take of host memory.
//! - `paces` finds where training departs from what plans count on; `slowness` says what slow nodes
//!   change; `worth` says what a trial would cost.
//!
//! Invariants: an estimate always comes with how far it may be off. A strategy that was measured or
//! has trained is never estimated.
//!
//! May use: `facts` and `state`.

pub(crate) mod correction;
pub(crate) mod durations;
pub(crate) mod estimates;
pub(crate) mod host_needs;
pub(crate) mod lessons;
pub(crate) mod paces;
pub(crate) mod scaling;
pub(crate) mod slowness;
pub(crate) mod strategies;
pub(crate) mod worth;
