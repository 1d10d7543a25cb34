//! The failures behind a task's state.

use saturn_engine::{AttemptEnd, FailureKind, Purpose, TaskId};

use crate::facts::history::History;
use crate::facts::past::PastAttempt;

pub(super) fn last_attempt(history: &History, task: TaskId) -> Option<&PastAttempt> {
    history.training(task).next_back().map(|(_, last)| last)
}

/// The failure for which a task was given up with this error in an inspection or a trial; `None` if
/// the task was not to blame. A task under whose every strategy something failed has another error.
pub(super) fn blamed_for(history: &History, task: TaskId, error: &str) -> Option<FailureKind> {
    let mut own = history.attempts.values().filter(|one| one.task == task);
    own.find_map(|one| match one.ended.as_ref().map(|ended| &ended.end) {
        Some(AttemptEnd::Failed { failure }) if one.purpose != Purpose::Train => {
            let is_like = error.starts_with("like `") && error.ends_with(&failure.error);
            let is_cause = failure.kind.is_the_tasks() && (is_like || error == failure.error);
            is_cause.then_some(failure.kind)
        }
        _ => None,
    })
}

pub(super) fn failure_of(attempt: &PastAttempt) -> Option<FailureKind> {
    match &attempt.ended.as_ref()?.end {
        AttemptEnd::Failed { failure } => Some(failure.kind),
        _ => None,
    }
}
