//! What a policy is given and what it answers with.
//!
//! - `case` is nodes, jobs, and the truth and the beliefs about them; `script` is its arrivals and
//!   its faults. `workload_file` reads a case from a file (`workload_task`, `workload_error`).
//! - `outcome` is what came of a case, and is checked against it. `fairness`, `bound` and `pools`
//!   add figures and other pools.
//!
//! Invariants: every policy has the same case, and pays the same seconds for a launch, a checkpoint
//! and a trial.
//!
//! May use: `driving`, `solving`, `world` and `workloads`.

pub(crate) mod bound;
pub(crate) mod case;
pub(crate) mod error;
pub(crate) mod fairness;
pub(crate) mod outcome;
pub(crate) mod pools;
pub(crate) mod script;
pub(crate) mod workload_error;
pub(crate) mod workload_file;
pub(crate) mod workload_task;
