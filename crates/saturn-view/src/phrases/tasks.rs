//! Phrases about tasks: how many are at which stage, and where one stands.

use saturn_core::names::escape_terminal;
use saturn_engine::{Stage, State, TaskId};

use crate::facts::counts::TaskCounts;
use crate::layout::units::{clock, count};
use crate::phrases::limits::soft_deadline;
use crate::phrases::words::listed;

/// `4 of 5 tasks done`, and nothing. With `so_far`, of a run that was stopped before all its tasks
/// had come: `5 of 5 tasks so far done`, and what ends the sentence.
pub(crate) fn done_words(counts: &TaskCounts, so_far: bool) -> (String, &'static str) {
    let (so_far, more) =
        if so_far { (" so far", "; more may come once it is resumed") } else { ("", "") };
    (format!("{} of {}{so_far} done", counts.done, count(counts.all, "task")), more)
}

/// `1 of 5 tasks done, 1 failed, 2 running, 1 waiting`; `so_far` as for [`done_words`].
pub(crate) fn task_words(counts: &TaskCounts, so_far: bool) -> String {
    let stages = [
        (counts.diverged, Stage::Diverged),
        (counts.failed, Stage::Failed),
        (counts.cancelled, Stage::Cancelled),
        (counts.stopped, Stage::Stopped),
        (counts.running, Stage::Running),
        (counts.waiting, Stage::Waiting),
        (counts.measuring, Stage::Measuring),
        (counts.inspecting, Stage::Inspecting),
        (counts.unmeasured, Stage::Unmeasured),
        (counts.paused, Stage::Paused),
        (counts.held, Stage::Held),
    ];
    let stages = stages.iter().filter(|(number, _)| *number > 0);
    let others: Vec<String> =
        stages.map(|(number, stage)| format!(", {number} {}", stage.word())).collect();
    let (done, more) = done_words(counts, so_far);
    format!("{done}{}{more}", others.concat())
}

/// `120 steps`.
pub(crate) fn steps(steps: u64) -> String {
    count(usize::try_from(steps).unwrap_or(usize::MAX), "step")
}

/// `120 steps`; `120 of 500 steps` if the task ended early.
pub(crate) fn trained_steps(state: &State, task: TaskId) -> String {
    let task = state.task(task);
    match task.steps {
        Some(all) if task.step < all => format!("{} of {}", task.step, steps(all)),
        _ => steps(task.step),
    }
}

/// `not before 1:00, after base`: a task's priority, release and the like; empty if it has none.
pub(crate) fn wishes(state: &State, task: TaskId) -> String {
    /// The most tasks listed that must end before.
    const MAX_AFTER: usize = 4;
    let wishes = &state.task(task).spec.wishes;
    let mut parts = Vec::new();
    if wishes.priority != 0 {
        parts.push(format!("priority {}", wishes.priority));
    }
    if wishes.release_s > 0.0 {
        parts.push(format!("not before {}", clock(wishes.release_s)));
    }
    if let Some(deadline_s) = wishes.deadline_s {
        let soft = soft_deadline(wishes.late_price, wishes.most_late_s);
        parts.push(format!("by {}{soft}", clock(deadline_s)));
    }
    let after: Vec<String> =
        wishes.after.iter().map(|before| escape_terminal(state.name(*before))).collect();
    if !after.is_empty() {
        parts.push(format!("after {}", listed(&after, MAX_AFTER)));
    }
    parts.join(", ")
}
