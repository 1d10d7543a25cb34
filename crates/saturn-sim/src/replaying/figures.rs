//! Means of what a run measured, for a task under a strategy, and for what is wider where that is
//! not known.

use std::collections::BTreeMap;

use saturn_core::StrategyKey;
use saturn_engine::TaskId;

use crate::replaying::attempts::Attempt;

/// A mean with its weight.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mean {
    pub(super) sum: f64,
    pub(super) weight: f64,
}

/// What a figure is about, from the narrowest to the widest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    Task(TaskId, StrategyKey, String),
    Strategy(String, StrategyKey, String),
    Group(String),
    Run,
}

/// Means of a figure over everything that it may be asked for.
#[derive(Debug, Default)]
pub(super) struct Figures(BTreeMap<Scope, Mean>);

impl Figures {
    pub(super) fn add(&mut self, attempt: &Attempt, value: f64, weight: f64) {
        for scope in scopes(attempt.task, &attempt.group, &attempt.key(), &attempt.gpu_type) {
            let mean = self.0.entry(scope).or_default();
            mean.sum += value * weight;
            mean.weight += weight;
        }
    }

    pub(super) fn find(&self, asked: &[Scope]) -> Option<f64> {
        let known = asked.iter().filter_map(|scope| self.0.get(scope));
        known.filter(|mean| mean.weight > 0.0).map(|mean| mean.sum / mean.weight).next()
    }
}

pub(super) fn scopes(task: TaskId, group: &str, key: &StrategyKey, gpu_type: &str) -> [Scope; 4] {
    [
        Scope::Task(task, key.clone(), gpu_type.to_owned()),
        Scope::Strategy(group.to_owned(), key.clone(), gpu_type.to_owned()),
        Scope::Group(group.to_owned()),
        Scope::Run,
    ]
}
