//! The failures behind a task's state.

use saturn_engine::{AttemptEnd, FailureKind, Purpose, TaskId};

use crate::facts::history::History;
use crate::facts::past::PastAttempt;

pub(super) fn last_attempt(history: &History, task: TaskId) -> Option<&PastAttempt> {
    history.training(task).next_back().map(|(_, last)| last)
}

/// Whether this error, with which a task was given up, is one that its own functions raised in an
/// inspection or a trial. A task under whose every strategy something failed has another error.
pub(super) fn has_raised(history: &History, task: TaskId, error: &str) -> bool {
    let mut own = history.attempts.values().filter(|one| one.task == task);
    own.any(|one| match one.ended.as_ref().map(|ended| &ended.end) {
        Some(AttemptEnd::Failed { failure }) if one.purpose != Purpose::Train => {
            let raised = matches!(failure.kind, FailureKind::Task | FailureKind::Certain);
            let is_like = error.starts_with("like `") && error.ends_with(&failure.error);
            raised && (is_like || error == failure.error)
        }
        _ => false,
    })
}

pub(super) fn failure_of(attempt: &PastAttempt) -> Option<FailureKind> {
    match &attempt.ended.as_ref()?.end {
        AttemptEnd::Failed { failure } => Some(failure.kind),
        _ => None,
    }
}
