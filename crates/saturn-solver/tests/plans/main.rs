//! The solver by its plans. One program, which links once.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

mod baselines;
mod completion;
mod early;
mod facts;
mod further;
mod limits;
mod more;
mod planted;
mod properties;
mod quality;
mod robust;
mod sizes;
mod support;
mod switches;
mod warm;
