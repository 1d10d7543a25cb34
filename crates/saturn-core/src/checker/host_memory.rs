//! Checks that the gangs on each node never take more host memory than it has.
//!
//! A running task that the plan leaves as it is takes what it takes: no plan can help that. So a node
//! may hold more than it has while only such tasks are there, and a gang that takes nothing may join
//! them. No other gang may.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::facts::stays;
use super::{Violation, slack};
use crate::plan::{Assignment, Plan};
use crate::problem::Problem;

/// A gang on one node.
struct Holder<'a> {
    assignment: &'a Assignment,
    bytes: u64,
    is_left: bool,
}

pub(super) fn check_host_memory(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    let slack = slack(plan.makespan_s);
    for (node, holders) in holders(problem, plan) {
        check_node(problem, node, &holders, slack, violations);
    }
}

/// The gangs that take host memory of each node that has a limit. They are in the order of their
/// starts, and those that the plan leaves as they are come first.
fn holders<'a>(problem: &Problem, plan: &'a Plan) -> BTreeMap<usize, Vec<Holder<'a>>> {
    let is_limited = |node: usize| {
        problem.cluster.nodes.get(node).is_some_and(|one| one.host_memory_bytes.is_some())
    };
    let mut by_node: BTreeMap<usize, Vec<Holder>> = BTreeMap::new();
    for assignment in &plan.assignments {
        let Some(task) = problem.tasks.get(assignment.task) else { continue };
        let Some(strategy) = task.strategies.get(assignment.strategy) else { continue };
        if strategy.host_bytes == 0 {
            continue;
        }
        let is_left = task.running.is_some() && stays(problem, task, assignment);
        for part in assignment.gang.iter().filter(|part| is_limited(part.node)) {
            let holder = Holder { assignment, bytes: strategy.host_bytes, is_left };
            by_node.entry(part.node).or_default().push(holder);
        }
    }
    for holders in by_node.values_mut() {
        holders.sort_by(|left, right| {
            let starts = left.assignment.start_s.total_cmp(&right.assignment.start_s);
            starts.then(right.is_left.cmp(&left.is_left))
        });
    }
    by_node
}

/// Checks one node at each start on it: what is taken grows only there.
fn check_node(
    problem: &Problem,
    node: usize,
    holders: &[Holder],
    slack: f64,
    violations: &mut Vec<Violation>,
) {
    let spec = &problem.cluster.nodes[node];
    let has = spec.host_memory();
    // The gangs that are there, the first to end at the top. Ends are at least 0, and such floats are
    // ordered as their bits are.
    let mut there: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut taken: u128 = 0;
    for Holder { assignment, bytes, is_left } in holders {
        let at_s = assignment.start_s;
        while let Some(Reverse((end, bytes))) = there.peek().copied()
            && f64::from_bits(end) <= at_s + slack
        {
            there.pop();
            taken -= u128::from(bytes);
        }
        there.push(Reverse((assignment.end_s.max(0.0).to_bits(), *bytes)));
        taken += u128::from(*bytes);
        if taken > u128::from(has) && !is_left {
            violations.push(Violation::HostMemory {
                task: problem.tasks[assignment.task].name.clone(),
                node: spec.name.clone(),
                at_s,
                taken,
                has,
            });
        }
    }
}
