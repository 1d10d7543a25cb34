//! A plan at hand as the start of a search.

use saturn_core::{Assignment, Plan, Problem};

use crate::lists::list::{Entry, Lists, stays_first};
use crate::problem::model::Model;

/// The narrow assignments of `plan` as lists, in order of start. All other tasks go behind, on the
/// node that is idle first. Running tasks stay unless the plan moves them. `None` if no part of the
/// plan fits.
///
/// A plan for an earlier version of the problem will do: assignments to tasks, nodes or strategies
/// that don't fit are passed over. If a strategy was pruned, the nearest mode with no more GPUs
/// takes its place, or else the narrowest.
pub(crate) fn lists(problem: &Problem, model: &Model, plan: &Plan) -> Option<Lists> {
    let mut lists: Lists = vec![Vec::new(); model.nodes.len()];
    let mut is_placed = vec![false; model.tasks.len()];
    let mut assignments: Vec<_> = plan.assignments.iter().collect();
    assignments.sort_by(|left, right| left.start_s.total_cmp(&right.start_s));
    for assignment in assignments {
        if is_placed.get(assignment.task).is_none_or(|is_placed| *is_placed) {
            continue;
        }
        if let Some((node, entry)) = entry(problem, model, assignment) {
            lists[node].push(entry);
            is_placed[assignment.task] = true;
        }
    }
    if !is_placed.iter().any(|placed| *placed) {
        return None;
    }
    for (index, task) in model.tasks.iter().enumerate().filter(|(index, _)| !is_placed[*index]) {
        let stay = task.stay.as_ref();
        if let Some((stay, home)) = stay.and_then(|stay| Some((stay, stay.home()?))) {
            lists[home].push(Entry::staying(index, stay));
        }
    }
    for list in &mut lists {
        stays_first(list);
    }
    append_rest(model, &mut lists, &is_placed)?;
    Some(lists)
}

/// An assignment as an entry of its node's list, where it fits.
fn entry(problem: &Problem, model: &Model, assignment: &Assignment) -> Option<(usize, Entry)> {
    let Assignment { task, strategy, .. } = *assignment;
    let [part] = assignment.gang.as_slice() else { return None };
    let node = part.node;
    let gpus = problem.tasks.get(task)?.strategies.get(strategy)?.gpus;
    let stay = model.tasks[task].stay.as_ref();
    if let Some(stay) = stay
        && (model.tasks[task].is_fixed() || is_staying(model, assignment))
    {
        return Some((stay.home()?, Entry::staying(task, stay)));
    }
    if node >= model.nodes.len() {
        return None;
    }
    let modes = model.modes_on(task, node);
    let index = modes.partition_point(|mode| mode.gpus <= gpus).saturating_sub(1);
    modes.get(index).map(|mode| (node, Entry::new(task, index, mode)))
}

/// Whether an assignment leaves a running task as it is.
pub(crate) fn is_staying(model: &Model, assignment: &Assignment) -> bool {
    let stay = model.tasks.get(assignment.task).and_then(|task| task.stay.as_ref());
    stay.is_some_and(|stay| {
        stay.strategy == assignment.strategy
            && stay.gang == assignment.gang
            && assignment.start_s == 0.0
    })
}

/// Puts the tasks that neither have a place nor stay behind the lists; `None` if a task has no
/// mode.
fn append_rest(model: &Model, lists: &mut Lists, is_placed: &[bool]) -> Option<()> {
    let mut ends: Vec<f64> =
        crate::lists::list::loads(model, lists).iter().map(|load| load.end).collect();
    let is_left = |task: &usize| !is_placed[*task] && model.tasks[*task].stay.is_none();
    for task in (0..model.tasks.len()).filter(is_left) {
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
    Some(())
}
