//! Runs whose tasks need more devices than there are, where no others will come.
//!
//! A task that was measured, or trained, on a larger machine may find itself on a smaller one when its
//! run is resumed. On a cluster it waits for a node. On one machine nothing would ever happen again: the
//! run ends as one that was stopped, so that nothing is lost, and says what it needs.

use std::collections::BTreeSet;

use crate::facts::ids::TaskId;
use crate::facts::record::Record;
use crate::ledger::book::Ledger;
use crate::state::run::State;
use crate::state::task::TaskStatus;

/// Whether nothing that is left can ever run here; then what it needs has been noted.
///
/// Nothing runs, and no more tasks come.
pub(crate) fn is_stuck(ledger: &mut Ledger, now_s: f64) -> bool {
    let Some(stuck) = ledger.state.stuck_tasks() else { return false };
    for (task, text) in stuck {
        ledger.commit(Record::Noted { task: Some(task), text }, now_s);
    }
    true
}

impl State {
    /// The tasks that need more devices than there will ever be, with what they need, where each task
    /// that is left is one of them or comes after one.
    fn stuck_tasks(&self) -> Option<Vec<(TaskId, String)>> {
        if self.config.policy.pool_may_grow {
            return None;
        }
        let mut stuck = Vec::new();
        for task in &self.open_tasks {
            if self.waits_for(*task).next().is_none() {
                stuck.push((*task, self.needs(*task)?));
            }
        }
        Some(stuck).filter(|stuck| !stuck.is_empty())
    }

    /// What a task that can be trained needs and this pool does not have; `None` where it may run here, or
    /// it is not known yet what it may run under.
    fn needs(&self, id: TaskId) -> Option<String> {
        let task = self.task(id);
        let is_known = task.status == TaskStatus::Waiting
            && !task.is_paused
            && task.judged.is_none()
            && !self.is_to_inspect(task.group)
            && !self.open_trials().any(|(group, _)| group == task.group);
        if !is_known || self.fits_pool_of_types(id) {
            return None;
        }
        let needs: BTreeSet<(u32, &str)> =
            self.choices(id).map(|choice| (choice.trial.strategy.gpus, choice.gpu_type)).collect();
        if needs.is_empty() {
            return None;
        }
        let needs: Vec<String> =
            needs.iter().map(|(gpus, gpu_type)| format!("{gpus} of type {gpu_type}")).collect();
        let needs = needs.join(", or ");
        Some(format!("needs more devices than there are here ({needs}): resume it where they are"))
    }
}
