//! The strategies that each task could have. Tasks with equal strategies share an entry, as a sweep
//! has many tasks that differ only in a learning rate.

use std::collections::BTreeMap;

use saturn_engine::{State, TaskId};

use crate::explain::candidates;
use crate::facts::history::History;
use crate::facts::ways::{next_places, way_of};
use crate::report::data::ChoiceReport;

/// The choices of all tasks. Entries are in the order of their first tasks.
pub(super) fn of(state: &State, history: &History) -> Vec<ChoiceReport> {
    let next = next_places(state);
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    let mut choices: Vec<ChoiceReport> = Vec::new();
    for id in state.task_ids() {
        let task = state.task(id);
        let way = way_of(state, history, next.get(&id).copied(), id)
            .map(|(strategy, gang)| (strategy.key(), state.gang_type(gang)));
        // A task that has begun and not ended has its own remaining steps, so it shares no entry.
        let has_begun = task.step > 0 || state.attempt_of(id).is_some();
        let begun = (has_begun && !state.has_ended(id)).then_some(id);
        let spec = &task.spec;
        let limits = (&spec.gpu_range, &spec.allowed, &spec.evaluation, &task.excluded);
        let kind =
            format!("{:?}", (task.group, task.steps, state.has_ended(id), begun, way, limits));
        if let Some(index) = alike.get(&kind) {
            choices[*index].tasks.push(id.0);
        } else {
            alike.insert(kind, choices.len());
            choices.push(choice(state, history, id));
        }
    }
    choices.retain(|one| !one.candidates.is_empty());
    choices
}

fn choice(state: &State, history: &History, task: TaskId) -> ChoiceReport {
    let candidates = candidates::of(state, history, task, state.now_s);
    ChoiceReport { tasks: vec![task.0], candidates }
}
