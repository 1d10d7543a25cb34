//! The same tasks on pools of several sizes: a plan for each number of equal nodes.
//!
//! A plan on fewer nodes is a plan on more nodes. So each size starts from the plan of the size
//! before it and is never worse. A bound on more nodes is a bound on fewer nodes. Once a plan ends
//! with the longest task alone under its fastest strategy, and misses no soft deadline, more nodes
//! change nothing, and no further size is solved.
//!
//! The same holds for the tasks of a run in progress, where further nodes join the nodes that it
//! has ([`crate::solve_further`]). There some tasks run already, on nodes that stay.

use saturn_core::{Assignment, Cluster, Node, Objective, Plan, Problem, ProblemTask};

use crate::course::clock::{Clock, Deadline};
use crate::problem::error::SolveError;
use crate::problem::grade::grade;
use crate::problem::model::Model;
use crate::problem::options::{Backend, Options};
use crate::problem::tardiness::compare_tardiness;
use crate::solve::entry::solve;
use crate::split::solve as split;

/// A plan that ends so close to the longest task, relative, ends with it.
const ROUNDING: f64 = 1e-9;

/// Moves of the search for a plan of whole tasks, and then for a plan with switches.
const WHOLE_MOVES: u64 = 1_000_000;
const SWITCH_MOVES: u64 = 400_000;
/// With more tasks than this no switches are searched for.
const SWITCHED_TASKS: usize = 60;
/// Switches that a task may have, and the part that they must gain together: as in a run.
const MAX_SWITCHES: usize = 1;
const MIN_SWITCH_GAIN: f64 = 0.02;
/// Threads of the search: a fixed number, since a plan depends on it.
const THREADS: usize = 2;

/// The plan of a number of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Sized {
    /// How many nodes.
    pub nodes: usize,
    /// The plan; not usable if the tasks don't fit this number of nodes.
    pub plan: Plan,
}

/// The tasks of `problem` on so many nodes like `node`.
pub fn on_nodes(problem: &Problem, node: &Node, nodes: usize) -> Problem {
    let numbered = |index| Node { name: format!("n{index}"), ..node.clone() };
    let cluster = Cluster { nodes: (0..nodes).map(numbered).collect() };
    Problem { cluster, ..problem.clone() }
}

/// The task whose fastest strategy takes longest, by its index, and these seconds. No number of
/// nodes ends earlier. `None` without tasks.
pub fn longest(problem: &Problem) -> Option<(usize, f64)> {
    let fastest_s = |task: &ProblemTask| {
        task.strategies.iter().map(|one| one.runtime_s).fold(f64::INFINITY, f64::min)
    };
    let tasks = problem.tasks.iter().map(fastest_s).enumerate();
    // Of equally long tasks the first.
    tasks.reduce(|longest, other| if other.1 > longest.1 { other } else { longest })
}

/// The tasks of `problem` on its own nodes, and on so many further nodes like `node`.
pub fn with_further(problem: &Problem, node: &Node, further: usize) -> Problem {
    let mut problem = problem.clone();
    let nodes = &mut problem.cluster.nodes;
    let names = (0..).map(|index| format!("further-{index}"));
    let is_new = |name: &String| nodes.iter().all(|one| one.name != *name);
    let names: Vec<String> = names.filter(is_new).take(further).collect();
    nodes.extend(names.into_iter().map(|name| Node { name, ..node.clone() }));
    problem
}

/// Plans `problem` for each number of nodes like `node`: `counts` ascend. The problem's own cluster
/// is not used. After each size, `done` is told how many sizes are done.
///
/// Makespans never rise with the number of nodes, unless tasks have soft deadlines: then it is the
/// tardiness that never rises. Lower bounds rise at most by the part that switches
/// must gain: on more nodes they may hold for whole tasks alone. Moves limit each solve, not
/// time: equal seeds give equal answers. An interrupted clock ends the call with the sizes that are
/// done. The tasks must find all nodes equal: no task may be pinned to nodes or run already.
pub fn solve_sizes(
    problem: &Problem,
    node: &Node,
    counts: &[usize],
    seed: u64,
    clock: &dyn Clock,
    done: &mut dyn FnMut(usize),
) -> Result<Vec<Sized>, SolveError> {
    let how = Options {
        seed,
        max_switches: MAX_SWITCHES,
        min_switch_gain: MIN_SWITCH_GAIN,
        ..Options::default()
    };
    let of = |nodes| on_nodes(problem, node, nodes);
    solve_each(problem, &of, counts, &how, clock, done)
}

