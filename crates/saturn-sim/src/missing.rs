//! Nodes that a run waits for. A task that was measured on a wide node, and can't run on narrower
//! nodes, waits if no wide node is left.

use saturn_core::{Node, TrialOutcome};
use saturn_engine::{State, TaskId, TaskStatus};

/// The node that the first waiting task needs, if no present node is wide enough for any measured
/// strategy of the task.
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
    let present = || state.present_nodes().map(|node| &state.cluster.nodes[node.0]);
    let mut narrowest: Option<(u32, &str)> = None;
    for (key, trial) in &state.groups[task.group].trials {
        let is_excluded = task.excluded.iter().any(|(excluded, _)| *excluded == key.strategy);
        let is_measured = matches!(trial.outcome, Some(TrialOutcome::Measured { .. }));
        if !is_measured || is_excluded || !task.spec.allows_key(&key.strategy) {
            continue;
        }
        let gpus = key.strategy.gpus;
        if present().any(|node| node.gpu_type == key.gpu_type && node.gpus >= gpus) {
            return None;
        }
        if narrowest.is_none_or(|(least, _)| gpus < least) {
            narrowest = Some((gpus, &key.gpu_type));
        }
    }
    let (gpus, gpu_type) = narrowest?;
    Some(Node::new("awaited", gpus, gpu_type))
}
