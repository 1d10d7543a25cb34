//! When each task will start and end, as far as is known now.
//!
//! The plan in force is followed device by device from the present: running tasks need what their
//! observed speed says, waiting ones what their trials say (corrected by what was observed of the
//! same task before). A waiting task starts when the tasks before it on all of its devices have
//! ended, as in [`crate::dispatch`]; so does the next segment of a task that is to be switched, once
//! the one before it has ended.

use std::collections::BTreeMap;

use saturn_core::{Gang, Strategy, TrialOutcome};

use crate::dispatch::current_place;
use crate::ids::TaskId;
use crate::record::PlannedTask;
use crate::state::{Attempt, MIN_STEPS_TO_CORRECT, State, TaskStatus};

/// Expected times on the run's clock, seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Forecast {
    /// Start (of its present or next attempt) and end of each task that has not ended and has a place
    /// in the plan.
    pub tasks: BTreeMap<TaskId, (f64, f64)>,
    /// End of the last task.
    pub end_s: f64,
}

/// Forecasts the plan in force from `now_s`.
pub fn forecast(state: &State, now_s: f64) -> Forecast {
    let mut free_at: BTreeMap<(usize, u32), f64> = BTreeMap::new();
    let mut forecast = Forecast { tasks: BTreeMap::new(), end_s: now_s };
    let plan = state.plan().map_or(&[][..], |plan| &plan.tasks);
    // Where running tasks are in the plan, and the step that each task will have reached so far.
    let mut present: Vec<usize> = Vec::new();
    let mut reached: BTreeMap<TaskId, u64> = BTreeMap::new();
    for (task, attempt) in running(state) {
        let saved_step = state.task(task).checkpoint_step;
        let is_through = attempt.until_step.is_some_and(|until| saved_step >= until);
        let place = current_place(state, plan, task).filter(|_| !is_through);
        present.extend(place);
        let until = place.and_then(|place| plan[place].until_step).or(attempt.until_step);
        let end_s = now_s + time_left_s(state, task, attempt, until, now_s);
        reached.insert(task, until.unwrap_or(u64::MAX));
        forecast.place(&mut free_at, task, &attempt.gang, (attempt.launched_s, end_s));
    }
    for (index, planned) in plan.iter().enumerate() {
        let task = state.task(planned.task);
        let step = reached.get(&planned.task).copied().unwrap_or(task.step);
        let is_over = matches!(task.status, TaskStatus::Ended(_));
        if is_over || present.contains(&index) || planned.is_done_at(step) || step == u64::MAX {
            continue;
        }
        let before_s = forecast.tasks.get(&planned.task).map_or(now_s, |(_, end_s)| *end_s);
        let start_s = devices(&planned.gang)
            .filter_map(|device| free_at.get(&device).copied())
            .fold(before_s.max(task.not_before_s), f64::max);
        let end_s = start_s + duration_s(state, planned, step);
        reached.insert(planned.task, planned.until_step.unwrap_or(u64::MAX));
        forecast.place(&mut free_at, planned.task, &planned.gang, (start_s, end_s));
    }
    forecast
}

impl Forecast {
    fn place(
        &mut self,
        free_at: &mut BTreeMap<(usize, u32), f64>,
        task: TaskId,
        gang: &Gang,
        times: (f64, f64),
    ) {
        free_at.extend(devices(gang).map(|device| (device, times.1)));
        self.tasks.entry(task).or_insert(times).1 = times.1;
        self.end_s = self.end_s.max(times.1);
    }
}

/// Tasks that train now, with their attempts.
pub(crate) fn running(state: &State) -> impl Iterator<Item = (TaskId, &Attempt)> {
    state.task_ids().filter_map(|task| match state.task(task).status {
        TaskStatus::Running(id) => Some((task, state.attempts.get(&id)?)),
        _ => None,
    })
}

/// All devices of a gang as (node, device) pairs.
pub(crate) fn devices(gang: &Gang) -> impl Iterator<Item = (usize, u32)> + '_ {
    gang.iter()
        .flat_map(|placement| placement.devices.iter().map(move |device| (placement.node, *device)))
}

