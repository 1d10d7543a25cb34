//! What a stopper's rulings bring.
//!
//! A task that is let go on has a place at once, where that is possible. Rulings that hold and stop
//! nobody free no devices: they bring a plan only if they let a task go on, and if the plan has a place
//! for a task without one that they or earlier rulings have let go on. No ruling brings a plan to a run
//! that stops.

use std::collections::BTreeSet;

use saturn_core::TrialOutcome;
use saturn_engine::{
    Command, Event, Purpose, Record, Ruling, RunPlan, State, TaskId, TaskStatus, TrialKey,
};

use crate::driving::seam::{Violation, broken};

/// The rulings of the present decision.
#[derive(Debug, Default)]
pub(super) struct Rulings {
    /// The stopper has ruled, and no plan was taken since.
    are_new: bool,
    /// Somebody is held or stopped.
    free_devices: bool,
    /// Tasks that go on after they were held.
    let_go_on: Vec<TaskId>,
    /// Some task is ruled to go on, whether it was held or not.
    is_go_on: bool,
    /// All tasks that were ever ruled to go on.
    ever_go_on: BTreeSet<TaskId>,
    wrong: Option<(&'static str, String)>,
}

impl Rulings {
    /// The driver is told an event.
    pub(super) fn told(&mut self, event: &Event) {
        (self.are_new, self.free_devices, self.is_go_on) = (false, false, false);
        if let Event::Command { command: Command::Judge { judgements } } = event {
            let mut rulings = judgements.iter().filter_map(|one| one.judgement.ruling);
            self.are_new = true;
            self.free_devices = rulings.any(|ruling| ruling != Ruling::GoOn);
        }
    }

    /// Takes in a record, in the state before it.
    pub(super) fn stored(&mut self, record: &Record, before: &State, now_s: f64) {
        match record {
            Record::Judged { task, judgement } if judgement.ruling == Some(Ruling::GoOn) => {
                self.is_go_on = true;
                self.ever_go_on.insert(*task);
                if before.task(*task).held().is_some() {
                    self.let_go_on.push(*task);
                }
            }
            Record::Planned { plan } if std::mem::take(&mut self.are_new) => {
                self.planned(plan, before, now_s);
            }
            _ => {}
        }
    }

    fn planned(&mut self, plan: &RunPlan, before: &State, now_s: f64) {
        let has_place = |task: &TaskId| before.open_places().any(|(_, one)| one.task == *task);
        let gets_place = |task: &TaskId| !has_place(task) && plan.places_of(*task).next().is_some();
        let is_for_them = self.is_go_on && self.ever_go_on.iter().any(gets_place);
        let rule = if before.interrupted.is_some() {
            "a ruling brings no plan to a run that stops"
        } else if !self.free_devices && !is_for_them {
            "a ruling brings a plan only to those whom it lets go on"
        } else {
            return;
        };
        let what = format!("at {now_s:.3} s, {:?} go on: {plan:?}", self.let_go_on);
        self.wrong.get_or_insert((rule, what));
    }

    /// `is_turn`: the turn is over.
    pub(super) fn check(&mut self, state: &State, is_turn: bool) -> Result<(), Violation> {
        let let_go_on = std::mem::take(&mut self.let_go_on);
        if let Some((rule, what)) = self.wrong.take() {
            return broken(rule, what);
        }
        if is_turn { check_let_go_on(state, &let_go_on) } else { Ok(()) }
    }
}

/// A task that the stopper lets go on gets a place in the same turn. This holds if a plan is in
/// force and a measured strategy of the task fits a node.
///
/// Trials and inspections may find better strategies; then the rule is not checked.
fn check_let_go_on(state: &State, let_go_on: &[TaskId]) -> Result<(), Violation> {
    let is_looking = state.num_open_trials() > 0
        || state.attempts.values().any(|one| one.purpose != Purpose::Train)
        || state.groups.iter().any(|group| group.inspection.found.is_none());
    if state.plan.is_none() || state.interrupted.is_some() || is_looking {
        return Ok(());
    }
    for id in let_go_on {
        let task = state.task(*id);
        let fits = |key: &TrialKey| {
            state.present_nodes().any(|node| {
                state.gpu_type(node) == key.gpu_type
                    && state.usable_devices(node).count() >= key.strategy.gpus as usize
            })
        };
        let is_allowed = |key: &TrialKey| {
            let range = task.spec.gpu_range.as_ref();
            range.is_none_or(|range| range.contains(&key.strategy.gpus))
                && task.excluded.iter().all(|(excluded, _)| *excluded != key.strategy)
        };
        let has_choice = state.groups[task.group].trials.iter().any(|(key, trial)| {
            let is_measured = matches!(trial.outcome, Some(TrialOutcome::Measured { .. }));
            is_measured && is_allowed(key) && fits(key)
        });
        let may = task.status == TaskStatus::Waiting
            && !task.must_not_train()
            && task.steps.is_some()
            && state.waits_for(*id).next().is_none();
        let has_place = state.open_places().any(|(_, place)| place.task == *id);
        if may && has_choice && !has_place {
            return broken("what may go on has a place", format!("{id:?} has none"));
        }
    }
    Ok(())
}
