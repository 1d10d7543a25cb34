//! A plan at hand as the start of a search.

use saturn_core::{Plan, Problem};

use crate::lists::{Entry, Lists};
use crate::model::Model;

/// The narrow assignments of `plan` as lists, in order of start, with every other task put behind
/// on the node that falls idle first. `None` if nothing of the plan fits.
///
/// A plan for an earlier version of the problem will do: assignments that refer to tasks, nodes or
/// strategies that don't fit are passed over. Where a strategy was pruned the nearest mode with no
/// more GPUs, or else the narrowest, stands in.
pub(crate) fn lists(problem: &Problem, model: &Model, plan: &Plan) -> Option<Lists> {
    let mut lists: Lists = vec![Vec::new(); model.nodes.len()];
    let mut is_placed = vec![false; model.tasks.len()];
    let mut assignments: Vec<_> = plan.assignments.iter().collect();
    assignments.sort_by(|left, right| left.start_s.total_cmp(&right.start_s));
    for assignment in assignments {
        let task = assignment.task;
        let strategy =
            problem.tasks.get(task).and_then(|one| one.strategies.get(assignment.strategy));
        let (Some(strategy), [part]) = (strategy, assignment.gang.as_slice()) else { continue };
        if part.node >= model.nodes.len() || is_placed[task] {
            continue;
        }
        let modes = model.modes_on(task, part.node);
        let index = modes.partition_point(|mode| mode.gpus <= strategy.gpus).saturating_sub(1);
        if let Some(mode) = modes.get(index) {
            lists[part.node].push(Entry::new(task, index, mode));
            is_placed[task] = true;
        }
    }
    if !is_placed.iter().any(|placed| *placed) {
        return None;
    }
    let mut ends: Vec<f64> =
        crate::lists::loads(model, &lists).iter().map(|load| load.end).collect();
    for task in (0..model.tasks.len()).filter(|task| !is_placed[*task]) {
        let options = (0..model.nodes.len()).filter_map(|node| {
            let modes = model.modes_on(task, node).iter().enumerate();
            let (index, mode) =
                modes.min_by(|left, right| left.1.runtime.total_cmp(&right.1.runtime))?;
            Some((ends[node] + mode.runtime, node, Entry::new(task, index, mode)))
        });
        let (end, node, entry) = options.min_by(|left, right| left.0.total_cmp(&right.0))?;
        ends[node] = end;
        lists[node].push(entry);
    }
    Some(lists)
}
