//! Whether the solver was asked about the tasks as they are now.
//!
//! A run has news all the time, and most of it changes no planning problem. To compare all tasks with
//! the last problem at each piece of news would take as long as there are tasks. So only tasks and
//! groups about which something has changed are compared with it, and tasks that could not be planned
//! then are looked at by their groups.

use std::collections::BTreeSet;

use crate::facts::ids::TaskId;
use crate::ledger::agenda::PlanningNews;
use crate::ledger::by_group::TasksByGroup;
use crate::planning::fingerprint::Fingerprint;
use crate::planning::plannable::{Plannable, plannable};
use crate::state::run::State;

/// What the solver was last asked about, and what is not so any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    /// `None` before the first problem.
    about: Option<Fingerprint>,
    /// Open tasks that the last problem did not have as they are now.
    tasks: TasksByGroup,
    /// Groups of the last problem of which other strategies are known now.
    groups: BTreeSet<usize>,
}

impl Asked {
    /// Takes in about which tasks and groups something has changed.
    pub(crate) fn take_in(&mut self, state: &State, news: &mut PlanningNews) {
        for task in std::mem::take(&mut news.tasks) {
            let has_asked = |asked: &Fingerprint| asked.has_task(state, task);
            if state.has_ended(task) || self.about.as_ref().is_some_and(has_asked) {
                self.tasks.remove(state, task);
            } else {
                self.tasks.add(state, task);
            }
        }
        for group in std::mem::take(&mut news.groups) {
            if self.about.as_ref().is_some_and(|asked| asked.is_group_other(state, group)) {
                self.groups.insert(group);
            } else {
                self.groups.remove(&group);
            }
        }
    }

    /// The solver is asked about these tasks.
    pub(crate) fn ask(&mut self, state: &State, tasks: &[TaskId], num_arrivals: u64) {
        self.about = Some(Fingerprint::of(state, tasks, num_arrivals));
        self.tasks.forget();
        self.groups.clear();
        let mut asked = tasks.iter().peekable();
        for task in &state.open_tasks {
            if asked.next_if_eq(&task).is_none() {
                self.tasks.add(state, *task);
            }
        }
    }

    /// Whether a task can be planned that the solver was not asked about as the task is now.
    pub(crate) fn lacks_task(&self, plannable: &mut Plannable<'_>, state: &State) -> bool {
        let mut groups = self.groups.iter();
        plannable.is_any(&self.tasks, |_| true)
            || groups.any(|group| {
                let tasks = state.groups[*group].tasks.iter().copied().collect();
                plannable.is_any_of_group(*group, &tasks, |_| true)
            })
    }

    /// Whether devices have come into use since that may better a plan. `true` before the first
    /// problem.
    pub(crate) fn lacks_devices(&self, num_arrivals: u64) -> bool {
        self.about.as_ref().is_none_or(|asked| asked.num_arrivals != num_arrivals)
    }

    /// Whether the answers are those that a look at all tasks finds. For tests.
    pub(crate) fn is_kept_up(&self, state: &State, news: &PlanningNews) -> bool {
        let (mut asked, mut news) = (self.clone(), news.clone());
        asked.take_in(state, &mut news);
        let about = Fingerprint::of(state, &plannable(state), news.num_arrivals);
        let is_known = self.about.as_ref().is_some_and(|asked| about.is_answered_by(asked));
        let mut find = Plannable::of(state);
        let lacks_devices = asked.lacks_devices(news.num_arrivals);
        is_known != (asked.lacks_task(&mut find, state) || lacks_devices)
    }
}
