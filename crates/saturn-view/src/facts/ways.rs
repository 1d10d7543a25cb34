//! The strategy and devices of a task, and the places of the plan that are not over.

use std::collections::BTreeMap;

use saturn_core::{Gang, Strategy};
use saturn_engine::{Place, State, TaskId};

use crate::facts::history::History;

/// The strategy and devices of a task: now, or else by its next place, or else in its last attempt.
pub(crate) fn way_of<'a>(
    state: &'a State,
    history: &'a History,
    next: Option<&'a Place>,
    task: TaskId,
) -> Option<(&'a Strategy, &'a Gang)> {
    if let Some((_, live)) = state.attempt_of(task) {
        return Some((&live.strategy, &live.gang));
    }
    let next = next.filter(|_| !state.has_ended(task));
    let last = || history.training(task).next_back();
    next.map(|place| (place.strategy.as_ref(), place.gang.as_ref()))
        .or_else(|| last().map(|(_, last)| (&last.strategy, &last.gang)))
}

/// Each task's first place in the plan in force that is not over.
pub(crate) fn next_places(state: &State) -> BTreeMap<TaskId, &Place> {
    let mut next = BTreeMap::new();
    for (_, place) in state.open_places() {
        next.entry(place.task).or_insert(place);
    }
    next
}
