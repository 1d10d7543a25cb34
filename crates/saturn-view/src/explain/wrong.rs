//! Which figure of a plan was wrong, by how much, and the cost of the error.
//!
//! Only tasks that trained in one attempt, as their first plan had it, are judged: only there do plan
//! and training cover the same work.

use saturn_engine::{State, TaskId};

use crate::explain::candidates::{self, Candidate};
use crate::explain::code::Code;
use crate::explain::reason::Reason;
use crate::facts::history::History;
use crate::facts::outcome::{estimate_error, planned_s, train_s};
use crate::facts::planned_by::{PlannedBy, Source};
use crate::layout::units::{duration, signed_percent, step_time};

/// A smaller error, as a share of the planned time, is not told.
const LEAST_ERROR: f64 = 0.1;
/// The same in seconds: a task of a few seconds is mostly its launch.
const LEAST_ERROR_S: f64 = 2.0;
/// Another strategy must have been faster by this share for the choice to be called dear.
const LEAST_COST: f64 = 0.05;
/// How many tasks of a run are named.
const MOST_TASKS: usize = 3;

/// How wrong the plan of a task was, seconds.
#[derive(Debug, Clone, Copy)]
struct Error {
    planned_s: f64,
    took_s: f64,
}

impl Error {
    /// The error of a task that is done; `None` if it is small, or the task can't be judged.
    fn of(state: &State, history: &History, task: TaskId) -> Option<Self> {
        let share = estimate_error(state, history, task)?;
        let planned_s = planned_s(history, task, state.now_s)?;
        let error = Self { planned_s, took_s: train_s(history, task, state.now_s)? };
        (share.abs() >= LEAST_ERROR && error.late_s().abs() >= LEAST_ERROR_S).then_some(error)
    }

    /// Seconds that the task took beyond its plan; negative if it took less.
    fn late_s(self) -> f64 {
        self.took_s - self.planned_s
    }
}

/// The error in the plan of a task that is done, and its cost; empty if the error is small.
pub(super) fn of_task(state: &State, history: &History, task: TaskId, now_s: f64) -> Vec<Reason> {
    let Some(error) = Error::of(state, history, task) else { return Vec::new() };
    let mut reasons = vec![Reason::new(Code::EstimateWrong, wrong(state, history, task, error))];
    reasons.extend(cost(&candidates::of(state, history, task, now_s)));
    reasons
}

/// The tasks of a run whose plans were wrong by the most seconds.
pub(super) fn of_run(state: &State, history: &History) -> Vec<Reason> {
    let errors = state.task_ids().filter_map(|task| Some((task, Error::of(state, history, task)?)));
    let mut errors: Vec<(TaskId, Error)> = errors.collect();
    errors.sort_by(|(_, left), (_, right)| right.late_s().abs().total_cmp(&left.late_s().abs()));
    errors.truncate(MOST_TASKS);
    let reason = |(task, error): (TaskId, Error)| {
        let text = wrong(state, history, task, error);
        Reason::new(Code::EstimateWrong, text).about(vec![state.name(task).to_owned()])
    };
    errors.into_iter().map(reason).collect()
}

fn wrong(state: &State, history: &History, task: TaskId, error: Error) -> String {
    let name = state.name(task);
    let (planned, took) = (duration(error.planned_s), duration(error.took_s));
    let by = signed_percent(error.took_s / error.planned_s - 1.0);
    let why = steps_were_wrong(state, history, task, error).unwrap_or_else(|| {
        let than = if error.late_s() > 0.0 { "more" } else { "less" };
        format!("launch, checkpoints and evaluations took {than} than planned")
    });
    format!("{name} was planned to take {planned} and took {took} ({by}): {why}.")
}

/// The seconds that a step took and was planned to take, in words; `None` if steps make up less than
/// half of the error.
fn steps_were_wrong(
    state: &State,
    history: &History,
    task: TaskId,
    error: Error,
) -> Option<String> {
    let (by, step_s) = steps_of(history, task)?;
    let of_steps_s = num_steps(state, task)? * (step_s - by.step_s);
    if of_steps_s * error.late_s().signum() < error.late_s().abs() / 2.0 {
        return None;
    }
    let planned = match by.source {
        Source::Training => "earlier training had taken",
        Source::Trial => "its trial had measured",
        Source::Estimate => "the estimate had been",
    };
    Some(format!("it trained at {}, and {planned} {}", step_time(step_s), step_time(by.step_s)))
}

fn num_steps(state: &State, task: TaskId) -> Option<f64> {
    let task = state.task(task);
    Some(task.steps?.saturating_sub(task.spec.start_step) as f64)
}

/// The planned seconds of a step, and the mean seconds of a step in the task's only attempt.
fn steps_of(history: &History, task: TaskId) -> Option<(PlannedBy, f64)> {
    let by = history.task(task)?.planned_by?;
    let (_, only) = history.training(task).next()?;
    let (steps, seconds) = only.clocked;
    (steps > 0).then(|| (by, seconds / steps as f64))
}

/// Whether another strategy, on no more devices, would have been much faster, as far as is known now.
fn cost(candidates: &[Candidate]) -> Option<Reason> {
    let chosen = candidates.iter().find(|one| one.code == Code::Chosen)?;
    let took_s = chosen.time_s?;
    let others = candidates.iter().filter(|one| {
        one.code != Code::Chosen && one.gpus <= chosen.gpus && one.gpu_type == chosen.gpu_type
    });
    let timed = others.filter_map(|one| Some((one, one.time_s?)));
    let (best, time_s) = timed.min_by(|left, right| left.1.total_cmp(&right.1))?;
    let saved_s = took_s - time_s;
    (saved_s >= LEAST_COST * took_s && saved_s >= LEAST_ERROR_S).then(|| {
        let text = format!(
            "With what is known now, {} × {} would have taken {} less.",
            best.technique,
            best.gpus,
            duration(saved_s)
        );
        Reason::new(Code::EstimateCost, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(gpus: u32, time_s: f64, code: Code) -> Candidate {
        let candidate = serde_json::json!({
            "technique": "ddp", "gpus": gpus, "gpu_type": "H100", "time_s": time_s,
            "slower_s": null, "slower_share": null, "device_s": null, "code": code.word(),
            "sentence": "",
        });
        serde_json::from_value(candidate).unwrap()
    }

    #[test]
    fn a_choice_was_dear_only_beside_what_holds_no_more_devices() {
        let chosen = candidate(2, 100.0, Code::Chosen);
        let with = |other: Candidate| cost(&[chosen.clone(), other]).map(|one| one.sentence);
        let cheaper = with(candidate(1, 60.0, Code::BetterNow));
        assert_eq!(
            cheaper.as_deref(),
            Some("With what is known now, ddp × 1 would have taken 40 s less.")
        );
        assert_eq!(with(candidate(4, 60.0, Code::MoreDeviceTime)), None);
        assert_eq!(with(candidate(2, 97.0, Code::BetterNow)), None, "3% are no news");
        assert_eq!(with(candidate(2, 140.0, Code::Worse)), None);
        assert_eq!(cost(&[candidate(2, 60.0, Code::Worse)]), None, "nothing was chosen");
    }
}
