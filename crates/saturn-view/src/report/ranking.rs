//! How well tasks did, by what says so: their goal, or else their loss.

use saturn_engine::GoalMode;

use super::{Report, TaskReport};

/// A task that has a value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ranked<'a> {
    /// Its index into the report's tasks.
    pub(crate) index: usize,
    /// The task.
    pub(crate) task: &'a TaskReport,
    /// How well it did.
    pub(crate) value: f64,
}

impl TaskReport {
    /// The metric that says how well it did.
    pub(crate) fn metric(&self) -> &str {
        self.judged().0
    }

    /// That metric, and whether less of it is better.
    pub(crate) fn judged(&self) -> (&str, GoalMode) {
        self.goal.as_ref().map_or(("loss", GoalMode::Min), |goal| (goal.metric.as_str(), goal.mode))
    }

    /// How well it did: of evaluations the best, or the last where none is.
    pub(crate) fn value(&self) -> Option<f64> {
        let metric = self.metric();
        if metric == "loss" {
            return self.final_loss;
        }
        let evaluation = self.evaluation.as_ref()?;
        let best = evaluation.best.as_ref().map(|best| &best.evaluation);
        best.or(evaluation.last.as_ref())?.metrics.get(metric).copied().flatten()
    }
}

impl Report {
    /// The tasks that have a value, the best first. All by the metric of the first of them.
    pub(crate) fn ranked(&self) -> Vec<Ranked<'_>> {
        let mut ranked: Vec<Ranked> = Vec::new();
        for (index, task) in self.tasks.iter().enumerate() {
            let is_like = ranked.first().is_none_or(|first| first.task.judged() == task.judged());
            if let Some(value) = task.value().filter(|value| value.is_finite() && is_like) {
                ranked.push(Ranked { index, task, value });
            }
        }
        ranked.sort_by(|one, other| match one.task.judged().1 {
            GoalMode::Min => one.value.total_cmp(&other.value),
            GoalMode::Max => other.value.total_cmp(&one.value),
        });
        ranked
    }
}
