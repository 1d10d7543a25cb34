//! Plans that leave running tasks alone, unless moving them gains enough.
//!
//! A move costs more than the seconds that a plan counts: another launch may fail, and a task that
//! could have ended soon waits. So half of a solve looks for the best plan in which every running
//! task stays that can. (Staying may miss a task's deadline or its node's departure, or the task may
//! no longer use its node.) The other half may move all of them, from that plan on. A plan that
//! moves more tasks is the answer only if it is better by as much as the options ask for. Of
//! weighted ends only the share is asked for: a gain in seconds means nothing there.

use std::collections::BTreeSet;

use saturn_core::{Assignment, Objective, Plan, Problem, Running, WHOLE};

use crate::course::clock::Deadline;
use crate::general::instance::Instance;
use crate::general::play::rounding;
use crate::lists::warm::is_staying;
use crate::problem::model::Model;
use crate::problem::options::Options;
use crate::solve::stages::plan_early;
use crate::solve::warm;

/// Tasks times nodes of a problem whose bounds alone take many milliseconds.
const LARGE: usize = 100_000;

/// Plans a problem each of whose tasks fits the cluster.
pub(crate) fn plan(problem: &Problem, options: &Options, deadline: Deadline, plan: &mut Plan) {
    let is_movable = |running: &Running| running.movable;
    let may_move = problem.tasks.iter().filter_map(|task| task.running.as_ref()).any(is_movable);
    let must_gain = options.min_move_gain > 0.0 || options.min_move_gain_s > 0.0;
    let is_asked = options.objective != Objective::Cost && options.backend.baseline().is_none();
    if !(may_move && must_gain && is_asked) {
        return plan_early(problem, options, deadline, plan);
    }
    let half = Options { max_moves: options.max_moves.map(|moves| moves / 2), ..options.clone() };
    let mut left = Plan::none(options.objective);
    let model = Model::new(problem);
    let still = without_moves(problem, &model, options.objective);
    plan_early(&still, &half, deadline.within(deadline.left_s() / 2.0), &mut left);
    // The plan at hand may already move tasks, for a smaller gain. Those moves were decided before.
    let at_hand = warm::valid(problem, options);
    let is_better = |one: &Plan| !left.is_usable() || one.beats(&left);
    let start = at_hand.filter(is_better).or_else(|| left.is_usable().then(|| left.clone()));
    // Then there is no time to look for moves, and in a large problem not even for a bound.
    let is_large = problem.tasks.len() * problem.cluster.nodes.len() > LARGE;
    if is_large
        && deadline.is_over()
        && let Some(start) = start
    {
        return warm::answer_with(problem, options, start, deadline, plan);
    }
    let warm_start = start.clone().or_else(|| options.warm_start.clone());
    plan_early(problem, &Options { warm_start, ..half }, deadline, plan);
    let Some(start) = start else { return };
    let is_makespan = options.objective == Objective::Makespan;
    let gain_s = if is_makespan { options.min_move_gain_s } else { 0.0 };
    let enough = start.value() * (1.0 - options.min_move_gain) - gain_s;
    let at_start = moved(&model, &start);
    let moves_more = |plan: &Plan| !moved(&model, plan).is_subset(&at_start);
    // Of tardiness the same share is asked for.
    let gains = plan.tardiness < start.tardiness * (1.0 - options.min_move_gain)
        || !start.is_less_tardy_than(plan) && plan.value() <= enough;
    if !plan.is_usable() || !gains && moves_more(plan) {
        warm::answer_with(problem, options, start, deadline, plan);
    }
}

/// The running tasks that a plan moves: at once, or later.
fn moved(model: &Model, plan: &Plan) -> BTreeSet<usize> {
    let is_moved = |one: &&Assignment| {
        model.tasks[one.task].stay.is_some() && !(is_staying(model, one) && one.share >= WHOLE)
    };
    plan.assignments.iter().filter(is_moved).map(|one| one.task).collect()
}

/// The problem in which every running task stays as it runs, but for those that can't.
fn without_moves(problem: &Problem, model: &Model, objective: Objective) -> Problem {
    let instance = Instance::new(problem, model, objective, &vec![1.0; model.num_kinds]);
    let mut still = problem.clone();
    for (task, spec) in still.tasks.iter_mut().enumerate() {
        if let Some(running) = &mut spec.running {
            running.movable &= !can_stay(&instance, task);
        }
    }
    still
}

/// Whether a running task may be left alone where it runs, and then ends in time for itself, for its
/// nodes and for the tasks that wait for it.
fn can_stay(instance: &Instance, task: usize) -> bool {
    instance.stay(task).is_some_and(|stay| {
        let untils = stay.parts().map(|(node, _)| instance.nodes[node].until);
        let latest = untils.fold(instance.tasks[task].latest_end, f64::min);
        stay.runtime <= latest + rounding(stay.runtime)
    })
}
