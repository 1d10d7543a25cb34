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
//! The path of a solve: [`solve()`] turns the problem into a pruned [`model`] and bounds it
//! ([`bounds`]). It runs the backend: the anytime [`search`] over [`lists`], the exact [`milp`], or
//! a [baseline](baselines). It decodes the result into devices and starts ([`schedule`]), and has
//! `saturn_core` check it. The [`general`] search, with its own bounds, solves problems with more
//! facts than devices, runtimes and running tasks, and problems whose gangs need several nodes.
//! Weighted completion has lists of its own ([`completion`]). No part reads a clock ([`Clock`] is
//! the caller's) or knows of processes.

#![expect(clippy::doc_markdown, reason = "the docs write symbols as the literature does")]
#![expect(clippy::similar_names, reason = "a model has modes")]

mod anneal;
mod auto;
mod baselines;
mod bounds;
mod calendar;
mod clock;
mod completion;
mod error;
mod fill;
mod general;
mod greedy;
mod large;
mod lists;
mod mend;
mod milp;
mod model;
mod nearby;
mod options;
mod program;
mod proof;
mod random;
mod rounds;
mod schedule;
mod search;
mod settle;
mod sizes;
mod small;
mod solve;
mod split;
mod timeline;
mod warm;

pub use clock::{Clock, FrozenClock};
pub use error::SolveError;
pub use options::{Backend, Options};
pub use saturn_core::Objective;
pub use sizes::{Sized, longest, on_nodes, solve_sizes};
pub use solve::solve;
