//! Ranks tasks by their goal's metric, or else by their loss.

use saturn_engine::{GoalMode, Stage};

use crate::facts::goal::{judged_by, value};

use crate::layout::units::six_digits;
use crate::report::data::{Report, TaskReport};

/// A task with a value of its metric.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ranked<'a> {
    /// Its index into the report's tasks.
    pub(crate) index: usize,
    /// The task.
    pub(crate) task: &'a TaskReport,
    /// The task's value.
    pub(crate) value: f64,
}

impl TaskReport {
    /// The metric that the task is judged by.
    pub(crate) fn metric(&self) -> &str {
        self.judged().0
    }

    /// The metric that the task is judged by, and whether less is better.
    pub(crate) fn judged(&self) -> (&str, GoalMode) {
        judged_by(self.goal.as_ref())
    }

    /// Whether its last loss is not a finite number, whatever its status.
    pub(crate) fn has_diverged(&self) -> bool {
        self.final_loss.is_some_and(|loss| !loss.is_finite())
    }

    /// Its value of the metric that it is judged by.
    pub(crate) fn value(&self) -> Option<f64> {
        let evaluation = self.evaluation.as_ref();
        let last = evaluation.and_then(|one| one.last.as_ref());
        let best = evaluation.and_then(|one| one.best.as_ref());
        value(self.goal.as_ref(), self.final_loss, last, best)
    }
}

impl Ranked<'_> {
    /// Whether it has had all the training that it was meant to have, so that it can be compared
    /// with others.
    fn ended_well(&self) -> bool {
        matches!(self.task.status, Stage::Done | Stage::Stopped)
    }
}

impl Report {
    /// The tasks that have a value and have not diverged, best first. Done and stopped tasks
    /// precede all others; within each part tasks are in the order of their values, then of their
    /// names. All are judged by the metric of the first task that was added; tasks with another
    /// metric are left out. `docs/tables.md` describes this order, and `RunResult.rows()` of Python
    /// has the same.
    pub(crate) fn ranked(&self) -> Vec<Ranked<'_>> {
        let mut ranked: Vec<Ranked> = Vec::new();
        for (index, task) in self.tasks.iter().enumerate() {
            let is_like = ranked.first().is_none_or(|first| first.task.judged() == task.judged());
            let is_well = !task.has_diverged();
            if let Some(value) =
                task.value().filter(|value| value.is_finite() && is_like && is_well)
            {
                ranked.push(Ranked { index, task, value });
            }
        }
        ranked.sort_by(|one, other| {
            let ended_well = other.ended_well().cmp(&one.ended_well());
            let value = match one.task.judged().1 {
                GoalMode::Min => one.value.total_cmp(&other.value),
                GoalMode::Max => other.value.total_cmp(&one.value),
            };
            ended_well.then(value).then_with(|| one.task.name.cmp(&other.task.name))
        });
        ranked
    }

    /// A line for each task that has a value, with the value and the task's name, best first.
    /// Diverged tasks come last. Empty if the run has only one task, since there is nothing to
    /// compare.
    ///
    /// Verbs of the Python package print the same lines of their runs (`saturn.verbs`).
    pub fn ranking(&self) -> Vec<String> {
        if self.tasks.len() == 1 {
            return Vec::new();
        }
        let ranked = self.ranked();
        let is_ranked = |index: usize| ranked.iter().any(|one| one.index == index);
        let mut others: Vec<(&str, f64)> = self
            .tasks
            .iter()
            .enumerate()
            .filter(|(index, _)| !is_ranked(*index))
            .filter_map(|(_, task)| Some((task.name.as_str(), task.value()?)))
            .collect();
        others.sort_by_key(|(name, _)| *name);
        ranked
            .iter()
            .map(|one| (one.task.name.as_str(), one.value))
            .chain(others)
            .map(|(name, value)| format!("{:<12}{name}", six_digits(value)))
            .collect()
    }

    /// The best task that did not fail and was not cancelled.
    pub(crate) fn best(&self) -> Option<Ranked<'_>> {
        let is_out = |status| matches!(status, Stage::Failed | Stage::Cancelled);
        self.ranked().into_iter().find(|ranked| !is_out(ranked.task.status))
    }
}
