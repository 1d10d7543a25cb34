//! Tasks by the names that people and stoppers give.

use crate::facts::ids::TaskId;
use crate::facts::refusal::{Refusal, RefusalCode};
use crate::state::run::State;

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
    RefusalCode::UnknownTask.because(state.unknown_task(name))
}
