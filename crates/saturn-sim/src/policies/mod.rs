//! Policies that train a workload on a pool: Saturn, people's practice, and other systems.
//!
//! A policy (`interface`) is given a case and answers with an outcome. `saturn` is the real engine
//! with the real solver. Every other policy is a few lines over the `driver`, which performs its
//! launches, stops and trials in the same world. So the seconds of a launch, a step, a
//! checkpoint, a stop and a trial come from the same code under every policy. Policies differ in
//! their decisions, and in the strategies that they must measure first (`measures`).
//!
//! - `list` has all policies by name. Each has a file of its own.
//! - `follow`, `queue`, `backfill` and `interval` are shared by several policies.
//!
//! Invariants: what a policy plans by, it knows or has measured.
//!
//! May use: `cases`, `driving`, `world` and `workloads`.

pub(crate) mod backfill;
pub(crate) mod current_practice_fastest;
pub(crate) mod current_practice_habit;
pub(crate) mod driver;
pub(crate) mod fifo;
pub(crate) mod fifo_backfill;
pub(crate) mod follow;
pub(crate) mod interface;
pub(crate) mod interval;
pub(crate) mod list;
pub(crate) mod max;
pub(crate) mod min;
pub(crate) mod optimus;
pub(crate) mod optimus_dynamic;
pub(crate) mod queue;
pub(crate) mod random;
pub(crate) mod rubick_like;
pub(crate) mod saturn;
pub(crate) mod saturn_interval;
pub(crate) mod saturn_static;
pub(crate) mod shortest_first;
pub(crate) mod slurm_like;
pub(crate) mod themis_like;
pub(crate) mod time_slices;
