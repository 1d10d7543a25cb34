//! Runs whose tasks need more devices than there will ever be.
//!
//! A task that was measured or trained on a larger machine may be on a smaller one when its run is
//! resumed. On a cluster it waits for a node. On a single machine nothing would ever happen again,
//! so the run ends as a stopped run, loses nothing, and says what it needs.

use crate::facts::ids::TaskId;
use crate::facts::record::Record;
use crate::ledger::book::Ledger;
use crate::state::run::State;

/// Whether none of the tasks that are left can ever run here. If so, notes say what they need.
///
/// Called when nothing runs and no more tasks come.
pub(crate) fn is_stuck(ledger: &mut Ledger, now_s: f64) -> bool {
    let Some(stuck) = stuck_tasks(&ledger.state) else { return false };
    for (task, text) in stuck {
        ledger.commit(Record::Noted { task: Some(task), text }, now_s);
    }
    true
}

/// The tasks that need more devices than there will ever be, with what they need. `None` if a
/// task is left that neither is such a task nor comes after one.
fn stuck_tasks(state: &State) -> Option<Vec<(TaskId, String)>> {
    if state.config.policy.pool_may_grow {
        return None;
    }
    let mut stuck = Vec::new();
    for task in &state.open_tasks {
        if state.waits_for(*task).next().is_none() {
            stuck.push((*task, needs(state, *task)?));
        }
    }
    Some(stuck).filter(|stuck| !stuck.is_empty())
}

/// What a task needs that this pool does not have. `None` if the task may run here, or is not to
/// train now.
fn needs(state: &State, id: TaskId) -> Option<String> {
    let needs = state.lacking_devices(id).filter(|_| !state.task(id).must_not_train())?;
    Some(format!("needs more devices than the pool has ({needs}): resume the run on a larger pool"))
}
