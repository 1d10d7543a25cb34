//! Why a device stands idle, by the state of the run at that moment.
//!
//! If several causes hold, the one that comes first in [`CAUSES`] is told: the nearer a task was to
//! using the device, the earlier its cause comes.

use std::collections::BTreeMap;

use saturn_engine::{
    Attempt, DeviceId, Mode, NodeId, Place, Purpose, State, TaskId, TaskStatus, TrialState, devices,
};

use crate::facts::device_use::DeviceUse;

/// Causes that concern all devices of a type, most decisive first.
const CAUSES: [DeviceUse; 13] = [
    DeviceUse::WaitsPlan,
    DeviceUse::WaitsTrial,
    DeviceUse::WaitsInspection,
    DeviceUse::PlannedElsewhere,
    DeviceUse::WaitsQuota,
    DeviceUse::CouldWiden,
    DeviceUse::WaitsPredecessor,
    DeviceUse::WaitsTime,
    DeviceUse::Held,
    DeviceUse::Paused,
    DeviceUse::NoFit,
    DeviceUse::AllTrain,
    DeviceUse::NothingLeft,
];
/// Of very many tasks the first so many are looked at: a long queue is mostly alike.
const MOST_TASKS: usize = 200;
/// A wider strategy is faster if its steps take less than this share of the present time.
const FASTER: f64 = 0.95;

/// The causes at one moment.
pub(super) struct IdleCauses<'a> {
    state: &'a State,
    /// For each type of device, and whether a task on the device's node could be wider.
    of_types: BTreeMap<(&'a str, bool), DeviceUse>,
    /// For each node, whether a task that trains there would be faster on the node's free devices too.
    could_widen: BTreeMap<NodeId, bool>,
}

impl<'a> IdleCauses<'a> {
    /// The causes in this state.
    pub(super) fn of(state: &'a State) -> Self {
        Self { state, of_types: BTreeMap::new(), could_widen: BTreeMap::new() }
    }

    /// Why a device of the pool that is usable and free stands idle.
    pub(super) fn of_device(&mut self, device: DeviceId) -> DeviceUse {
        let state = self.state;
        if state.interrupted.is_some() || state.ended.is_some() {
            return DeviceUse::Stopping;
        }
        if let Some(place) = state.next_place_on(device) {
            return self.at_place(place);
        }
        let node = device.node;
        let could_widen =
            *self.could_widen.entry(node).or_insert_with(|| could_widen_on(state, node));
        let gpu_type = state.gpu_type(node);
        let of_type = self.of_types.entry((gpu_type, could_widen));
        *of_type.or_insert_with(|| of_type_in(state, gpu_type, could_widen))
    }

    /// Why the next place of an idle device does not begin.
    fn at_place(&self, place: &Place) -> DeviceUse {
        let state = self.state;
        if state.task(place.task).status != TaskStatus::Waiting {
            return DeviceUse::Kept;
        }
        if let Some(cause) = kept_from_training(state, place.task) {
            return cause;
        }
        let is_ready = |device: DeviceId| {
            let next = state.next_place_on(device);
            state.is_free(device) && next.is_some_and(|next| next.task == place.task)
        };
        if !devices(&place.gang).all(is_ready) {
            DeviceUse::Kept
        } else if !state.may_hold_gang(place.task, &place.gang) {
            DeviceUse::WaitsQuota
        } else if state.num_open_trials() > 0 {
            DeviceUse::WaitsTrial
        } else if limits_host_memory(state) {
            DeviceUse::WaitsHostMemory
        } else {
            DeviceUse::WaitsPlan
        }
    }
}

/// Whether attempts may have to wait for host memory.
fn limits_host_memory(state: &State) -> bool {
    let policy = &state.config.policy;
    policy.host_memory_bytes.is_some() || !policy.host_memory_by_node.is_empty()
}

/// Whether a task that trains on a node would be faster if it had free devices of the node too.
fn could_widen_on(state: &State, node: NodeId) -> bool {
    let Some(of) = state.nodes.get(node.0) else { return false };
    let ids = (0u32..).take(of.devices.len()).map(|device| DeviceId { node, device });
    let num_free = ids.filter(|id| state.is_free(*id)).count();
    let mut holders: Vec<_> = of.devices.iter().filter_map(|device| device.held_by).collect();
    holders.dedup();
    let attempts = holders.iter().filter_map(|id| state.attempts.get(id));
    let mut training = attempts.filter(|one| one.purpose == Purpose::Train && one.gang.len() == 1);
    training.any(|one| {
        let wider = width_that_is_faster(state, one);
        wider.is_some_and(|gpus| gpus as usize <= one.strategy.gpus as usize + num_free)
    })
}

