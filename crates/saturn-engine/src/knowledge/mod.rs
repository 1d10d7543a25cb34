//! What is known of how long things take, beyond what was measured.
//!
//! Invariants: an estimate always comes with how far it may be off. A strategy that was measured or has
//! trained is never estimated.
//!
//! May use: `facts` and `state`.

pub(crate) mod correction;
pub(crate) mod durations;
pub(crate) mod estimates;
pub(crate) mod lessons;
pub(crate) mod paces;
pub(crate) mod scaling;
pub(crate) mod strategies;
pub(crate) mod worth;