/// Seconds that a running task still needs up to a step, or to its end, its last checkpoint included.
pub(crate) fn time_left_s(
    state: &State,
    task: TaskId,
    attempt: &Attempt,
    until_step: Option<u64>,
    now_s: f64,
) -> f64 {
    let total = until_step.or(state.task(task).steps).unwrap_or(0);
    let predicted = state.predicted_step_s(task, &attempt.strategy);
    let predicted = predicted.map(|step_s| step_s * state.task(task).correction);
    let step_s = observed_step_s(attempt).or(predicted).unwrap_or(0.0);
    let train_s = total.saturating_sub(attempt.step) as f64 * step_s;
    let since_heard = if attempt.started.is_some() { now_s - attempt.heard_s } else { 0.0 };
    let load_left_s = if attempt.started.is_some() {
        0.0
    } else {
        (load_s(state, task, &attempt.strategy) - (now_s - attempt.launched_s)).max(0.0)
    };
    (train_s - since_heard).max(0.0) + load_left_s + state.task(task).save_s
}

/// Seconds a step of a live attempt that has trained for long enough: up to its last word, not up to
/// now, since between two words nothing is known. What a task needs under its present strategy and
/// what it would need under another are both scaled by it, or neither: else the first, slow steps of
/// an attempt would make every other strategy look better.
fn observed_step_s(attempt: &Attempt) -> Option<f64> {
    let (from_step, from_s) = attempt.started?;
    let trained = attempt.step.saturating_sub(from_step);
    (trained >= MIN_STEPS_TO_CORRECT).then(|| (attempt.heard_s - from_s) / trained as f64)
}

/// Observed over predicted seconds a step of a task: of what it does now, else of what it did last.
fn correction(state: &State, task: TaskId) -> f64 {
    let live = match state.task(task).status {
        TaskStatus::Running(id) => state.attempts.get(&id),
        _ => None,
    };
    live.and_then(|attempt| {
        let predicted_s = state.predicted_step_s(task, &attempt.strategy)?;
        Some(observed_step_s(attempt)? / predicted_s)
    })
    .unwrap_or(state.task(task).correction)
}

/// Seconds that a task which has come as far as `step` needs at a place in the plan, from launch to
/// end.
fn duration_s(state: &State, planned: &PlannedTask, step: u64) -> f64 {
    let until = planned.until_step.or(state.task(planned.task).steps);
    until
        .and_then(|until| {
            let num_steps = until.saturating_sub(step);
            training_s(state, planned.task, &planned.strategy, num_steps)
        })
        .unwrap_or(planned.end_s - planned.start_s)
}

/// Seconds from launch to end of what is left of a task under a strategy, its last checkpoint
/// included; `None` where no trial measured it.
pub(crate) fn expected_s(state: &State, task: TaskId, strategy: &Strategy) -> Option<f64> {
    let left = state.task(task).steps?.saturating_sub(state.task(task).step);
    training_s(state, task, strategy, left)
}

/// Seconds from launch to the checkpoint after so many steps.
fn training_s(state: &State, task: TaskId, strategy: &Strategy, num_steps: u64) -> Option<f64> {
    let step_s = state.predicted_step_s(task, strategy)? * correction(state, task);
    Some(load_s(state, task, strategy) + num_steps as f64 * step_s + state.task(task).save_s)
}

/// Seconds from launch to the first step from where a task stands: as it took the last time that it
/// went on from a checkpoint, else as the trial measured it.
pub(crate) fn load_s(state: &State, task: TaskId, strategy: &Strategy) -> f64 {
    let has_checkpoint = state.task(task).checkpoint_step > 0;
    let observed_s = state.task(task).load_s.filter(|_| has_checkpoint);
    observed_s.unwrap_or_else(|| setup_s(state, task, strategy))
}

/// Seconds from launch to the first step, as the trial measured it.
fn setup_s(state: &State, task: TaskId, strategy: &Strategy) -> f64 {
    match state.trial_of(task, strategy).and_then(|trial| trial.outcome.as_ref()) {
        Some(TrialOutcome::Measured { setup_s, .. }) => *setup_s,
        _ => 0.0,
    }
}
