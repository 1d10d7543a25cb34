//! Which figure of a plan was wrong, by how much, and what that cost.
//!
//! Only tasks that trained in one attempt as their first plan had it are judged, since only then
//! do plan and training cover the same work.

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

/// What was wrong with the plan of a task that is done, and what that cost; empty if little was.
pub(super) fn of_task(state: &State, history: &History, task: TaskId, now_s: f64) -> Vec<Reason> {
    let Some(error_s) = error_s(state, history, task) else { return Vec::new() };
    let mut reasons = vec![Reason::new(Code::EstimateWrong, wrong(state, history, task, error_s))];
    reasons.extend(cost(&candidates::of(state, history, task, now_s)));
    reasons
}

/// The tasks of a run whose plans were wrong by the most seconds.
pub(super) fn of_run(state: &State, history: &History) -> Vec<Reason> {
    let errors = state.task_ids().filter_map(|task| Some((task, error_s(state, history, task)?)));
    let mut errors: Vec<(TaskId, f64)> = errors.collect();
    errors.sort_by(|left, right| right.1.abs().total_cmp(&left.1.abs()));
    errors.truncate(MOST_TASKS);
    let reason = |(task, error_s): (TaskId, f64)| {
        let text = wrong(state, history, task, error_s);
        Reason::new(Code::EstimateWrong, text).about(vec![state.name(task).to_owned()])
    };
    errors.into_iter().map(reason).collect()
}

/// Seconds that a task took beyond its plan, if they are many.
fn error_s(state: &State, history: &History, task: TaskId) -> Option<f64> {
    let error = estimate_error(state, history, task)?;
    let error_s = error * planned_s(history, task)?;
    (error.abs() >= LEAST_ERROR && error_s.abs() >= LEAST_ERROR_S).then_some(error_s)
}

fn wrong(state: &State, history: &History, task: TaskId, error_s: f64) -> String {
    let planned = planned_s(history, task).unwrap_or_default();
    let took_s = train_s(history, task, state.now_s).unwrap_or_default();
    let name = state.name(task);
    let (planned, took, by) =
        (duration(planned), duration(took_s), signed_percent(took_s / planned - 1.0));
    let why = steps_were_wrong(state, history, task, error_s).unwrap_or_else(|| {
        let than = if error_s > 0.0 { "more" } else { "less" };
        format!("launch, checkpoints and evaluations took {than} than planned")
    });
    format!("{name} was planned to take {planned} and took {took} ({by}): {why}.")
}

/// What a step took, and who had said otherwise; `None` if steps are not most of the error.
fn steps_were_wrong(
    state: &State,
    history: &History,
    task: TaskId,
    error_s: f64,
) -> Option<String> {
    let (by, step_s) = steps_of(history, task)?;
    let of_steps_s = num_steps(state, task)? * (step_s - by.step_s);
    if of_steps_s * error_s.signum() < error_s.abs() / 2.0 {
        return None;
    }
    let who = match by.source {
        Source::Training => "earlier training had taken",
        Source::Trial => "its trial had measured",
        Source::Estimate => "the estimate had been",
    };
    Some(format!("it trained at {}, and {who} {}", step_time(step_s), step_time(by.step_s)))
}

fn num_steps(state: &State, task: TaskId) -> Option<f64> {
    let task = state.task(task);
    Some(task.steps?.saturating_sub(task.spec.start_step) as f64)
}

/// What a step was planned to take, and what it took in the task's only attempt, seconds.
fn steps_of(history: &History, task: TaskId) -> Option<(PlannedBy, f64)> {
    let by = history.task(task)?.planned_by?;
    let (_, only) = history.training(task).next()?;
    let (steps, seconds) = only.clocked;
    (steps > 0).then(|| (by, seconds / steps as f64))
}

/// What the choice cost by what is known now; `None` if nothing on no more devices would have been
/// much faster.
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
