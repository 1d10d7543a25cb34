//! The inputs of a planning problem. A change of the state that leaves all of them unchanged is no
//! reason to solve again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::facts::config::Wishes;
use crate::facts::ids::TaskId;
use crate::state::run::State;
use crate::state::trial::TrialKey;

/// The tasks with their strategies and wishes, and the pool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fingerprint {
    /// Ascending, each with its group, and how many strategies are excluded for it.
    tasks: Vec<(TaskId, (usize, usize, Wishes))>,
    /// The measured strategies of each group.
    groups: BTreeMap<usize, Vec<Arc<TrialKey>>>,
    /// How often devices had come into use that may better a plan.
    pub(crate) num_arrivals: u64,
}

impl Fingerprint {
    pub(crate) fn of(state: &State, tasks: &[TaskId], num_arrivals: u64) -> Self {
        let about = |task: &TaskId| {
            let of_task = state.task(*task);
            (*task, (of_task.group, of_task.excluded.len(), of_task.spec.wishes.clone()))
        };
        let tasks: Vec<_> = tasks.iter().map(about).collect();
        let measured = |group: usize| (group, measured(state, group).cloned().collect());
        let groups: BTreeSet<usize> = tasks.iter().map(|(_, (group, ..))| *group).collect();
        Self { tasks, groups: groups.into_iter().map(measured).collect(), num_arrivals }
    }

    /// Whether it has a task as the task is now.
    pub(crate) fn has_task(&self, state: &State, task: TaskId) -> bool {
        let of_task = state.task(task);
        self.of_task(task).is_some_and(|(group, num_excluded, wishes)| {
            *group == of_task.group
                && *num_excluded == of_task.excluded.len()
                && *wishes == of_task.spec.wishes
        })
    }

    /// Whether it has tasks of a group, of which other strategies are measured now.
    pub(crate) fn is_group_other(&self, state: &State, group: usize) -> bool {
        self.groups.get(&group).is_some_and(|keys| !keys.iter().eq(measured(state, group)))
    }

    fn of_task(&self, task: TaskId) -> Option<&(usize, usize, Wishes)> {
        let index = self.tasks.binary_search_by_key(&task, |(one, _)| *one).ok()?;
        Some(&self.tasks[index].1)
    }

    /// Whether `asked` asked the same, except for tasks that have ended since and devices that have
    /// gone. An end or a lost device concerns only the tasks that have lost their places by it.
    /// Such tasks are a reason of their own to ask.
    pub(crate) fn is_answered_by(&self, asked: &Self) -> bool {
        self.num_arrivals == asked.num_arrivals
            && self.tasks.iter().all(|(task, about)| asked.of_task(*task) == Some(about))
            && self.groups.iter().all(|(group, about)| asked.groups.get(group) == Some(about))
    }
}

/// The measured strategies of a group.
fn measured(state: &State, group: usize) -> impl Iterator<Item = &Arc<TrialKey>> {
    let trials = state.groups[group].trials.iter();
    trials.filter(|(_, trial)| trial.is_known()).map(|(key, _)| key)
}
