//! Whether a task's own functions are to blame for a failure while its group was measured.
//!
//! The tasks of a group share what decides about their speed. They differ in learning rate,
//! scheduler, length, seed, weights to start from and the metric to go by, and each of these may
//! make one task raise where the others train. So such an error concerns the task whose functions
//! raised it, and says nothing of the group.

use saturn_core::Strategy;

use crate::facts::config::Mode;
use crate::facts::failure::{FailureKind, RankFailure};
use crate::facts::ids::TaskId;
use crate::facts::record::TaskEnd;
use crate::state::attempt::Attempt;
use crate::state::run::State;
use crate::state::task::TaskStatus;

/// The technique that, on one device, is plain training.
const PLAIN: &str = "ddp";

/// Whether a failed inspection or trial is the fault of its task's own functions. It is not once
/// they have worked: then strategy or machine are to blame.
pub(crate) fn is_own_failure(state: &State, attempt: &Attempt, kind: FailureKind) -> bool {
    kind.is_the_tasks() && !has_worked(state, attempt.task)
}

/// Whether a failed inspection or trial says nothing yet: the task's functions raised before the
/// tasks that it comes after are done, and those may make what the functions lack.
pub(crate) fn is_early(state: &State, attempt: &Attempt, kind: FailureKind) -> bool {
    state.config.mode == Mode::Orchestrate
        && is_own_failure(state, attempt, kind)
        && state.waits_for(attempt.task).next().is_some()
}

/// Whether an error of a task's own functions would come under every other strategy too: bad data
/// would, and so would any error where the task runs as it would without Saturn.
pub(crate) fn is_everywhere(strategy: &Strategy, kind: FailureKind) -> bool {
    let is_plain = strategy.technique == PLAIN && strategy.gpus == 1;
    is_plain || matches!(kind, FailureKind::Certain | FailureKind::SaturnRepeated)
}

/// The end of a task whose own functions are to blame. If another task of its group has failed in
/// the same way, this task's error names that task, and has no traceback.
pub(crate) fn end_of(state: &State, task: TaskId, failure: &RankFailure) -> TaskEnd {
    let mut others = state.group_of(task).tasks.iter().filter(|other| **other != task);
    let end = TaskEnd::of_failure(failure);
    let has_same_end = |other: &&TaskId| match &state.task(**other).status {
        TaskStatus::Ended(of_other) => *of_other == end,
        _ => false,
    };
    let Some(other) = others.find(has_same_end) else { return end };
    TaskEnd::Failed {
        error: format!("like `{}`: {}", state.name(*other), failure.error),
        traceback: String::new(),
    }
}

/// Whether a trial has measured with a task's functions, or the task was launched to train.
fn has_worked(state: &State, task: TaskId) -> bool {
    let task = state.task(task);
    task.was_measured || task.num_attempts > 0
}