/// The fewest devices, beyond those that an attempt has, on which a measured strategy is faster.
fn width_that_is_faster(state: &State, attempt: &Attempt) -> Option<u32> {
    let gpu_type = state.gang_type(&attempt.gang);
    let task = state.task(attempt.task);
    let trials = &state.group_of(attempt.task).trials;
    let step_s = |trial: &TrialState| trial.trained_step_s.or_else(|| trial.measured_step_s());
    let now_s = state.trial_of(attempt.task, &attempt.strategy, gpu_type).and_then(step_s)?;
    let wider = trials.iter().filter(|(key, trial)| {
        key.gpu_type == gpu_type
            && key.strategy.gpus > attempt.strategy.gpus
            && task.spec.allows_key(&key.strategy)
            && state.may_hold_more(attempt.task, key.strategy.gpus - attempt.strategy.gpus)
            && !task.excluded.iter().any(|(excluded, _)| *excluded == key.strategy)
            && step_s(trial).is_some_and(|step_s| step_s < FASTER * now_s)
    });
    wider.map(|(key, _)| key.strategy.gpus).min()
}

/// Why a task may not start, whatever devices there are.
fn kept_from_training(state: &State, id: TaskId) -> Option<DeviceUse> {
    let task = state.task(id);
    let is_later = task.not_before_s.max(task.spec.wishes.release_s) > state.now_s;
    if task.is_paused || task.is_owner_away {
        Some(DeviceUse::Paused)
    } else if task.judged.is_some() {
        Some(DeviceUse::Held)
    } else if state.waits_for(id).next().is_some() {
        Some(DeviceUse::WaitsPredecessor)
    } else if is_later || state.no_space(id).is_some() {
        Some(DeviceUse::WaitsTime)
    } else {
        None
    }
}

/// Why devices of a type stand idle that the plan has nothing for.
fn of_type_in(state: &State, gpu_type: &str, could_widen: bool) -> DeviceUse {
    let has_open_trial = || state.open_trials().any(|(_, key)| key.gpu_type == gpu_type);
    let least = if has_open_trial() { DeviceUse::WaitsTrial } else { DeviceUse::NothingLeft };
    let least = if could_widen { nearer(least, DeviceUse::CouldWiden) } else { least };
    if state.config.mode == Mode::Search {
        let inspects = state.attempts.values().any(|one| one.purpose == Purpose::Inspection);
        let is_due = inspects || state.num_to_inspect() > 0;
        return if is_due { nearer(least, DeviceUse::WaitsInspection) } else { least };
    }
    let causes = state.tasks_left().take(MOST_TASKS).map(|task| of_task(state, task, gpu_type));
    let mut found = least;
    for cause in causes {
        found = nearer(found, cause);
        if found == CAUSES[0] {
            break;
        }
    }
    found
}

/// Why a task that has not ended does not use an idle device of a type that the plan has nothing for.
fn of_task(state: &State, id: TaskId, gpu_type: &str) -> DeviceUse {
    let task = state.task(id);
    if task.status != TaskStatus::Waiting {
        return DeviceUse::AllTrain;
    }
    if let Some(cause) = kept_from_training(state, id) {
        return cause;
    }
    let group = state.group_of(id);
    if !state.may_hold_more(id, 1) {
        return DeviceUse::WaitsQuota;
    }
    if !state.is_measured(id) {
        let is_inspected = group.inspection.attempt.is_some() || state.is_to_inspect(task.group);
        return if is_inspected { DeviceUse::WaitsInspection } else { DeviceUse::WaitsTrial };
    }
    let mut trials = group.trials.iter();
    if !trials.any(|(key, one)| key.gpu_type == gpu_type && one.is_known()) {
        DeviceUse::NoFit
    } else if state.has_place(id) {
        DeviceUse::PlannedElsewhere
    } else {
        DeviceUse::WaitsPlan
    }
}

/// The more decisive of two causes.
fn nearer(one: DeviceUse, other: DeviceUse) -> DeviceUse {
    let rank = |cause: DeviceUse| CAUSES.iter().position(|each| *each == cause);
    if rank(other) < rank(one) { other } else { one }
}
