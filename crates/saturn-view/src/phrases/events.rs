//! Phrases for the records of a run: what happened, in the words that every view uses.
//!
//! A view puts a name, a time or a verb in front.

use saturn_core::names::escape_terminal;
use saturn_engine::{AttemptEnd, PlanSource, RunPlan, State, StopReason, TaskId};

use crate::facts::past::PoolEvent;
use crate::layout::units::{duration, signed_percent};
use crate::phrases::words::{first_line, id_ranges};

/// Nobody may add tasks any more.
pub(crate) const CLOSED: &str = "no more tasks will come: the run ends with these";

/// A person asked the run to stop.
pub(crate) fn interrupted(at_once: bool) -> &'static str {
    if at_once {
        "stopping at once; Ctrl-C again to leave without waiting"
    } else {
        "stopping at checkpoints; Ctrl-C again to stop at once"
    }
}

/// How an attempt ended, in one word.
pub(crate) fn attempt_end(end: &AttemptEnd) -> &'static str {
    match end {
        AttemptEnd::Finished => "finished",
        AttemptEnd::Stopped => "stopped",
        AttemptEnd::Killed => "killed",
        AttemptEnd::Lost => "lost",
        AttemptEnd::Abandoned => "abandoned",
        AttemptEnd::Failed { .. } => "failed",
    }
}

/// Why an attempt was asked to stop, as a clause about its task.
pub(crate) fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Replan => "a new plan moved it",
        StopReason::Interrupt => "the run was stopped",
        StopReason::Switch => "the plan switched it here",
        StopReason::Pause => "it was paused",
        StopReason::Judged => "the stopper held it or ended it",
        StopReason::Trial => "a trial that may save more time needed its devices",
        StopReason::FirstTrial => {
            "another person, who had no device, needed its devices for a first trial"
        }
        StopReason::SetAside => "its devices were set aside",
    }
}

/// What a task does after a full disk.
pub(crate) const WAITS_FOR_SPACE: &str = "waits for space on the disk";

/// `failure 2 of at most 3 in a row`.
pub(crate) fn failures(state: &State, task: TaskId) -> String {
    let most = state.config.policy.max_failures;
    format!("failure {} of at most {most} in a row", state.task(task).failures)
}

/// `left: its agent is gone`, `device 1 set aside: it fell off the bus`.
pub(crate) fn pool_event(what: &PoolEvent) -> String {
    let devices = |ids: &[u32]| {
        let noun = if ids.len() == 1 { "device" } else { "devices" };
        format!("{noun} {}", id_ranges(ids))
    };
    match what {
        PoolEvent::Joined(_) => "joined".to_owned(),
        PoolEvent::Left(why) => left(why),
        PoolEvent::SetAside(ids, why) => set_aside(&devices(ids), why),
        PoolEvent::TakenBack(ids, why) => taken_back(&devices(ids), why),
    }
}

/// `left: its agent is gone`, after the name of a node.
pub(crate) fn left(reason: &str) -> String {
    format!("left: {}", first_line(reason))
}

/// `device 1 set aside: it fell off the bus`.
pub(crate) fn set_aside(devices: &str, reason: &str) -> String {
    format!("{devices} set aside: {}", first_line(reason))
}

/// `device 1 in use again: a person said so`.
pub(crate) fn taken_back(devices: &str, reason: &str) -> String {
    format!("{devices} in use again: {}", first_line(reason))
}

/// `15 s more instead of 17 s (−11.1 %)`: what a plan promises, beside the plan before it. Only the
/// time that it promises if there was none, or if that promised the same.
pub(crate) fn promise(plan: &RunPlan) -> String {
    format!("{} more{}", duration(plan.makespan_s), instead(plan).unwrap_or_default())
}

/// ` instead of 17 s (−11.1 %)`; `None` if both times would be shown as the same.
pub(crate) fn instead(plan: &RunPlan) -> Option<String> {
    let instead_s = plan.instead_of_s.filter(|instead_s| *instead_s > 0.0)?;
    let before = duration(instead_s);
    let gain = signed_percent(plan.makespan_s / instead_s - 1.0);
    let is_same = before == duration(plan.makespan_s);
    (!is_same).then(|| format!(" instead of {before} ({gain})"))
}

/// Why a plan is not the solver's; `None` if it is.
pub(crate) fn extended(plan: &RunPlan) -> Option<String> {
    let PlanSource::Extended { reason } = &plan.source else { return None };
    let reason = reason.as_ref().map(|reason| format!(": {}", escape_terminal(reason)));
    let reason = reason.unwrap_or_default();
    Some(format!("tasks without a place are put behind the others, one by one{reason}"))
}

/// Why the plan in force was kept, `left_s` before its end, beside a plan that ends after `best_s`.
pub(crate) fn kept(left_s: f64, best_s: f64) -> String {
    format!(
        "{} to go; the best other plan would take {}, which saves too little",
        duration(left_s),
        duration(best_s)
    )
}
