//! What a run's stopper says of tasks, taken in and acted upon.
//!
//! The stopper is no part of the engine. It looks at what tasks report, and rules by
//! [`Command::Judge`](crate::Command::Judge). Beside each ruling, the journal has every value that
//! the stopper saw, in the order in which it saw them. So a resumed run rebuilds the same stopper.
//!
//! A task that is *held* stops at a checkpoint and waits until the stopper lets it go on; other
//! tasks get its devices. A task that trains and could not go on from a checkpoint is not held,
//! since it would lose all its steps. A task that is let go on comes before all that waits
//! (`extend`). A task that is to *stop* ends at its next checkpoint, or at once if it does not
//! train.

use crate::engine::names::unknown_task;
use crate::facts::ids::TaskId;
use crate::facts::judgement::{Judgement, NamedJudgement, Ruling};
use crate::facts::record::{Record, StopReason, TaskEnd};
use crate::facts::refusal::Refusal;
use crate::ledger::book::Ledger;
use crate::planning::adopting::adopt_extended;
use crate::planning::plannable::plannable;
use crate::state::task::{Judged, TaskStatus};

/// Takes in the stopper's rulings: all of them, or none if one names an unknown task. Tasks that
/// have ended since stay as they are.
pub(crate) fn take_judgements(
    ledger: &mut Ledger,
    judgements: Vec<NamedJudgement>,
    now_s: f64,
) -> Result<(), Refusal> {
    let known = judgements.into_iter().map(|NamedJudgement { task, judgement }| {
        let id =
            ledger.state.task_named(&task).ok_or_else(|| unknown_task(&ledger.state, &task))?;
        Ok((id, judgement))
    });
    let known: Vec<(TaskId, Judgement)> = known.collect::<Result<_, Refusal>>()?;
    let mut let_go_on = false;
    for (task, judgement) in known {
        let ruling = judgement.ruling;
        ledger.commit(Record::Judged { task, judgement }, now_s);
        let_go_on |= ruling == Some(Ruling::GoOn) && ledger.state.task(task).is_let_go_on;
        let must_not_train = matches!(ruling, Some(Ruling::Hold | Ruling::Stop));
        if ledger.state.has_ended(task) || !must_not_train {
            continue;
        }
        if ledger.state.task(task).judged.is_none() {
            let text = "not held: the task can't resume from a checkpoint, so it trains on";
            let text = text.to_owned();
            ledger.commit(Record::Noted { task: Some(task), text }, now_s);
            continue;
        }
        match ledger.state.attempt_of(task) {
            Some((id, _)) => ledger.stop(id, StopReason::Judged, now_s),
            None => end_if_to_stop(ledger, task, now_s),
        }
    }
    if let_go_on {
        place_resumed_tasks(ledger, now_s);
    }
    Ok(())
}

/// Gives tasks that may go on their places at once, without waiting for the solver.
fn place_resumed_tasks(ledger: &mut Ledger, now_s: f64) {
    let state = &ledger.state;
    let is_missing = |task: &TaskId| state.task(*task).is_let_go_on && !state.has_place(*task);
    let may = state.plan.is_some() && state.interrupted.is_none();
    if may && plannable(state).iter().any(is_missing) {
        let open = state.open_places().map(|(_, place)| place.clone()).collect();
        adopt_extended(ledger, open, now_s);
    }
}

/// Ends a task that the stopper wants ended and that has stopped.
fn end_if_to_stop(ledger: &mut Ledger, task: TaskId, now_s: f64) {
    let has_stopped = ledger.state.task(task).status == TaskStatus::Waiting;
    if let Some(Judged::Stopping(reason)) = ledger.state.task(task).judged.clone()
        && has_stopped
    {
        ledger.end_task(task, TaskEnd::Stopped { reason }, now_s);
    }
}

/// Ends the tasks that the stopper wants ended and that have stopped since.
pub(crate) fn end_stopped(ledger: &mut Ledger, now_s: f64) {
    for task in std::mem::take(&mut ledger.agenda.to_end) {
        end_if_to_stop(ledger, task, now_s);
    }
}
