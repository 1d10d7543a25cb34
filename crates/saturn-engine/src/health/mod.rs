//! What goes wrong: failures and retries, bad devices, nodes that go, tasks that can't run.
//!
//! - `failures` finds the cause of a gang's end (`deaths`: of a rank that said nothing); `retries`
//!   tries its task again or gives it up.
//! - `devices` sets devices aside, and takes them back. `memory` is what is remembered of failures.
//! - `outside` leaves devices alone that programs other than Saturn use; `cramped` deals with
//!   attempts that run out of memory beside these programs.
//! - `nodes` takes in nodes that join and leave.
//! - `disks` retries tasks and trials that met a full disk.
//! - `standstill` forgives attempts the silence of a driver that stood still.
//! - `hopeless` gives up tasks that no strategy can run; `stuck` ends a run that can't go on here.
//!
//! Invariants: a failure costs one task or one device, never the run. The memory of failures is
//! lost at a resume, which makes the engine more patient, never less safe.
//!
//! May use: every room before it.

pub(crate) mod cramped;
pub(crate) mod deaths;
pub(crate) mod devices;
pub(crate) mod disks;
pub(crate) mod failures;
pub(crate) mod hopeless;
pub(crate) mod memory;
pub(crate) mod nodes;
pub(crate) mod outside;
pub(crate) mod retries;
pub(crate) mod standstill;
pub(crate) mod stuck;
