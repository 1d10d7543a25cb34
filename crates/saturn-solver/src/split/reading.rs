//! A plan read as pieces, and what is said of the switches of its tasks.

use saturn_core::{Plan, Problem, WHOLE};

use crate::lists::warm::is_staying;
use crate::problem::model::Model;
use crate::split::pieces::{Piece, settle_shares, stays_first};

/// The switch cost of each task, seconds; 0 where none is stated.
pub(crate) fn switch_costs(problem: &Problem) -> Vec<f64> {
    problem.tasks.iter().map(|task| task.switch_cost_s.unwrap_or(0.0)).collect()
}

/// Whether each task may be cut into pieces.
pub(crate) fn may_switch(problem: &Problem, model: &Model) -> Vec<bool> {
    let tasks = model.tasks.iter().zip(&problem.tasks);
    tasks.map(|(task, of)| of.switch_cost_s.is_some() && !task.is_fixed()).collect()
}

/// A plan as pieces, in the order of its starts. The model has runtimes without switch costs.
/// `None` where a task is missing, cut too often, or not on one node.
pub(crate) fn pieces(
    problem: &Problem,
    model: &Model,
    plan: &Plan,
    may_switch: &[bool],
    max_switches: usize,
) -> Option<Vec<Piece>> {
    let num_tasks = model.tasks.len();
    let mut assignments: Vec<_> = plan.assignments.iter().collect();
    assignments.sort_by(|left, right| left.start_s.total_cmp(&right.start_s));
    let mut num_pieces = vec![0; num_tasks];
    let mut pieces = Vec::with_capacity(assignments.len());
    for one in assignments {
        let [part] = one.gang.as_slice() else { return None };
        model.nodes.get(part.node)?;
        let strategy = problem.tasks.get(one.task)?.strategies.get(one.strategy)?;
        num_pieces[one.task] += 1;
        let stay = model.tasks[one.task].stay.as_ref();
        let stay = stay.filter(|_| is_staying(model, one));
        if let Some(piece) = stay.and_then(|stay| Piece::staying(one.task, stay, one.share)) {
            pieces.push(piece);
            continue;
        }
        let modes = model.modes_on(one.task, part.node);
        let narrower = modes.partition_point(|mode| mode.gpus <= strategy.gpus);
        let index = narrower.checked_sub(1)?;
        pieces.push(Piece::new(one.task, part.node, index, &modes[index], one.share));
    }
    let most = |task: usize| if may_switch[task] { max_switches + 1 } else { 1 };
    if (0..num_tasks).any(|task| num_pieces[task] == 0 || num_pieces[task] > most(task)) {
        return None;
    }
    stays_first(&mut pieces);
    settle_shares(&mut pieces, num_tasks);
    let are_whole = pieces.iter().all(|piece| piece.share > 0.0 && piece.share <= WHOLE);
    are_whole.then_some(pieces)
}
