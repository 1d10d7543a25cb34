//! Which places of the solver's answer can't be followed, because the state has changed since it
//! was asked for.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::ids::TaskId;
use crate::facts::plan::Place;
use crate::state::places::is_over;
use crate::state::run::State;

/// Tasks with a place that can't be followed: the task is paused, the strategy is excluded, or
/// devices of the place can't be used.
pub(crate) fn stale(state: &State, places: &[Place]) -> BTreeSet<TaskId> {
    let open = places.iter().filter(|place| !is_over(state, place));
    let is_stale = |place: &&Place| {
        let task = state.task(place.task);
        task.must_not_train() || task.excludes(&place.strategy) || !state.can_hold(&place.gang)
    };
    open.filter(is_stale).map(|place| place.task).collect()
}

/// Waiting tasks that have a place before the last place of a task that they must come after. On
/// one device, each of the two tasks would wait for the other. A task that comes after a task
/// without a place is among them.
pub(crate) fn too_early(state: &State, places: &[Place]) -> BTreeSet<TaskId> {
    let mut too_early = BTreeSet::new();
    if !places.iter().any(|place| state.waits_for(place.task).next().is_some()) {
        return too_early;
    }
    let mut last: BTreeMap<TaskId, usize> = BTreeMap::new();
    for (index, place) in places.iter().enumerate() {
        last.insert(place.task, index);
    }
    // A place that is too early makes only places behind it too early, so one pass is enough.
    for (index, place) in places.iter().enumerate() {
        if state.attempt_of(place.task).is_some() || is_over(state, place) {
            continue;
        }
        let is_early = |before: TaskId| {
            too_early.contains(&before) || last.get(&before).is_none_or(|last| *last > index)
        };
        if state.waits_for(place.task).any(is_early) {
            too_early.insert(place.task);
        }
    }
    too_early
}
