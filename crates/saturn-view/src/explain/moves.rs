//! Each time that a task went on otherwise or elsewhere: from where to where, why, and what that
//! promised to gain.

use saturn_engine::{AttemptEnd, RunPlan, State, StopReason, TaskId};
use serde::{Deserialize, Serialize};

use super::Code;
use crate::history::{History, Move};
use crate::units::{duration, signed_percent};
use crate::words::{self, first_line};

/// A move of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskMove {
    /// When it left, seconds on the run's clock.
    pub at_s: f64,
    /// Seconds from then until it was launched again.
    pub stood_still_s: f64,
    /// How and where it was.
    pub from: String,
    /// How and where it went on.
    pub to: String,
    /// Seconds that the plan which moved it promised to save of what was left of the run.
    pub promised_gain_s: Option<f64>,
    /// Why.
    pub code: Code,
    /// All of it for people.
    pub sentence: String,
}

pub(super) fn of(state: &State, history: &History, task: TaskId) -> Vec<TaskMove> {
    history.moves(task).filter_map(|one| told(state, history, one)).collect()
}

fn told(state: &State, history: &History, Move { from, to }: Move<'_>) -> Option<TaskMove> {
    let ended = from.ended.as_ref()?;
    let at_s = from.stopping.map_or(ended.at_s, |(_, asked_s)| asked_s);
    let (code, why) = match (&ended.end, from.stopping) {
        (AttemptEnd::Failed { failure }, _) => {
            let kind = words::failure_kind(failure.kind);
            (Code::MovedFailure, format!("it failed ({kind}): {}", first_line(&failure.error)))
        }
        (AttemptEnd::Lost, _) => (Code::MovedLost, "its processes went away".to_owned()),
        (_, Some((StopReason::Replan, _))) => {
            (Code::MovedReplan, "a new plan had it go on so".to_owned())
        }
        (_, Some((StopReason::Trial, _))) => {
            (Code::MovedTrial, "a trial needed its devices that may save more".to_owned())
        }
        (_, Some((StopReason::Pause, _))) => (Code::MovedPause, "it was paused".to_owned()),
        (_, Some((StopReason::Interrupt, _))) => {
            (Code::MovedStop, "the run was stopped".to_owned())
        }
        (_, Some((StopReason::SetAside, _))) | (AttemptEnd::Abandoned, _) => {
            (Code::MovedSetAside, "its devices were set aside".to_owned())
        }
        (_, Some((StopReason::Switch, _)) | None) => {
            (Code::MovedSwitch, "the plan had it switched in mid-run".to_owned())
        }
    };
    let place = |attempt: &crate::history::PastAttempt| {
        let strategy = words::strategy(&attempt.strategy);
        format!("{strategy} on {}", words::devices(&state.cluster, &attempt.gang))
    };
    let (was, is) = (place(from), place(to));
    let plan = (code == Code::MovedReplan).then(|| plan_of(history, at_s)).flatten();
    let promised_gain_s = plan.and_then(|plan| Some(plan.instead_of_s? - plan.makespan_s));
    let gain = plan.and_then(promised).map(|words| format!(", which {words}")).unwrap_or_default();
    let stood_still_s = to.launched_s - at_s;
    let sentence = format!(
        "{was} → {is}: {why}{gain}; it went on {} after it was to stop.",
        duration(stood_still_s)
    );
    Some(TaskMove { at_s, stood_still_s, from: was, to: is, promised_gain_s, code, sentence })
}

/// The plan that was adopted last by a time.
fn plan_of(history: &History, at_s: f64) -> Option<&RunPlan> {
    let after = history.plans.partition_point(|plan| plan.at_s <= at_s);
    history.plans.get(after.checked_sub(1)?)
}

/// `promised the end of all tasks after 15 s more instead of 17 s (−11.1 %)`.
pub(super) fn promised(plan: &RunPlan) -> Option<String> {
    let instead_s = plan.instead_of_s.filter(|instead_s| *instead_s > 0.0)?;
    Some(format!(
        "promised the end of all tasks after {} more instead of {} ({})",
        duration(plan.makespan_s),
        duration(instead_s),
        signed_percent(plan.makespan_s / instead_s - 1.0)
    ))
}
