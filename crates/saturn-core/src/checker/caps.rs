//! Checks that no owner's gangs ever hold more devices together than the owner's cap.
//!
//! A running task that the plan leaves as it is holds what it holds ([`held`](super::held)). No other
//! task may use a strategy whose gang could hold more than the cap, on other nodes of the type if not on
//! these.

use std::collections::BTreeMap;

use super::facts::is_left;
use super::held::{Holder, beyond};
use super::{Violation, slack};
use crate::plan::{Assignment, Plan};
use crate::problem::{Candidate, Owner, Problem};

pub(super) fn check_caps(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    let owners = problem.owners.iter();
    let mut gangs: BTreeMap<&str, (&Owner, Vec<Holder>)> =
        owners.map(|owner| (owner.name.as_str(), (owner, Vec::new()))).collect();
    for assignment in &plan.assignments {
        let Some(task) = problem.tasks.get(assignment.task) else { continue };
        let of_owner = task.owner.as_ref().and_then(|name| gangs.get_mut(name.as_str()));
        let Some((owner, holders)) = of_owner else { continue };
        let num_devices: usize = assignment.gang.iter().map(|part| part.devices.len()).sum();
        let is_left = is_left(problem, task, assignment);
        holders.push(Holder { assignment, takes: num_devices as u64, is_left });
        let Some(strategy) = task.strategies.get(assignment.strategy).filter(|_| !is_left) else {
            continue;
        };
        let most = most_held(problem, strategy, assignment);
        if most > owner.max_gpus {
            violations.push(Violation::Fact {
                task: task.name.clone(),
                reason: format!(
                    "runs under a strategy that may hold {most} devices: `{}` may hold {} at once",
                    owner.name, owner.max_gpus
                ),
            });
        }
    }
    let slack = slack(plan.makespan_s);
    for (owner, holders) in gangs.values_mut() {
        for (one, held) in beyond(holders, u64::from(owner.max_gpus), slack) {
            violations.push(Violation::Cap {
                task: problem.tasks[one.task].name.clone(),
                owner: owner.name.clone(),
                at_s: one.start_s,
                held,
                max_gpus: owner.max_gpus,
            });
        }
    }
}

/// The most devices that a gang of the strategy could hold on nodes of the assignment's type; 0 if the
/// assignment has no node.
fn most_held(problem: &Problem, strategy: &Candidate, assignment: &Assignment) -> u32 {
    let nodes = &problem.cluster.nodes;
    let first = assignment.gang.first().and_then(|part| nodes.get(part.node));
    let Some(gpu_type) = first.map(|node| &node.gpu_type) else { return 0 };
    let gpus = || nodes.iter().filter(|node| node.gpu_type == *gpu_type).map(|node| node.gpus);
    let (narrowest, widest) = (gpus().min().unwrap_or(0), gpus().max().unwrap_or(0));
    strategy.most_held(narrowest, widest)
}