/// Plans `of(nodes)` for each number of nodes. The first size starts from the warm start of `how`.
pub(super) fn solve_each(
    problem: &Problem,
    of: &dyn Fn(usize) -> Problem,
    counts: &[usize],
    how: &Options,
    clock: &dyn Clock,
    done: &mut dyn FnMut(usize),
) -> Result<Vec<Sized>, SolveError> {
    let floor_s = longest(problem).map_or(0.0, |longest| longest.1);
    let is_makespan = how.objective == Objective::Makespan;
    // A plan that misses a soft deadline may miss it by less on more nodes.
    let is_least = |plan: &Plan| {
        is_makespan && plan.tardiness <= 0.0 && plan.makespan_s <= floor_s * (1.0 + ROUNDING)
    };
    let mut sizes: Vec<Sized> = Vec::with_capacity(counts.len());
    for nodes in counts.iter().copied() {
        let before = sizes.last().map(|size| &size.plan).filter(|plan| plan.is_usable());
        let plan = match before {
            Some(plan) if is_least(plan) => plan.clone(),
            before => solve_size(&of(nodes), before, how, clock)?,
        };
        if clock.is_interrupted() {
            break;
        }
        sizes.push(Sized { nodes, plan });
        done(sizes.len());
    }
    let may_switch = |nodes: usize| {
        let on = of(nodes);
        split::applies(&on, &Model::new(&on), how)
    };
    let slack_on = |nodes: usize| if may_switch(nodes) { how.min_switch_gain } else { 0.0 };
    pass_bounds(&mut sizes, floor_s, is_makespan, slack_on);
    Ok(sizes)
}

/// Takes the bounds of more nodes as bounds of fewer nodes. No plan of any size ends before
/// `floor_s`.
///
/// The bound of a plan of whole tasks may hold for whole tasks alone, where switches could gain no
/// more than `min_switch_gain` of the makespan. On fewer nodes they may gain more. So there the bound
/// is lowered by a part, which `slack_on` gives for a number of nodes.
fn pass_bounds(
    sizes: &mut [Sized],
    floor_s: f64,
    is_makespan: bool,
    slack_on: impl Fn(usize) -> f64,
) {
    let (mut bound_s, mut is_of_whole_tasks) = (floor_s, false);
    for size in sizes.iter_mut().rev().filter(|size| size.plan.is_usable()) {
        let slack = if is_of_whole_tasks { slack_on(size.nodes) } else { 0.0 };
        let passed_s = floor_s.max(bound_s * (1.0 - slack));
        size.plan.lower_bound_s = size.plan.lower_bound_s.max(passed_s);
        if is_makespan {
            grade(&mut size.plan);
        }
        bound_s = size.plan.lower_bound_s;
        is_of_whole_tasks = !size.plan.assignments.iter().any(Assignment::is_segment);
    }
}

/// Plans one size from the plan of fewer nodes: whole tasks first, then with switches if tasks may
/// be switched. With many tasks only the bound allows for switches, which gain little there.
fn solve_size(
    problem: &Problem,
    before: Option<&Plan>,
    how: &Options,
    clock: &dyn Clock,
) -> Result<Plan, SolveError> {
    let options = Options {
        backend: Backend::Search,
        max_moves: Some(WHOLE_MOVES),
        threads: THREADS,
        max_switches: 0,
        min_switch_gain: 0.0,
        // Sizes are compared by their makespans alone.
        has_early_ends: false,
        warm_start: before.or(how.warm_start.as_ref()).cloned(),
        ..how.clone()
    };
    let whole = solve(problem, &options, clock)?;
    let options = Options {
        max_moves: Some(SWITCH_MOVES),
        max_switches: how.max_switches,
        min_switch_gain: how.min_switch_gain,
        ..options
    };
    let model = Model::new(problem);
    if !whole.is_usable() || !split::applies(problem, &model, &options) {
        return Ok(whole);
    }
    if problem.tasks.len() > SWITCHED_TASKS {
        let bound_s = split::quick_bound(&model, Deadline::new(clock, f64::MAX));
        let mut plan = Plan { lower_bound_s: bound_s, ..whole };
        grade(&mut plan);
        return Ok(plan);
    }
    let in_force = how.warm_start.as_ref().filter(|_| before.is_none());
    let switched = solve_switched(problem, before, &whole, &options, clock)?;
    match in_force {
        // The plan in force may have switches, which the search may not find again.
        Some(in_force) => {
            let from = Options { warm_start: Some(in_force.clone()), ..options };
            let going_on = solve(problem, &from, clock)?;
            let is_better = going_on.is_usable() && is_sooner(&going_on, &switched);
            Ok(if is_better { going_on } else { switched })
        }
        None => Ok(switched),
    }
}

