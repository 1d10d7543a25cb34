//! The failures behind a task's state.

use saturn_engine::{
    AttemptEnd, AttemptId, FailureKind, Purpose, RankFailure, State, TaskEnd, TaskId, TaskStatus,
};

use crate::explain::code::Code;
use crate::facts::history::History;
use crate::facts::past::PastAttempt;
use crate::phrases::words;

/// The most lines of a traceback that an explanation has; the log has all.
const MAX_TRACEBACK: usize = 20;

/// Why a task failed with this error: the code, and a clause that follows `failed`, or nothing.
pub(super) fn why_failed(
    state: &State,
    history: &History,
    task: TaskId,
    error: &str,
) -> (Code, String) {
    let failure = match last_attempt(history, task) {
        None => blamed_for(history, task, error),
        Some(last) => failure_of(last),
    };
    match failure {
        // Either its last strategy was excluded, or no strategy could ever run it.
        None
        | Some(
            FailureKind::OutOfMemory
            | FailureKind::NotApplicable
            | FailureKind::Killed
            | FailureKind::HostMemory,
        ) => (Code::FailedNoStrategy, String::new()),
        Some(FailureKind::Task | FailureKind::Certain) => {
            (Code::FailedOwnCode, "in its own code".to_owned())
        }
        // The error says how often.
        Some(kind @ FailureKind::SaturnRepeated) => {
            (Code::FailedTooOften, format!("({})", words::failure_kind(kind)))
        }
        Some(kind) => {
            let most = state.config.policy.max_failures;
            let kind = words::failure_kind(kind);
            (Code::FailedTooOften, format!("after {most} failures in a row ({kind})"))
        }
    }
}

/// Why a task failed, in a few words: `failed in its own code`.
pub(crate) fn failure_words(state: &State, history: &History, task: TaskId, error: &str) -> String {
    match why_failed(state, history, task, error) {
        (Code::FailedNoStrategy, _) => "no strategy can run it".to_owned(),
        (_, why) => format!("failed {why}"),
    }
}

/// The end of the traceback of a task that failed, and the path of the log that has all of it, in the
/// run directory. Both are `None` for other tasks.
pub(super) fn trace(
    state: &State,
    history: &History,
    task: TaskId,
) -> (Option<String>, Option<String>) {
    let TaskStatus::Ended(TaskEnd::Failed { traceback, .. }) = &state.task(task).status else {
        return (None, None);
    };
    let last = last_failure(history, task);
    let own = last.map(|(_, failure)| failure.traceback.as_str());
    let text = if traceback.trim().is_empty() { own.unwrap_or_default() } else { traceback };
    let lines: Vec<&str> = text.trim().lines().collect();
    let shown = lines[lines.len().saturating_sub(MAX_TRACEBACK)..].join("\n");
    let dir = &state.task(task).spec.dir;
    let log = last.map(|(id, failure)| format!("{dir}/attempts/{id}/rank-{}.log", failure.rank));
    (Some(shown).filter(|shown| !shown.is_empty()), log)
}

/// The last of a task's attempts that failed, be it an inspection, a trial or training.
fn last_failure(history: &History, task: TaskId) -> Option<(AttemptId, &RankFailure)> {
    history.attempts.iter().rev().filter(|(_, one)| one.task == task).find_map(|(id, one)| {
        match &one.ended.as_ref()?.end {
            AttemptEnd::Failed { failure } => Some((*id, failure)),
            _ => None,
        }
    })
}

pub(super) fn last_attempt(history: &History, task: TaskId) -> Option<&PastAttempt> {
    history.training(task).next_back().map(|(_, last)| last)
}

/// The failure for which a task was given up with this error in an inspection or a trial; `None` if
/// the task was not to blame. A task under whose every strategy something failed has another error.
fn blamed_for(history: &History, task: TaskId, error: &str) -> Option<FailureKind> {
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
