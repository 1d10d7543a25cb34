//! What a submission would do, decided on a copy of a run: nothing is stored or launched.
//!
//! The copy takes the tasks in as the run would, poses the problem that the run's solver would get,
//! and adopts a plan by the same rules. Tasks whose trials go on, or are still to come, are in the
//! problem as far as they are measured, as in `planning/remaining_work`.

use crate::engine::commands::submit;
use crate::facts::event::{NewTask, SolveAnswer, SolveOrder};
use crate::facts::ids::TaskId;
use crate::facts::refusal::{Refusal, RefusalCode};
use crate::knowledge::paces::LEAST_NEWS;
use crate::ledger::book::Ledger;
use crate::planning::adopting::{choose, places};
use crate::planning::alone::Alone;
use crate::planning::asking::{Question, order};
use crate::planning::deadlines::LeftOut;
use crate::planning::problem::{Remaining, plannable_at_once};
use crate::state::run::State;

/// A submission that is tried on a copy of a run.
#[derive(Debug)]
pub struct Rehearsal {
    ledger: Ledger,
    now_s: f64,
    new: Vec<TaskId>,
    /// What the solver was asked about last.
    asked: Option<Question>,
    /// If people share the run: the plan of each person alone.
    alone: Alone,
    /// The deadlines that were left out of the question.
    left_out: LeftOut,
}

impl Rehearsal {
    /// Takes the tasks into a copy of a run, or says why the run would refuse them.
    pub fn of(state: &State, tasks: Vec<NewTask>, now_s: f64) -> Result<Self, Refusal> {
        if state.ended.is_some() {
            return Err(RefusalCode::RunEnded.because("the run has ended"));
        }
        let mut ledger = Ledger::of(state.clone());
        let num_before = state.tasks.len();
        submit(&mut ledger, tasks, now_s)?;
        for record in ledger.state.departures(LEAST_NEWS, ledger.state.attempts.values()) {
            ledger.commit(record, now_s);
        }
        let new = ledger.state.task_ids().skip(num_before).collect();
        Ok(Self {
            ledger,
            now_s,
            new,
            asked: None,
            alone: Alone::default(),
            left_out: LeftOut::default(),
        })
    }

    /// The question to the solver; `None` if no task is measured.
    pub fn ask(&mut self) -> Option<SolveOrder> {
        let state = &self.ledger.state;
        let tasks = plannable_at_once(state);
        if let Some(plan) = self.alone.next_plan(state, &tasks, self.now_s) {
            let order = plan.order(state);
            self.asked = Some(Question::Alone(plan));
            return Some(order);
        }
        let mut remaining = Remaining::new(state, &tasks, &self.left_out, self.now_s);
        if remaining.tasks.is_empty() {
            return None;
        }
        let order = order(state, &mut remaining);
        self.asked = Some(Question::Joint(Box::new(remaining)));
        // Trials are not chosen here.
        Some(SolveOrder { optimistic: None, expected: None, ..order })
    }

    /// Takes the solver's answer, and adopts a plan as the run would. Returns `false` if the answer
    /// has no plan that can be followed, or was only about one person's tasks: then the solver is to
    /// be asked again.
    pub fn solved(&mut self, answer: &SolveAnswer) -> bool {
        let remaining = match self.asked.take() {
            Some(Question::Joint(remaining)) => *remaining,
            Some(Question::Alone(plan)) => {
                if let Some(record) = plan.guaranteed(answer) {
                    self.ledger.commit(record, self.now_s);
                }
                return false;
            }
            None => return true,
        };
        let found = Some(answer).filter(|answer| answer.plan.is_usable());
        let found = found.and_then(|answer| {
            Some((answer, places(&self.ledger.state, &remaining, answer).ok()?))
        });
        let state = &self.ledger.state;
        if found.is_none() && self.left_out.leave_out_more(state, &remaining, self.now_s) {
            return false;
        }
        let tasks = plannable_at_once(&self.ledger.state);
        choose(&mut self.ledger, found, &remaining, &tasks, None, self.now_s);
        true
    }

    /// The copy of the run, with the tasks and the plan.
    pub fn state(&self) -> &State {
        &self.ledger.state
    }

    /// The new tasks.
    pub fn new_tasks(&self) -> &[TaskId] {
        &self.new
    }
}
