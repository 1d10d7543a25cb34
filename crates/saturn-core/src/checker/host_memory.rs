//! Checks that the gangs on each node never take more host memory than it has.
//!
//! A running task that the plan leaves as it is takes what it takes ([`held`](super::held)). A gang
//! that takes nothing may always join others.

use std::collections::BTreeMap;

use super::facts::is_left;
use super::held::{Holder, beyond};
use super::{Violation, slack};
use crate::plan::Plan;
use crate::problem::Problem;

pub(super) fn check_host_memory(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    let slack = slack(plan.makespan_s);
    for (node, mut holders) in holders(problem, plan) {
        let spec = &problem.cluster.nodes[node];
        let has = spec.host_memory();
        for (one, taken) in beyond(&mut holders, has, slack) {
            violations.push(Violation::HostMemory {
                task: problem.tasks[one.task].name.clone(),
                node: spec.name.clone(),
                at_s: one.start_s,
                taken,
                has,
            });
        }
    }
}

/// The gangs that take host memory of each node that has a limit.
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
        let is_left = is_left(problem, task, assignment);
        for part in assignment.gang.iter().filter(|part| is_limited(part.node)) {
            let holder = Holder { assignment, takes: strategy.host_bytes, is_left };
            by_node.entry(part.node).or_default().push(holder);
        }
    }
    by_node
}
