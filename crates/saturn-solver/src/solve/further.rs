//! What is left of a run, on the nodes that it has and on further nodes: which tasks' deadlines
//! count, which strategies further nodes add, and which price holds for all nodes.

use std::collections::BTreeSet;

use saturn_core::{Node, Objective, Plan, Problem, Wide};

use crate::course::clock::Clock;
use crate::problem::error::SolveError;
use crate::problem::options::Options;
use crate::solve::sizes::{Sized, has_deadlines, solve_each, with_further, without_deadlines};

/// What is left of a run, and how the run itself plans.
#[derive(Debug, Clone, Copy)]
pub struct RestOfRun<'a> {
    /// What is left, on the nodes that the run has.
    pub problem: &'a Problem,
    /// Measured strategies that these nodes can't hold.
    pub wide: &'a [Wide],
    /// The objective, which plans minimise.
    pub objective: Objective,
    /// Switches that may be planned for each task.
    pub max_switches: usize,
    /// The part by which a plan with switches must end earlier.
    pub min_switch_gain: f64,
    /// The part by which a plan that moves running tasks must end earlier.
    pub min_move_gain: f64,
    /// The seconds by which a plan that moves running tasks must end earlier.
    pub min_move_gain_s: f64,
    /// The plan in force, from which the plan without further nodes starts.
    pub warm_start: Option<&'a Plan>,
}

/// Further nodes of a run.
#[derive(Debug, Clone, Copy)]
pub struct Further<'a> {
    /// What each of them is like.
    pub node: &'a Node,
    /// The numbers that are asked about, ascending.
    pub counts: &'a [usize],
}

/// Plans of what is left of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RestPlans {
    /// One for each number of further nodes; sizes count all nodes.
    pub sizes: Vec<Sized>,
    /// The sizes, by their numbers of nodes, that lack a plan because of tasks' deadlines alone.
    pub late: Vec<usize>,
    /// The sizes that lack a plan, where the clock was interrupted before it was known why.
    pub unexplained: Vec<usize>,
    /// The run with all of its tasks on the nodes that it has, if some count as cancelled.
    pub with_all_tasks: Option<Sized>,
    /// Whether that lacks a plan because of tasks' deadlines alone.
    pub with_all_tasks_is_late: bool,
    /// Whether it lacks a plan and the clock was interrupted before it was known why.
    pub with_all_tasks_is_unexplained: bool,
    /// Whether tasks' deadlines were left out.
    pub leaves_out_deadlines: bool,
}

/// Plans `rest` for each number of further nodes. `all` is the run with all of its tasks, if `rest`
/// lacks those that count as cancelled. After each size, `done` is told how many sizes are done, and
/// of how many: deadlines that are missed make further rounds.
///
/// Tasks' deadlines count if some plan on the most nodes keeps them. Otherwise all sizes leave them
/// out, as the run leaves them out, and so does the run as it is. An interrupted clock ends the call
/// with the sizes that are done.
pub fn solve_rest(
    rest: &RestOfRun,
    all: Option<&RestOfRun>,
    further: Further,
    seed: u64,
    clock: &dyn Clock,
    done: &mut dyn FnMut(usize, usize),
) -> Result<RestPlans, SolveError> {
    let mut solve = |rest: &RestOfRun, counts: &[usize]| {
        let further = Further { counts, ..further };
        let mut done_of = |sizes| done(sizes, counts.len());
        solve_further(rest, further, seed, clock, &mut done_of)
    };
    let mut sizes = solve(rest, further.counts)?;
    let is_whole = sizes.len() == further.counts.len();
    let keeps_deadlines = sizes.last().is_none_or(|size| size.plan.is_usable());
    let leaves_out_deadlines = !keeps_deadlines && is_whole && has_deadlines(rest.problem);
    let undue = without_deadlines(rest.problem);
    if leaves_out_deadlines {
        sizes = solve(&RestOfRun { problem: &undue, ..*rest }, further.counts)?;
    }
    let (mut late, mut unexplained) = (Vec::new(), Vec::new());
    let lacking = sizes.iter().filter(|size| !size.plan.is_usable()).map(|size| size.nodes);
    let lacking: Vec<usize> = lacking.collect();
    if !lacking.is_empty() && !leaves_out_deadlines && has_deadlines(rest.problem) {
        let present = rest.problem.cluster.nodes.len();
        let counts: Vec<usize> = lacking.iter().map(|nodes| nodes - present).collect();
        let found = solve(&RestOfRun { problem: &undue, ..*rest }, &counts)?;
        late = found.iter().filter(|size| size.plan.is_usable()).map(|size| size.nodes).collect();
        unexplained = lacking.get(found.len()..).unwrap_or_default().to_vec();
    }
    let (mut with_all_tasks, mut with_all_tasks_is_late) = (None, false);
    let mut with_all_tasks_is_unexplained = false;
    if let Some(all) = all {
        let undue = without_deadlines(all.problem);
        let without = RestOfRun { problem: &undue, ..*all };
        with_all_tasks = solve(if leaves_out_deadlines { &without } else { all }, &[0])?.pop();
        let lacks = with_all_tasks.as_ref().is_some_and(|size| !size.plan.is_usable());
        if lacks && !leaves_out_deadlines && has_deadlines(all.problem) {
            let found = solve(&without, &[0])?;
            with_all_tasks_is_late = found.iter().any(|size| size.plan.is_usable());
            with_all_tasks_is_unexplained = found.is_empty();
        }
    }
    Ok(RestPlans {
        sizes,
        late,
        unexplained,
        with_all_tasks,
        with_all_tasks_is_late,
        with_all_tasks_is_unexplained,
        leaves_out_deadlines,
    })
}

