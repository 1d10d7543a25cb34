//! Why a policy could not be simulated.

use saturn_solver::SolveError;
use thiserror::Error;

/// Why a policy could not be simulated.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// A task has no strategy that the pool can hold.
    #[error("task `{task}` has no strategy that a node can hold")]
    NoStrategy {
        /// Its name.
        task: String,
    },
    /// A node is taken away too often.
    #[error(
        "a reclaimed node costs task `{task}` {loss_s:.0} s (a launch and half of a checkpoint \
         interval), which is all that it trains between two reclaims"
    )]
    Reclaimed {
        /// The task's name.
        task: String,
        /// Seconds lost by a reclaim.
        loss_s: f64,
    },
    /// The solver refused, or failed.
    #[error(transparent)]
    Solver(#[from] SolveError),
    /// A task can't be placed.
    #[error("the solver found no plan: {reason}")]
    NoPlan {
        /// Why.
        reason: String,
    },
    /// The policy stopped before every task was done.
    #[error("`{policy}` stopped before every task was done: {reason}, a fault in Saturn")]
    Stuck {
        /// Which policy.
        policy: &'static str,
        /// What was seen.
        reason: String,
    },
    /// The policy's outcome breaks a rule of the pool.
    #[error("what `{policy}` did can't be done: {reason}, a fault in Saturn")]
    Wrong {
        /// Which policy.
        policy: &'static str,
        /// Which rule.
        reason: String,
    },
    /// Nodes are lost too often.
    #[error(
        "`{policy}` is not done after {hours:.0} h: nodes are lost so often that tasks don't get \
         from one checkpoint to the next",
        hours = after_s / 3600.0
    )]
    Endless {
        /// Which policy.
        policy: &'static str,
        /// When it was given up, seconds.
        after_s: f64,
    },
    /// It was told to stop.
    #[error("interrupted")]
    Interrupted,
}
