//! A plan at hand as a start: the parts of it that fit.

use saturn_core::{Assignment, Plan, Problem};

use crate::general::construct::{Recipe, Rule, best_choice};
use crate::general::instance::Instance;
use crate::general::play::{Choice, Genome, Player};
use crate::lists::warm::is_staying;
use crate::problem::baselines::Pace;

/// The plan in its order of starts. Running tasks that it doesn't know stay; other new tasks go
/// behind, each where it is best. `None` if no part of it fits, or if a task has no way.
pub(crate) fn genome(problem: &Problem, instance: &Instance, plan: &Plan) -> Option<Genome> {
    let num_tasks = instance.tasks.len();
    let mut given: Vec<Option<Choice>> = vec![None; num_tasks];
    let mut order: Vec<(f64, usize)> = Vec::with_capacity(num_tasks);
    for one in &plan.assignments {
        if given.get(one.task).is_some_and(Option::is_none) {
            given[one.task] = choice(problem, instance, one);
            if given[one.task].is_some() {
                order.push((one.start_s, one.task));
            }
        }
    }
    if order.is_empty() {
        return None;
    }
    for task in (0..num_tasks).filter(|task| instance.may_stay(*task)) {
        if instance.tasks[task].is_fixed || given[task].is_none() {
            given[task] = Some(Choice::Stay);
            order.push((0.0, task));
        }
    }
    order.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    let mut order: Vec<usize> = order.into_iter().map(|(_, task)| task).collect();
    let mut player = Player::new(instance, Pace::Packed);
    let unknown = Choice::Wide { mode: 0, lead: None };
    let mut choices: Vec<Choice> = given.iter().map(|choice| choice.unwrap_or(unknown)).collect();
    player.begin(&choices);
    for &task in &order {
        player.place(task, choices[task]);
    }
    let recipe =
        Recipe { rule: Rule::Head, target: 0.0, thrift: 1.0, is_prompt: false, is_guided: false };
    for &task in instance.order.iter().filter(|task| given[**task].is_none()) {
        choices[task] = best_choice(&player, task, recipe, &|_, _| true)?;
        player.place(task, choices[task]);
        order.push(task);
    }
    let mut is_in = vec![false; num_tasks];
    order.retain(|task| {
        !instance.tasks[*task].is_fixed && !std::mem::replace(&mut is_in[*task], true)
    });
    Some(Genome { order, choices, backfills: true })
}

/// An assignment as a choice, if it is a choice of the task.
fn choice(problem: &Problem, instance: &Instance, one: &Assignment) -> Option<Choice> {
    let task = one.task;
    let strategy = problem.tasks.get(task)?.strategies.get(one.strategy)?;
    let model = instance.model;
    if is_staying(model, one) {
        return Some(Choice::Stay);
    }
    let node = one.gang.first()?.node;
    if node >= model.nodes.len() {
        return None;
    }
    if one.gang.len() > 1 {
        let kind = model.nodes[node].kind;
        let mode = model.tasks[task].wide.iter().position(|mode| {
            mode.strategy as usize == one.strategy
                && mode.kind == kind
                && instance.has_nodes_for(task, mode)
        });
        return mode.map(|mode| Choice::Wide { mode, lead: Some(node) });
    }
    let modes = model.modes_on(task, node);
    let same = modes.iter().position(|mode| mode.strategy as usize == one.strategy);
    let narrower = || modes.partition_point(|mode| mode.gpus <= strategy.gpus).checked_sub(1);
    let mode = same.or_else(narrower)?;
    Some(Choice::Narrow { node, mode })
}
