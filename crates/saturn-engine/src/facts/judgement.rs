//! What a run's stopper says of tasks: train on, wait, end.
//!
//! The stopper itself is no part of the engine: it looks at what tasks report and says what is to come
//! of them by [`crate::Command::Judge`]. Every value that it has seen is in the journal with what it
//! said of that, in the order in which it saw them: so a stopper can be rebuilt from a journal, and
//! decides in a resumed run as it would have.
//!
//! A task that is *held* stops at a checkpoint and waits until it is told to go on; its devices go to
//! others. One that trains and could not go on from a checkpoint is not held: it would lose all its steps. Then it comes before all that waits (`extend`): the best of a search train on first, and
//! what is planned behind them may never have to train to its end. One that is to *stop* ends at its next checkpoint, at once where it does not train.

use saturn_core::measure;
use serde::{Deserialize, Serialize};

use crate::engine::turn::Engine;
use crate::facts::evaluation::Metrics;
use crate::facts::ids::TaskId;
use crate::facts::record::{Record, StopReason, TaskEnd};
use crate::state::run::{State, TaskState, TaskStatus};

/// What is to come of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// It trains on; where it is held it is taken up again.
    GoOn,
    /// It stops at a checkpoint, and waits.
    Hold,
    /// It ends at a checkpoint.
    Stop,
}

/// What a stopper saw of a task, and what comes of that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Finished steps of the task when the values were reported.
    pub step: u64,
    /// What was seen, by metric; empty where others' values are the reason.
    #[serde(default, with = "measure::by_name")]
    pub values: Metrics,
    /// What is to come of it; `None`: what was to come of it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Ruling>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A judgement of a task that goes by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedJudgement {
    /// Which task.
    pub task: String,
    /// What is said of it.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// What a stopper said of a task that is not to train.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// It waits, and why.
    Held(String),
    /// It ends once it has stopped, and why.
    Stopping(String),
}

impl TaskState {
    /// Whether it is to do nothing for now: its user paused it, or the stopper holds it or ends it.
    pub fn is_to_rest(&self) -> bool {
        self.is_paused || self.judged.is_some()
    }

    /// Why the stopper holds it; `None` where it doesn't.
    pub fn held(&self) -> Option<&str> {
        match &self.judged {
            Some(Judged::Held(reason)) => Some(reason),
            _ => None,
        }
    }
}

impl State {
    pub(crate) fn apply_judged(&mut self, id: TaskId, judgement: &Judgement) {
        let (Some(task), Some(ruling)) = (self.tasks.get(id.0), judgement.ruling) else { return };
        let is_final = matches!(task.status, TaskStatus::Ended(_))
            || matches!(task.judged, Some(Judged::Stopping(_)));
        let judged = match ruling {
            Ruling::GoOn => None,
            Ruling::Hold => Some(Judged::Held(judgement.reason.clone())),
            Ruling::Stop => Some(Judged::Stopping(judgement.reason.clone())),
        };
        // A task that trains and would begin anew loses more by a stop than it costs others.
        let stays = ruling == Ruling::Hold && !task.spec.can_resume;
        if stays && self.attempt_of(id).is_some() {
            return;
        }
        if !is_final && task.judged != judged {
            let is_let_go_on = judged.is_none();
            self.with_task(id, |task| (task.judged, task.is_let_go_on) = (judged, is_let_go_on));
        }
    }
}

impl Engine {
    /// Takes in what the stopper says: all of it, or nothing where it names a task that there is not.
    /// What has ended since stays as it is.
    pub(crate) fn take_judgements(
        &mut self,
        judgements: Vec<NamedJudgement>,
        now_s: f64,
    ) -> Result<(), String> {
        let known = judgements.into_iter().map(|NamedJudgement { task, judgement }| {
            let id = self.state.task_named(&task).ok_or_else(|| self.unknown_task(&task))?;
            Ok((id, judgement))
        });
        let known: Vec<(TaskId, Judgement)> = known.collect::<Result<_, String>>()?;
        let mut let_go_on = false;
        for (task, judgement) in known {
            let ruling = judgement.ruling;
            self.commit(Record::Judged { task, judgement }, now_s);
            let_go_on |= ruling == Some(Ruling::GoOn) && self.state.task(task).is_let_go_on;
            let is_to_rest = matches!(ruling, Some(Ruling::Hold | Ruling::Stop));
            if self.state.has_ended(task) || !is_to_rest {
                continue;
            }
            if self.state.task(task).judged.is_none() {
                let text = "it is not held: it would have to begin anew, so it trains on";
                let text = text.to_owned();
                self.commit(Record::Noted { task: Some(task), text }, now_s);
                continue;
            }
            match self.state.attempt_of(task) {
                Some((id, _)) => self.stop(id, StopReason::Judged, now_s),
                None => self.end_if_to_stop(task, now_s),
            }
        }
        if let_go_on {
            self.place_what_may_go_on(now_s);
        }
        Ok(())
    }

    /// Gives what may go on its place at once, whenever the solver is asked next.
    fn place_what_may_go_on(&mut self, now_s: f64) {
        let state = &self.state;
        let is_missing = |task: &TaskId| state.task(*task).is_let_go_on && !state.has_place(*task);
        let may = state.plan.is_some() && state.interrupted.is_none();
        if may && state.plannable().iter().any(is_missing) {
            let open = state.open_places().map(|(_, place)| place.clone()).collect();
            self.adopt_extended(open, now_s);
        }
    }

    /// Ends a task that the stopper wants ended and that has stopped.
    fn end_if_to_stop(&mut self, task: TaskId, now_s: f64) {
        let has_stopped = self.state.task(task).status == TaskStatus::Waiting;
        if let Some(Judged::Stopping(reason)) = self.state.task(task).judged.clone()
            && has_stopped
        {
            self.end_task(task, TaskEnd::Stopped { reason }, now_s);
        }
    }

    /// Ends what the stopper wants ended, of the tasks that have stopped since.
    pub(crate) fn end_stopped(&mut self, now_s: f64) {
        for task in std::mem::take(&mut self.to_end) {
            self.end_if_to_stop(task, now_s);
        }
    }
}
