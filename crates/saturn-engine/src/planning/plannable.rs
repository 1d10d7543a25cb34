//! For which tasks a plan can have places.
//!
//! They are measured, neither ended nor paused, and wait for no trials. None comes after a task that
//! no plan can have a place for. Which tasks these are depends on the whole state, and to work it out
//! for all tasks takes as long as there are tasks. So it is asked about few tasks where that is
//! enough, and about whole groups first: no waiting task can be planned whose group has no figures,
//! or waits for trials.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::facts::ids::TaskId;
use crate::ledger::by_group::TasksByGroup;
use crate::state::run::State;
use crate::state::vacancies::Vacancies;

/// Tasks that a plan can have a place for, ascending.
pub(crate) fn plannable(state: &State) -> Vec<TaskId> {
    let mut by_themselves = Plannable::of(state);
    let open = state.open_tasks.iter().copied();
    let mut plannable: Vec<TaskId> =
        open.filter(|task| by_themselves.is_by_itself(*task)).collect();
    // A task that comes after a task that can't be planned can't be planned either.
    loop {
        let keeps = |task: &TaskId| {
            state.attempt_of(*task).is_some()
                || state.waits_for(*task).all(|one| plannable.binary_search(&one).is_ok())
        };
        let out: BTreeSet<TaskId> = plannable.iter().copied().filter(|task| !keeps(task)).collect();
        if out.is_empty() {
            return plannable;
        }
        plannable.retain(|task| !out.contains(task));
    }
}

/// Answers for which tasks a plan can have places, as long as the state does not change.
#[derive(Debug)]
pub(crate) struct Plannable<'a> {
    state: &'a State,
    vacancies: OnceCell<Vacancies>,
    /// Whether each group that was asked about waits for trials.
    awaits: BTreeMap<usize, bool>,
}

impl<'a> Plannable<'a> {
    pub(crate) fn of(state: &'a State) -> Self {
        Self { state, vacancies: OnceCell::new(), awaits: BTreeMap::new() }
    }

    /// Whether no waiting task of a group can be planned, whatever its wishes are.
    pub(crate) fn must_wait(&mut self, group: usize) -> bool {
        !self.state.groups[group].lesson.has_figures || self.awaits_trials(group)
    }

    fn awaits_trials(&mut self, group: usize) -> bool {
        let Self { state, vacancies, awaits } = self;
        *awaits.entry(group).or_insert_with(|| state.awaits_trials(group, vacancies))
    }

    /// Whether a plan can have a place for an open task, whatever tasks it comes after.
    pub(crate) fn is_by_itself(&mut self, task: TaskId) -> bool {
        let state = self.state;
        let of_task = state.task(task);
        if of_task.must_not_train() {
            return false;
        }
        state.attempt_of(task).is_some()
            || of_task.steps.is_some() && !self.must_wait(of_task.group) && state.fits_pool(task)
    }

    /// Whether a plan can have a place for a task.
    pub(crate) fn is(&mut self, task: TaskId) -> bool {
        let (mut seen, mut left) = (BTreeSet::from([task]), vec![task]);
        while let Some(task) = left.pop() {
            if self.state.has_ended(task) || !self.is_by_itself(task) {
                return false;
            }
            if self.state.attempt_of(task).is_none() {
                left.extend(self.state.waits_for(task).filter(|before| seen.insert(*before)));
            }
        }
        true
    }

    /// Whether a plan can have a place for one of these tasks, of those that are `such`.
    pub(crate) fn is_any(&mut self, tasks: &TasksByGroup, such: impl Fn(TaskId) -> bool) -> bool {
        tasks.groups().any(|(group, tasks)| self.is_any_of_group(group, tasks, &such))
    }

    /// The same of tasks of a group.
    pub(crate) fn is_any_of_group(
        &mut self,
        group: usize,
        tasks: &BTreeSet<TaskId>,
        such: impl Fn(TaskId) -> bool,
    ) -> bool {
        if !self.must_wait(group) {
            return tasks.iter().any(|task| such(*task) && self.is(*task));
        }
        let state = self.state;
        let mut live = state.attempts_of_group(group).map(|attempt| attempt.task);
        live.any(|task| tasks.contains(&task) && such(task) && self.is(task))
    }
}
