//! Where a task stands.

use saturn_core::names::escape_terminal;
use saturn_engine::{Attempt, Stage, State, TaskEnd, TaskId, TaskStatus};

use crate::explain::code::Code;
use crate::explain::failures::why_failed;
use crate::explain::reason::Reason;
use crate::explain::waiting::{at_step, waiting};
use crate::explain::wrong;
use crate::facts::expect::Expected;
use crate::facts::history::History;
use crate::facts::outcome::train_s;
use crate::layout::units::{clock, duration, number};
use crate::phrases::events;
use crate::phrases::tasks::steps;
use crate::phrases::words::{self, first_line};

/// Where a task stands and why. The first reason is the decisive one; the others hold too.
pub(super) fn reasons(
    state: &State,
    history: &History,
    expected: &Expected,
    task: TaskId,
    now_s: f64,
) -> Vec<Reason> {
    if let TaskStatus::Ended(end) = &state.task(task).status {
        let mut reasons = vec![ended(state, history, task, end)];
        reasons.extend(wrong::of_task(state, history, task, now_s));
        return reasons;
    }
    let mut reasons = match state.attempt_of(task) {
        Some((_, attempt)) => vec![running(state, expected, attempt, now_s)],
        None => waiting(state, history, expected, task, now_s),
    };
    reasons.extend(guaranteed(state, task));
    reasons
}

/// By when a person who shares the run can count on the end of a task.
fn guaranteed(state: &State, task: TaskId) -> Option<Reason> {
    let sharing = state.config.policy.sharing.as_ref()?;
    let of = state.task(task);
    let (by_s, alone_s) = (of.guaranteed_s()?, of.guarantee.as_ref()?.by_s);
    let person = escape_terminal(state.login(sharing, of.uid()));
    // The share may be another since then.
    let text = format!(
        "{person} can count on its end by {}: alone on {person}'s share of the devices, as large as \
         the share was when this was planned, it would end at {}.",
        clock(by_s),
        clock(alone_s),
    );
    Some(Reason::new(Code::Guaranteed, text).until(Some(by_s)))
}

fn ended(state: &State, history: &History, task: TaskId, end: &TaskEnd) -> Reason {
    let name = state.name(task);
    let at_s = history.task(task).and_then(|past| past.ended_s).unwrap_or(state.now_s);
    let at = clock(at_s);
    match end {
        TaskEnd::Done { loss } => {
            let loss = loss.map(|loss| format!(", loss {}", number(loss))).unwrap_or_default();
            let done = state.task(task).step;
            let steps = match state.task(task).steps {
                Some(all) if done < all => {
                    format!("its own code ended it after {done} of {}", steps(all))
                }
                _ => steps(done),
            };
            let took = duration(train_s(history, task, state.now_s).unwrap_or(0.0));
            if state.task(task).has_diverged() {
                let why = "its last loss is no finite number";
                let text = format!(
                    "{name} diverged: {why}. It ended at {at}: {steps} in {took} of training{loss}."
                );
                return Reason::new(Code::Diverged, text);
            }
            Reason::new(
                Code::Done,
                format!("{name} was done at {at}: {steps} in {took} of training{loss}."),
            )
        }
        TaskEnd::Failed { error, .. } => {
            let (code, why) = why_failed(state, history, task, error);
            let why = if why.is_empty() { why } else { format!(" {why}") };
            let error = first_line(error);
            Reason::new(code, format!("{name} failed at {at}{why}: {error}"))
        }
        TaskEnd::Stopped { reason } => {
            let reason = first_line(reason);
            let steps = at_step(state.task(task).step);
            Reason::new(Code::Stopped, format!("{name} was stopped at {at}{steps}: {reason}."))
        }
        TaskEnd::Cancelled { reason } => {
            let lost: Vec<String> = state
                .waits_for(task)
                .filter(|before| {
                    matches!(
                        state.stage(*before),
                        Stage::Failed | Stage::Cancelled | Stage::Stopped
                    )
                })
                .map(|before| state.name(before).to_owned())
                .collect();
            let code = if lost.is_empty() { Code::Cancelled } else { Code::CancelledPredecessor };
            let reason = first_line(reason);
            Reason::new(code, format!("{name} was cancelled at {at}: {reason}.")).about(lost)
        }
    }
}

fn running(state: &State, expected: &Expected, attempt: &Attempt, now_s: f64) -> Reason {
    let task = attempt.task;
    let name = state.name(task);
    let end_s = expected.times(task).map(|(_, end_s)| end_s);
    let place = format!(
        "under {} on {}",
        words::strategy(&attempt.strategy),
        words::on_devices(&state.cluster, &attempt.gang)
    );
    if attempt.is_dying() {
        return Reason::new(Code::IsKilled, format!("{name}'s processes are being killed."));
    }
    if let Some((reason, at_s)) = attempt.stopping {
        let why = events::stop_reason(reason);
        let text = format!("{name} was asked at {} to stop at a checkpoint: {why}.", clock(at_s));
        return Reason::new(Code::Stops, text);
    }
    if attempt.started.is_none() {
        let since = duration(now_s - attempt.launched_s);
        let text = format!("{name} was launched {since} ago {place}, and loads.");
        return Reason::new(Code::Starts, text).until(end_s);
    }
    let of = state.task(task).steps.map(|steps| format!(" of {steps}")).unwrap_or_default();
    let switch =
        attempt.until_step.map(|step| format!("; at step {step} it is switched as planned"));
    let stays = if !state.task(task).spec.can_resume {
        "; it can't resume from a checkpoint, so no plan moves it"
    } else if state.is_to_stay(attempt) {
        "; a plan has moved it lately, so it is left here for a while"
    } else {
        ""
    };
    let text = format!(
        "{name} trains {place}, at step {}{of}{}{stays}.",
        attempt.step,
        switch.unwrap_or_default()
    );
    Reason::new(Code::Trains, text).until(end_s)
}
