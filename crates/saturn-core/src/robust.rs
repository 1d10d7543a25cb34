//! How a plan does if runtimes are not what they were thought to be: the outcome of following it
//! under drawn runtimes, and how that chose the plan.

use serde::{Deserialize, Serialize};

/// What following a plan came to, in the order in which plans are compared.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Seconds by which hard deadlines, departures of nodes and ceilings of soft deadlines were
    /// missed, summed.
    pub missed_s: f64,
    /// The sum over soft deadlines of price times seconds late.
    pub tardiness: f64,
    /// The value under the objective.
    pub value: f64,
}

/// How a plan was chosen among several by drawn runtimes.
///
/// Each draw gives every task's runtimes an error, the same in all plans. Each plan is then followed
/// as a run would: its gangs keep their devices and their order, and start as soon as they can. Of
/// two outcomes the better misses less; or as much and is less tardy; or as tardy and is worth less.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Robust {
    /// How many times runtimes were drawn.
    pub draws: usize,
    /// How many plans there were to choose from.
    pub plans: usize,
    /// The share of the draws in which the outcome is no worse than `outcome`.
    pub quantile: f64,
    /// That quantile of the plan that was chosen, the least of all.
    pub outcome: Outcome,
    /// The value of the best plan as planned, under the objective.
    pub best_value: f64,
    /// The quantile of that plan. The choice gained the difference.
    pub best_outcome: Outcome,
}
