//! Tasks by their groups: most questions about tasks that wait are answered for a whole group.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::ids::TaskId;
use crate::state::run::State;

/// Some tasks of a run, by their groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TasksByGroup(BTreeMap<usize, BTreeSet<TaskId>>);

impl TasksByGroup {
    pub(crate) fn add(&mut self, state: &State, task: TaskId) {
        self.0.entry(state.task(task).group).or_default().insert(task);
    }

    pub(crate) fn remove(&mut self, state: &State, task: TaskId) {
        let group = state.task(task).group;
        if let Some(tasks) = self.0.get_mut(&group) {
            tasks.remove(&task);
            if tasks.is_empty() {
                self.0.remove(&group);
            }
        }
    }

    pub(crate) fn has(&self, state: &State, task: TaskId) -> bool {
        self.0.get(&state.task(task).group).is_some_and(|tasks| tasks.contains(&task))
    }

    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// The groups of these tasks, indices into `State::groups`, each with the tasks of it.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (usize, &BTreeSet<TaskId>)> {
        self.0.iter().map(|(group, tasks)| (*group, tasks))
    }
}
