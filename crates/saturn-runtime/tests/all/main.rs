//! Tests of the driver with real processes and files. All are one program, which links once.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

mod cluster;
mod control;
mod copies;
mod durability;
mod formats;
mod harness;
mod journals;
mod processes;
mod trial_errors;
