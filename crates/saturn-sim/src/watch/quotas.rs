//! Tasks that wait since their owners hold as many devices as they may.

use saturn_engine::{State, TaskId, devices};

/// Whether a task's owner would hold more devices than the quota with so many more.
pub(super) fn is_beyond(state: &State, task: TaskId, gpus: usize) -> bool {
    let Some(sharing) = &state.config.policy.sharing else { return false };
    let owner = &state.task(task).spec.owner;
    let login = owner.as_ref().map_or(&sharing.host, |owner| &owner.name);
    let Some(quota) = sharing.quotas.get(login) else { return false };
    let own = state.attempts.values().filter(|one| state.task(one.task).spec.owner == *owner);
    let held = own.map(|one| devices(&one.gang).count()).sum::<usize>();
    held + gpus > *quota as usize
}
