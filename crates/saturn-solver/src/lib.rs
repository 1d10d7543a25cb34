//! Saturn's solver: a planning problem in, a plan with its proof out.
//!
//! ```
//! use saturn_core::Problem;
//! use saturn_solver::{FrozenClock, Options, solve};
//!
//! let problem = Problem::from_json(
//!     r#"{"cluster": {"nodes": [{"gpus": 2}]},
//!         "tasks": [
//!           {"name": "a", "strategies": [
//!             {"technique": "ddp", "gpus": 1, "runtime_s": 60.0},
//!             {"technique": "ddp", "gpus": 2, "runtime_s": 35.0}]},
//!           {"name": "b", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 60.0}]}]}"#,
//! )?;
//! let options = Options { max_moves: Some(10_000), ..Options::default() };
//! let plan = solve(&problem, &options, &FrozenClock)?;
//! assert_eq!(plan.makespan_s, 60.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The rooms, from the ground up; each uses its own files and the rooms above it in this table:
//!
//! | room | what is in it |
//! |---|---|
//! | [`problem`] | options, the pruned model, timelines, and how an order of gangs becomes a plan |
//! | [`course`] | clocks, random numbers, and the rounds of a search |
//! | [`bounds`] | lower bounds on makespan and completion; linear programs by HiGHS |
//! | [`lists`] | the search for short makespans where nodes are independent of each other |
//! | [`proof`] | optimality of small problems by exhaustion |
//! | [`completion`] | the search for early ends: lists by prices of devices over time |
//! | [`general`] | every other fact: releases, precedence, deadlines, wide gangs, cost |
//! | [`exact`] | the exact mixed-integer program, for a few tasks |
//! | [`split`] | planned switches of strategy |
//! | [`robust`] | the choice among good plans by drawn runtimes |
//! | [`solve`](mod@solve) | one solve from end to end |
//!
//! [`solve()`] turns a problem into a model, computes lower bounds and runs the backend. It decodes
//! the backend's result into devices and starts, and has `saturn_core` check the plan. No part
//! reads a clock ([`Clock`] is the caller's) or knows of processes.

#![expect(clippy::doc_markdown, reason = "the docs write symbols as the literature does")]
#![expect(clippy::similar_names, reason = "a model has modes")]

mod bounds;
mod completion;
mod course;
mod exact;
mod general;
mod lists;
mod problem;
mod proof;
mod robust;
mod solve;
mod split;

pub use course::clock::{Clock, FrozenClock};
pub use problem::error::SolveError;
pub use problem::options::{Backend, Options};
pub use saturn_core::Objective;
pub use solve::entry::solve;
pub use solve::further::{
    Further, ManyPrices, RestOfRun, RestPlans, num_left_out, one_price, solve_further, solve_rest,
    widened,
};
pub use solve::sizes::{Lacking, Sized, longest, on_nodes, solve_sizes, why_lacking, with_further};
pub use split::solve::why_no_switches;