/// Plans what is left of a run on its own nodes and on further nodes, for each number of further
/// nodes. Sizes count all nodes. Otherwise it is like [`crate::solve_sizes`]. With another objective
/// than the makespan, makespans may rise with the number of nodes.
pub fn solve_further(
    rest: &RestOfRun,
    further: Further,
    seed: u64,
    clock: &dyn Clock,
    done: &mut dyn FnMut(usize),
) -> Result<Vec<Sized>, SolveError> {
    let Further { node, counts } = further;
    let present = rest.problem.cluster.nodes.len();
    let counts: Vec<usize> = counts.iter().map(|further| present + further).collect();
    let how = Options {
        seed,
        objective: rest.objective,
        max_switches: rest.max_switches,
        min_switch_gain: rest.min_switch_gain,
        min_move_gain: rest.min_move_gain,
        min_move_gain_s: rest.min_move_gain_s,
        warm_start: rest.warm_start.cloned(),
        ..Options::default()
    };
    let widened = widened(rest.problem, rest.wide, node);
    let of = |nodes: usize| match nodes.saturating_sub(present) {
        // Nodes that can't hold them must not take them for strategies across nodes.
        0 => rest.problem.clone(),
        further => with_further(&widened, node, further),
    };
    let has_further = counts.iter().any(|nodes| *nodes > present);
    let tasks = if has_further { &widened } else { rest.problem };
    solve_each(tasks, &of, &counts, &how, clock, done)
}

/// The tasks of `problem` with the strategies that further nodes like `node` can hold too.
pub fn widened(problem: &Problem, wide: &[Wide], node: &Node) -> Problem {
    let mut problem = problem.clone();
    for one in wide.iter().filter(|one| one.is_held_by(node)) {
        if let Some(task) = one.task.and_then(|task| problem.tasks.get_mut(task)) {
            task.strategies.push(one.candidate.clone());
        }
    }
    problem
}

/// How many of the strategies are in no plan: `node` is what further nodes are like, if there are
/// any. Tasks of one group share their strategies.
pub fn num_left_out(wide: &[Wide], node: Option<&Node>) -> usize {
    let is_left_out =
        |one: &&Wide| one.task.is_none() || !node.is_some_and(|node| one.is_held_by(node));
    let names = wide.iter().filter(is_left_out).map(|one| {
        let strategy = &one.candidate;
        (one.group, &*strategy.technique, strategy.gpus, strategy.gpu_type.as_deref())
    });
    names.collect::<BTreeSet<_>>().len()
}

/// Nodes of several types, sizes or prices, for which no one price holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManyPrices;

/// The price of an hour that holds for each of the nodes that a run has, and of the further nodes
/// if there are any: `asked`, or what the nodes say. `None` if nothing says a price.
pub fn one_price(
    present: &[Node],
    further: Option<&Node>,
    asked: Option<f64>,
) -> Result<Option<f64>, ManyPrices> {
    let Some(usual) = further.or(present.first()) else { return Ok(asked) };
    let said = (usual.price_per_hour > 0.0).then_some(usual.price_per_hour);
    let Some(price) = asked.or(said) else { return Ok(None) };
    let is_usual = |one: &Node| {
        let is_as_dear = one.price_per_hour.total_cmp(&usual.price_per_hour).is_eq();
        one.gpu_type == usual.gpu_type && one.gpus == usual.gpus && (asked.is_some() || is_as_dear)
    };
    if present.iter().all(is_usual) { Ok(Some(price)) } else { Err(ManyPrices) }
}
