//! Moves: each time that a task continued under another strategy or on other devices. A move tells
//! from where to where, why, what gain was promised, and whether a later plan undid it.

use saturn_engine::{AttemptEnd, Place, RunPlan, State, StopReason, TaskId};
use serde::{Deserialize, Serialize};

use crate::explain::code::Code;
use crate::facts::history::History;
use crate::facts::past::{Move, PastAttempt};
use crate::layout::units::{clock, duration};
use crate::phrases::events;
use crate::phrases::words::{self, first_line};

/// A move of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskMove {
    /// When the task left, seconds on the run's clock.
    pub at_s: f64,
    /// Seconds from then until the task was launched again.
    pub stood_still_s: f64,
    /// The strategy and devices that it left.
    pub from: String,
    /// The strategy and devices that it continued on.
    pub to: String,
    /// The seconds that the plan behind the move promised to save of the run's remaining time.
    pub promised_gain_s: Option<f64>,
    /// When a later plan undid the move, seconds on the run's clock, so that the promised gain was
    /// lost. A later plan undoes a move if it sends the task back, or elsewhere before its launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_s: Option<f64>,
    /// The reason for the move.
    pub code: Code,
    /// The whole move in words, for people.
    pub sentence: String,
}

pub(super) fn of(state: &State, history: &History, task: TaskId) -> Vec<TaskMove> {
    let moves: Vec<Move<'_>> = history.moves(task).collect();
    let told = |index: usize| told(state, history, moves[index], &moves[index + 1..]);
    (0..moves.len()).filter_map(told).collect()
}

/// `later` are the moves of the same task after this one.
fn told(
    state: &State,
    history: &History,
    Move { from, to }: Move<'_>,
    later: &[Move<'_>],
) -> Option<TaskMove> {
    let ended = from.ended.as_ref()?;
    let at_s = left_s(from)?;
    let (code, why) = match (&ended.end, from.stopping) {
        (AttemptEnd::Failed { failure }, _) => {
            let kind = words::failure_kind(failure.kind);
            (Code::MovedFailure, format!("it failed ({kind}): {}", first_line(&failure.error)))
        }
        (AttemptEnd::Lost, _) => (Code::MovedLost, "its processes went away".to_owned()),
        (AttemptEnd::Abandoned, None | Some((StopReason::Switch, _))) => {
            stopped(StopReason::SetAside)
        }
        (_, Some((reason, _))) => stopped(reason),
        (_, None) => stopped(StopReason::Switch),
    };
    let place = |attempt: &PastAttempt| {
        let strategy = words::strategy(&attempt.strategy);
        format!("{strategy} on {}", words::devices(&state.cluster, &attempt.gang))
    };
    let (was, is) = (place(from), place(to));
    let plan = (code == Code::MovedReplan).then(|| plan_of(history, at_s)).flatten();
    let promised_gain_s = plan.and_then(|plan| Some(plan.instead_of_s? - plan.makespan_s));
    let gain = plan.and_then(promised).map(|words| format!(", which {words}")).unwrap_or_default();
    let undone_s = plan.and_then(|plan| {
        overtaken_s(history, plan, to)
            .or_else(|| later.iter().find_map(|one| sent_back_s(from, *one)))
    });
    let undone = undone_s
        .map(|at_s| format!("; a later plan undid that at {}", clock(at_s)))
        .unwrap_or_default();
    let stood_still_s = to.launched_s - at_s;
    let sentence = format!(
        "{was} → {is}: {why}{gain}{undone}; launched again {} later.",
        duration(stood_still_s)
    );
    Some(TaskMove {
        at_s,
        stood_still_s,
        from: was,
        to: is,
        promised_gain_s,
        undone_s,
        code,
        sentence,
    })
}

/// The code and the words of a move after a request to stop.
fn stopped(reason: StopReason) -> (Code, String) {
    let code = match reason {
        StopReason::Replan => Code::MovedReplan,
        StopReason::Switch => Code::MovedSwitch,
        StopReason::Trial => Code::MovedTrial,
        StopReason::FirstTrial => Code::MovedFirstTrial,
        StopReason::Judged => Code::MovedHold,
        StopReason::Pause => Code::MovedPause,
        StopReason::Interrupt => Code::MovedStop,
        StopReason::SetAside => Code::MovedSetAside,
    };
    (code, events::stop_reason(reason).to_owned())
}

/// When a task left an attempt: when the attempt was asked to stop, or else when it ended.
fn left_s(from: &PastAttempt) -> Option<f64> {
    let asked_s = from.stopping.map(|(_, asked_s)| asked_s);
    asked_s.or_else(|| from.ended.as_ref().map(|ended| ended.at_s))
}

/// When a plan sent a task back to where it was in `first`; `None` if this move does not do so.
fn sent_back_s(first: &PastAttempt, Move { from, to }: Move<'_>) -> Option<f64> {
    let is_replan = matches!(from.stopping, Some((StopReason::Replan, _)));
    let is_back = to.strategy == first.strategy && to.gang == first.gang;
    if is_replan && is_back { left_s(from) } else { None }
}

/// When a later plan sent a task elsewhere, before it was launched where `plan` wanted it.
fn overtaken_s(history: &History, plan: &RunPlan, to: &PastAttempt) -> Option<f64> {
    let launching = plan_of(history, to.launched_s)?;
    let is_meant = |place: &Place| *place.strategy == to.strategy && *place.gang == to.gang;
    let mut places = plan.places_of(to.task).peekable();
    // If there were very many plans, some have lost their places.
    let is_known = places.peek().is_some();
    (launching.at_s > plan.at_s && is_known && !places.any(is_meant)).then_some(launching.at_s)
}

/// The plan in force at a time.
fn plan_of(history: &History, at_s: f64) -> Option<&RunPlan> {
    let after = history.plans.partition_point(|plan| plan.at_s <= at_s);
    history.plans.get(after.checked_sub(1)?).map(AsRef::as_ref)
}

/// `promised the end of all tasks after 15 s more instead of 17 s (−11.1 %)`.
pub(super) fn promised(plan: &RunPlan) -> Option<String> {
    let instead = events::instead(plan)?;
    let after = duration(plan.makespan_s);
    Some(format!("promised the end of all tasks after {after} more{instead}"))
}
