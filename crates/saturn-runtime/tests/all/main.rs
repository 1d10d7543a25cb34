//! The driver of runs, with real processes and files. One program, which links once.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

mod cluster;
mod control;
mod durability;
mod formats;
mod harness;
mod journals;
mod processes;
