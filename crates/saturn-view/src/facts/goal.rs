//! The metric that a task is judged by, and the task's value of that metric.

use saturn_engine::{BestEvaluation, Evaluation, Goal, GoalMode};

/// The metric of tasks without a goal.
const LOSS: &str = "loss";

/// The metric that a task is judged by and whether less is better: its goal, or else its loss.
pub(crate) fn judged_by(goal: Option<&Goal>) -> (&str, GoalMode) {
    goal.map_or((LOSS, GoalMode::Min), |goal| (goal.metric.as_str(), goal.mode))
}

/// A task's value of that metric: of its best evaluation, or of its last if none is the best. Every
/// table shows this value.
pub(crate) fn value(
    goal: Option<&Goal>,
    loss: Option<f64>,
    last: Option<&Evaluation>,
    best: Option<&BestEvaluation>,
) -> Option<f64> {
    let (metric, _) = judged_by(goal);
    if metric == LOSS {
        return loss;
    }
    best.map(|best| &best.evaluation).or(last)?.metrics.get(metric).copied().flatten()
}
