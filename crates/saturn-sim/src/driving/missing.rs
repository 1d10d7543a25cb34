//! Nodes that a run waits for. A task that was measured on a wide node, and can't run on narrower
//! nodes, waits if no wide node is left.

use saturn_core::{Node, TrialOutcome};
use saturn_engine::{State, TaskId, TaskStatus};

/// The node that the first waiting task needs; `None` if a present node fits one of its measured
/// strategies. For a task without measured strategies, the strategies that are to be tried count.
///
/// The answer is computed here, from trials and nodes. The engine's own answer, `State::fits_pool`,
/// is not asked: if it were wrong, the arriving node would hide the fault.
pub(crate) fn missing_node(state: &State) -> Option<Node> {
    state.task_ids().find_map(|task| missing_for(state, task))
}

fn missing_for(state: &State, id: TaskId) -> Option<Node> {
    let task = state.task(id);
    if task.status != TaskStatus::Waiting {
        return None;
    }
    let is_measured =
        |outcome: &Option<TrialOutcome>| matches!(outcome, Some(TrialOutcome::Measured { .. }));
    let of_kind = |is_such: &dyn Fn(&Option<TrialOutcome>) -> bool| {
        let trials = state.groups[task.group].trials.iter();
        let may_run = trials.filter(|(key, trial)| {
            let is_excluded = task.excluded.iter().any(|(excluded, _)| *excluded == key.strategy);
            is_such(&trial.outcome)
                && !is_excluded
                && task.spec.allows_key(&key.strategy)
                && state.may_hold(id, key.strategy.gpus)
        });
        may_run.map(|(key, _)| (key.strategy.gpus, &key.gpu_type)).collect::<Vec<_>>()
    };
    let mut sought = of_kind(&is_measured);
    if sought.is_empty() {
        // What the task may run under is still to be tried.
        sought = of_kind(&Option::is_none);
    }
    let fits = |(gpus, gpu_type): &(u32, &String)| {
        let mut present = state.present_nodes().map(|node| &state.cluster.nodes[node.0]);
        present.any(|node| node.gpu_type == **gpu_type && node.gpus >= *gpus)
    };
    if sought.iter().any(fits) {
        return None;
    }
    let (gpus, gpu_type) = sought.into_iter().min_by_key(|(gpus, _)| *gpus)?;
    Some(Node::new("awaited", gpus, gpu_type))
}
