//! What came of a run, in numbers: the realised makespan and times, against the plan.
//!
//! Times are on the run's clock; nothing is counted while no process drove the run.

use saturn_engine::{Purpose, RunPlan, State, TaskEnd, TaskId, TaskStatus};

/// Tasks by how they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskCounts {
    /// All of them.
    pub all: usize,
    /// Trained to the end.
    pub done: usize,
    /// Given up.
    pub failed: usize,
}

/// Counts the tasks of a run.
pub fn task_counts(state: &State) -> TaskCounts {
    let count = |wanted: fn(&TaskEnd) -> bool| {
        let ended = |status: &TaskStatus| matches!(status, TaskStatus::Ended(end) if wanted(end));
        state.tasks.iter().filter(|task| ended(&task.status)).count()
    };
    TaskCounts {
        all: state.tasks.len(),
        done: count(|end| matches!(end, TaskEnd::Done { .. })),
        failed: count(|end| matches!(end, TaskEnd::Failed { .. })),
    }
}

/// Seconds from the first plan to the end of the last training attempt; `None` before any has ended.
pub fn realised_makespan_s(state: &State) -> Option<f64> {
    let first = state.plans.first()?;
    let ends = state.attempts.values().filter_map(|attempt| {
        let (_, end_s) = attempt.ended.as_ref()?;
        (attempt.purpose == Purpose::Train).then_some(*end_s)
    });
    let last = ends.fold(f64::NEG_INFINITY, f64::max);
    last.is_finite().then_some(last - first.at_s)
}

/// Seconds that a task's training attempts took so far, from launch to end.
pub fn training_s(state: &State, task: TaskId) -> f64 {
    state
        .training_attempts(task)
        .map(|(_, attempt)| {
            let end_s = attempt.ended.as_ref().map_or(state.now_s, |(_, end_s)| *end_s);
            end_s - attempt.launched_s
        })
        .sum()
}

/// Seconds that the first plan gave a task, where its training was one attempt under the strategy
/// of that plan: only then do plan and training speak of the same thing.
pub fn planned_s(state: &State, task: TaskId) -> Option<f64> {
    let planned = first_place(state.plans.first()?, task)?;
    let mut attempts = state.training_attempts(task);
    let (_, only) = attempts.next()?;
    let is_as_planned = attempts.next().is_none()
        && only.strategy.technique == planned.strategy.technique
        && only.strategy.gpus == planned.strategy.gpus;
    let planned_s = planned.end_s - planned.start_s;
    (is_as_planned && planned_s > 0.0).then_some(planned_s)
}

fn first_place(plan: &RunPlan, task: TaskId) -> Option<&saturn_engine::PlannedTask> {
    plan.tasks.iter().find(|planned| planned.task == task)
}

/// Realised over planned seconds of a task, less one; `None` unless it is done and
/// [`planned_s`] holds.
pub fn estimate_error(state: &State, task: TaskId) -> Option<f64> {
    match state.task(task).status {
        TaskStatus::Ended(TaskEnd::Done { .. }) => {
            Some(training_s(state, task) / planned_s(state, task)? - 1.0)
        }
        _ => None,
    }
}
