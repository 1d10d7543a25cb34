//! Tasks by the names that people and stoppers give.

use crate::facts::ids::TaskId;
use crate::facts::refusal::{Refusal, RefusalCode};
use crate::state::run::State;

/// Names that a refusal lists.
const MAX_LISTED: usize = 12;

pub(crate) fn open_task(state: &State, name: &str) -> Result<TaskId, Refusal> {
    let task = state.task_named(name).ok_or_else(|| unknown_task(state, name))?;
    if state.has_ended(task) {
        let word = state.stage(task).word();
        let reason = format!("task `{name}` has ended: it is {word}");
        return Err(RefusalCode::TaskEnded.because(reason));
    }
    Ok(task)
}

pub(crate) fn unknown_task(state: &State, name: &str) -> Refusal {
    if state.tasks.is_empty() {
        let reason = format!("there is no task `{name}`; the run has no tasks yet");
        return RefusalCode::UnknownTask.because(reason);
    }
    let names = state.tasks.iter().map(|task| format!("`{}`", task.spec.name));
    let mut listed: Vec<String> = names.take(MAX_LISTED).collect();
    let num_left = state.tasks.len() - listed.len();
    if num_left > 0 {
        listed.push(format!("and {num_left} more"));
    }
    let reason = format!("there is no task `{name}`; there are {}", listed.join(", "));
    RefusalCode::UnknownTask.because(reason)
}
