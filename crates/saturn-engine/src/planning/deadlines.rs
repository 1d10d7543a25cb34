//! Deadlines that a plan need not keep, since none could be found that keeps them.
//!
//! A plan keeps deadlines if any plan can. If the solver finds none that keeps all, the problem
//! leaves out as few as can be told: first the deadlines that a task would miss even if it started
//! at once on the best devices; then those that are missed if the plan in force is followed; then
//! all. A soft deadline is never left out, only the limit to how far it may be missed. The other
//! deadlines stay, for the solver and for the choice between plans. What is left out
//! is looked at anew once one of these deadlines has passed, when the problem is another, and at
//! every interval.

use std::collections::BTreeSet;

use crate::facts::ids::TaskId;
use crate::forecast::follow::follow;
use crate::planning::extend::extended;
use crate::planning::problem::Remaining;
use crate::state::run::State;

/// The tasks whose deadlines are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeftOut(BTreeSet<TaskId>);

impl LeftOut {
    pub(crate) fn leaves_out(&self, task: TaskId) -> bool {
        self.0.contains(&task)
    }

    /// Leaves out more deadlines, after a solve that gave no plan for `asked`. Returns whether there
    /// were any.
    pub(crate) fn leave_out_more(&mut self, state: &State, asked: &Remaining, now_s: f64) -> bool {
        let before = self.0.len();
        let due = || asked.due.iter().filter(|due| !self.0.contains(&due.task));
        let mut more: BTreeSet<TaskId> =
            due().filter(|due| due.is_impossible).map(|due| due.task).collect();
        if more.is_empty() {
            let tasks: Vec<TaskId> = asked.tasks.iter().map(|task| task.id).collect();
            let open = state.open_places().map(|(_, place)| place.clone()).collect();
            let standing = follow(state, &extended(state, open, &tasks, now_s), now_s);
            let is_late =
                |task: TaskId| standing.lateness_s(state, &asked.stakes, task, now_s) > 0.0;
            more = due().map(|due| due.task).filter(|task| is_late(*task)).collect();
        }
        if more.is_empty() {
            more = due().map(|due| due.task).collect();
        }
        self.0.extend(more);
        self.0.len() > before
    }

    /// The next time at which one of these deadlines passes, seconds.
    pub(crate) fn passes_s(&self, state: &State) -> Option<f64> {
        let deadlines = self.0.iter().filter_map(|task| state.task(*task).spec.wishes.latest_s());
        deadlines.min_by(f64::total_cmp)
    }

    /// Keeps all deadlines again.
    pub(crate) fn keep_all_again(&mut self) {
        self.0.clear();
    }
}
