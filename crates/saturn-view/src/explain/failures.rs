//! The failures behind a task's state.

use saturn_engine::{AttemptEnd, FailureKind, Purpose, State, TaskId};

use crate::facts::history::History;
use crate::facts::past::PastAttempt;

pub(super) fn last_attempt(history: &History, task: TaskId) -> Option<&PastAttempt> {
    history.training(task).next_back().map(|(_, last)| last)
}

/// Whether user functions of a task of this group raised in an inspection or a trial.
pub(super) fn has_raised(state: &State, history: &History, task: TaskId) -> bool {
    let group = state.task(task).group;
    history.attempts.values().any(|one| {
        let own = match one.purpose {
            Purpose::Inspection => Some(FailureKind::Task),
            Purpose::Trial => Some(FailureKind::Certain),
            Purpose::Train => None,
        };
        own.is_some() && state.task(one.task).group == group && failure_of(one) == own
    })
}

pub(super) fn failure_of(attempt: &PastAttempt) -> Option<FailureKind> {
    match &attempt.ended.as_ref()?.end {
        AttemptEnd::Failed { failure } => Some(failure.kind),
        _ => None,
    }
}
