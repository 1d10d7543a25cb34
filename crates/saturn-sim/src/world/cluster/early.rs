//! Functions that need what an earlier task makes, and raise if they are called before it is done.

use std::collections::{BTreeMap, BTreeSet};

use saturn_engine::{AttemptId, FailureKind, TaskId, TaskSpec};

use crate::world::cluster::World;
use crate::world::faults::Fault;
use crate::world::gang::Phase;

/// Which tasks' functions need the outputs of others, and which outputs there are.
#[derive(Debug, Default)]
pub(crate) struct Early {
    /// Tasks that need the outputs of the tasks that they come after, by name.
    pub(crate) names: BTreeSet<String>,
    /// The tasks whose outputs each of these tasks needs, as it was submitted: a person may change
    /// the order later, not the functions.
    needs: BTreeMap<TaskId, Vec<TaskId>>,
    finished: BTreeSet<TaskId>,
}

impl Early {
    /// A task came.
    pub(super) fn note(&mut self, task: TaskId, spec: &TaskSpec) {
        if self.names.contains(&spec.name) {
            self.needs.insert(task, spec.wishes.after.clone());
        }
    }

    /// A task has done all its steps, so its output is there.
    pub(super) fn finished(&mut self, task: TaskId) {
        self.finished.insert(task);
    }

    /// Whether a task's functions would raise now.
    pub(super) fn lacks_output(&self, task: TaskId) -> bool {
        let needs = self.needs.get(&task);
        needs.is_some_and(|needs| needs.iter().any(|one| !self.finished.contains(one)))
    }
}

impl World {
    /// A gang's ranks call their task's functions, which raise if an output is lacking. This happens
    /// after the trouble is over, too.
    pub(super) fn called_early(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        let is_over = matches!(gang.phase, Phase::Closing | Phase::Still);
        if is_over || !self.early.lacks_output(gang.order.task) {
            return;
        }
        gang.phase = Phase::Still;
        gang.turn += 1;
        self.hit(Fault::CalledEarly);
        self.says_failed(attempt, 0, FailureKind::Task);
    }
}
