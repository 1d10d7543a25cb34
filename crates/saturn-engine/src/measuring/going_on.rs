//! Trials that go on as training, so that no step of a trial is wasted.
//!
//! Training is the same under every technique, so a trial's steps can be its task's first steps. A
//! trial that took the task's own steps reports their number with its outcome, and waits for an
//! answer. The trial goes on as training under three conditions. Its task still waits and could
//! start now. No other trial waits, or could wait, for its devices. The plan in force puts no other
//! task on its devices. Until the answer comes it counts as a trial: it fails as a trial, and plans
//! count on its devices.
//!
//! The next plan decides whether the task trains in the right place.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use saturn_core::{Gang, StrategyKey, TrialOutcome};

use crate::facts::event::Action;
use crate::facts::ids::{AttemptId, NodeId, TaskId, devices};
use crate::facts::record::Record;
use crate::following::host_memory::HostMemoryQueue;
use crate::ledger::book::Ledger;
use crate::planning::adopting::adopt_extended;
use crate::state::attempt::Attempt;
use crate::state::run::State;
use crate::state::task::TaskStatus;
use crate::state::trial::TrialKey;

/// The task whose functions a trial runs: a task that could go on from the trial, else the first of
/// the group. No task is tried under a strategy that is excluded for it.
pub(crate) fn trial_task(
    state: &State,
    group: usize,
    key: &StrategyKey,
    now_s: f64,
) -> Option<TaskId> {
    if !state.chooses_trials() {
        return state.representative_for(group, key);
    }
    let start_s = |task: TaskId| {
        let places = state.plan.as_ref().map_or(&[][..], |plan| &plan.places);
        state.place_of(task).map_or(f64::INFINITY, |index| places[index].start_s)
    };
    // The task that would wait longest; of several the first.
    tasks_to_try(state, group, key, now_s)
        .rev()
        .max_by(|a, b| start_s(*a).total_cmp(&start_s(*b)))
        .or_else(|| state.representative_for(group, key))
}

/// Whether there is a task for a trial. That takes far less time than to choose the task.
pub(crate) fn has_trial_task(state: &State, group: usize, key: &StrategyKey, now_s: f64) -> bool {
    state.chooses_trials() && tasks_to_try(state, group, key, now_s).next().is_some()
        || state.representative_for(group, key).is_some()
}

/// The tasks of a group that could train under a strategy now, and that no trial is run for.
fn tasks_to_try(
    state: &State,
    group: usize,
    key: &StrategyKey,
    now_s: f64,
) -> impl DoubleEndedIterator<Item = TaskId> {
    let trials = state.groups[group].trials.values().filter_map(|one| one.attempt);
    let tried: BTreeSet<TaskId> =
        trials.filter_map(|id| state.attempts.get(&id)).map(|one| one.task).collect();
    let tasks = state.groups[group].tasks.iter().copied();
    tasks
        .filter(move |task| may_begin(state, *task, now_s) && !tried.contains(task))
        .filter(|task| state.task(*task).spec.allows_key(key))
        .filter(|task| !state.task(*task).excludes_key(key))
        .filter(|task| state.may_hold_more(*task, key.gpus))
}

/// Tells a measured trial whether it goes on as training from the step that it has come to.
pub(crate) fn let_go_on(
    ledger: &mut Ledger,
    host_memory: &HostMemoryQueue,
    id: AttemptId,
    step: u64,
    now_s: f64,
) {
    if ledger.state.attempts.get(&id).is_none_or(Attempt::is_dying) {
        return; // It was killed after it had said this.
    }
    let Some(steps) = steps_to_go_on_for(ledger, host_memory, id, step, now_s) else {
        ledger.act(Action::Stop { attempt: id });
        return;
    };
    let task = ledger.state.attempts[&id].task;
    ledger.commit(Record::WentOn { attempt: id, step }, now_s);
    ledger.act(Action::GoOn { attempt: id, steps });
    if ledger.state.plan.is_none() {
        return;
    }
    // The task's place is now where it trains, and tasks that waited for it elsewhere need not
    // wait.
    let open = ledger.state.open_places().map(|(_, place)| place.clone());
    let others = open.filter(|place| place.task != task).collect();
    adopt_extended(ledger, others, now_s);
}

/// The steps that a trial's task has in all; `None` where the trial is not to go on.
fn steps_to_go_on_for(
    ledger: &mut Ledger,
    host_memory: &HostMemoryQueue,
    id: AttemptId,
    step: u64,
    now_s: f64,
) -> Option<u64> {
    let state = &ledger.state;
    let attempt = state.attempts.get(&id)?;
    let (task, gang) = (attempt.task, attempt.gang.clone());
    let steps = state.task(task).steps.filter(|steps| step < *steps)?;
    let gpu_type = state.gang_type(&attempt.gang);
    let key = TrialKey { strategy: attempt.strategy.key(), gpu_type: gpu_type.to_owned() };
    let trial = state.group_of(task).trial(&attempt.strategy, gpu_type)?;
    let may = state.chooses_trials()
        && state.interrupted.is_none()
        && attempt.stopping.is_none()
        && !attempt.is_dying()
        && matches!(trial.outcome, Some(TrialOutcome::Measured { .. }))
        && may_begin(state, task, now_s)
        // The trial's steps follow the steps that the task has done, including steps that an
        // attempt has saved without reporting them.
        && attempt.step == state.task(task).checkpoint_step
        && attempt.launched_s >= state.task(task).trained_until_s
        && state.may_run(task, &key)
        && !awaits_devices_of(state, &gang);
    if !may || host_memory.is_kept_on(&gang) {
        return None;
    }
    let Ledger { queues, state, .. } = ledger;
    let places = state.plan.as_ref().map_or(&[][..], |plan| &plan.places);
    let is_clear = devices(&gang)
        .all(|device| queues.front(state, device).is_none_or(|index| places[index].task == task));
    is_clear.then_some(steps)
}

/// Whether nothing but devices and a plan keeps a task from starting.
pub(crate) fn may_begin(state: &State, id: TaskId, now_s: f64) -> bool {
    let task = state.task(id);
    task.status == TaskStatus::Waiting
        && !task.must_not_train()
        && task.not_before_s.max(task.spec.wishes.release_s) <= now_s
        && state.waits_for(id).next().is_none()
}

/// Whether an open trial could run on devices of a gang. The trial must be for their type. It must
/// be no wider than one of the gang's nodes, or wider than every node.
fn awaits_devices_of(state: &State, gang: &Gang) -> bool {
    let gpu_type = state.gang_type(gang);
    let nodes = || gang.iter().map(|part| state.usable_devices(NodeId(part.node)).count());
    state.open_trials.keys().any(|(of_type, Reverse(gpus))| {
        let is_wide = state.is_wide(gpu_type, *gpus);
        of_type == gpu_type && (is_wide || nodes().any(|num| num >= *gpus as usize))
    })
}