/// Plans one size with switches, from the better of the plan of fewer nodes and of a plan of whole
/// tasks.
fn solve_switched(
    problem: &Problem,
    before: Option<&Plan>,
    whole: &Plan,
    options: &Options,
    clock: &dyn Clock,
) -> Result<Plan, SolveError> {
    let better = before.filter(|plan| is_sooner(plan, whole));
    let warm_start = Some(better.unwrap_or(whole).clone());
    solve(problem, &Options { warm_start, ..options.clone() }, clock)
}

/// Why some numbers of nodes have no plan.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// The numbers of nodes that lack a plan because of deadlines alone.
    pub late: Vec<usize>,
    /// The numbers of nodes for which the clock was interrupted before that was known.
    pub unexplained: Vec<usize>,
}

/// Asks of those of `sizes` that have no plan whether they would have a plan without deadlines. The
/// problem, node and seed are those that [`solve_sizes`] was given.
pub fn why_lacking(
    problem: &Problem,
    node: &Node,
    sizes: &[Sized],
    seed: u64,
    clock: &dyn Clock,
) -> Result<Lacking, SolveError> {
    let lacking = sizes.iter().filter(|size| !size.plan.is_usable());
    let counts: Vec<usize> = lacking.map(|size| size.nodes).collect();
    if counts.is_empty() || !has_deadlines(problem) {
        return Ok(Lacking::default());
    }
    let undue = without_deadlines(problem);
    let found = solve_sizes(&undue, node, &counts, seed, clock, &mut |_| {})?;
    let unexplained = counts.get(found.len()..).unwrap_or_default().to_vec();
    let late = found.iter().filter(|size| size.plan.is_usable()).map(|size| size.nodes).collect();
    Ok(Lacking { late, unexplained })
}

/// Whether there is a latest end, of a task or of all tasks.
pub(super) fn has_deadlines(problem: &Problem) -> bool {
    problem.deadline_s.is_some() || problem.tasks.iter().any(|task| problem.due_s(task).is_finite())
}

/// The same tasks, without a latest end. Soft deadlines stay: some plan misses them, however late.
pub(super) fn without_deadlines(problem: &Problem) -> Problem {
    let mut problem = Problem { deadline_s: None, ..problem.clone() };
    for task in &mut problem.tasks {
        task.most_late_s = None;
        task.deadline_s = task.deadline_s.filter(|_| task.late_price.is_some());
    }
    problem
}

/// Whether a plan misses soft deadlines by less than another, or by as much and ends before it.
fn is_sooner(plan: &Plan, other: &Plan) -> bool {
    compare_tardiness(plan.tardiness, other.tardiness)
        .then(plan.makespan_s.total_cmp(&other.makespan_s))
        .is_lt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan of one task, in so many segments.
    fn sized(nodes: usize, segments: u32, makespan_s: f64, lower_bound_s: f64) -> Sized {
        let share = 1.0 / f64::from(segments);
        let segment = |number: u32| Assignment {
            task: 0,
            strategy: 0,
            gang: Vec::new(),
            share,
            start_s: f64::from(number) * share * makespan_s,
            end_s: f64::from(number + 1) * share * makespan_s,
        };
        let assignments = (0..segments).map(segment).collect();
        let plan =
            Plan { makespan_s, lower_bound_s, assignments, ..Plan::none(Objective::Makespan) };
        let mut size = Sized { nodes, plan };
        grade(&mut size.plan);
        size
    }

    fn bounds_s(mut sizes: Vec<Sized>, floor_s: f64) -> Vec<f64> {
        pass_bounds(&mut sizes, floor_s, true, |nodes| if nodes < 8 { 0.02 } else { 0.0 });
        sizes.iter().map(|size| size.plan.lower_bound_s).collect()
    }

    #[test]
    fn a_bound_of_whole_tasks_counts_less_where_tasks_are_switched() {
        // On 16 nodes whole tasks take 100 s, and switches could gain less than 2 s.
        let whole = || sized(16, 1, 100.0, 100.0);
        assert_eq!(bounds_s(vec![sized(4, 2, 105.0, 90.0), whole()], 50.0), [98.0, 100.0]);
        // A plan with switches is bounded by all plans with switches.
        let chain = vec![sized(2, 1, 110.0, 90.0), sized(4, 2, 105.0, 90.0), whole()];
        assert_eq!(bounds_s(chain, 50.0), [98.0, 98.0, 100.0]);
        // No task is switched on eight nodes, and nothing ends before the longest task.
        assert_eq!(bounds_s(vec![sized(8, 1, 105.0, 90.0), whole()], 50.0), [100.0, 100.0]);
        assert_eq!(bounds_s(vec![sized(4, 2, 105.0, 90.0), whole()], 99.0), [99.0, 100.0]);
    }
}
