//! The plan checker: whether a plan is a correct answer to a problem.
//!
//! It is written from the problem's definition and shares no code with the solver. Numbers are
//! compared with a tolerance of 1e-9 relative to the larger of the makespan and one second. This is
//! some thousand times the rounding error of a sum of a thousand runtimes, and far below a training
//! step.
//!
//! The checker proves no lower bound; it refuses a bound that contradicts the plan. That no plan
//! exists is believed only with a refutation that the checker has verified ([`verified`]).

mod caps;
mod facts;
mod held;
mod host_memory;
mod no_plan;
mod objective;
mod segments;

use std::collections::BTreeMap;

use thiserror::Error;

pub use no_plan::verified;

use crate::plan::{Assignment, Placement, Plan, PlanStatus};
use crate::problem::{Candidate, Problem};

/// Relative tolerance of every comparison of times.
const TOLERANCE: f64 = 1e-9;

/// A fault of a plan. Tasks and nodes are given by name, or as `#index` if no task or node has that
/// index.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Violation {
    /// An assignment refers to a task that doesn't exist.
    #[error("an assignment is for task #{0}, which the problem doesn't have")]
    UnknownTask(usize),
    /// A task has no assignment.
    #[error("task `{0}` is not in the plan")]
    Missing(String),
    /// A task without switches has several assignments.
    #[error("task `{0}` is in the plan more than once, but it has no switch cost")]
    Repeated(String),
    /// The shares of a task's assignments are not positive or don't sum to 1.
    #[error("task `{task}` does {shares:?} of its work: expected positive shares that sum to 1")]
    Shares {
        /// The task.
        task: String,
        /// The shares of its assignments, by start.
        shares: Vec<f64>,
    },
    /// A segment starts before the segment before it has ended.
    #[error("task `{task}` goes on at {start_s} s while its segment before that ends at {end_s} s")]
    SegmentOverlap {
        /// The task.
        task: String,
        /// When the later segment starts, seconds.
        start_s: f64,
        /// When the earlier segment ends, seconds.
        end_s: f64,
    },
    /// An assignment refers to a strategy that the task doesn't have.
    #[error("task `{task}` runs under strategy #{strategy}, which it doesn't have")]
    UnknownStrategy {
        /// The task.
        task: String,
        /// The index of the strategy.
        strategy: usize,
    },
    /// The devices are not a gang that the strategy allows.
    #[error("task `{task}`: {reason}")]
    Gang {
        /// The task.
        task: String,
        /// What is wrong with its devices.
        reason: String,
    },
    /// A start or an end is negative or not a number, or the time between them is not the time that
    /// the work takes.
    #[error("task `{task}` runs from {start_s} to {end_s}, but its work there takes {takes_s} s")]
    Times {
        /// The task.
        task: String,
        /// Its start, seconds.
        start_s: f64,
        /// Its end, seconds.
        end_s: f64,
        /// The time for its share of the strategy's runtime, and for a switch before it, seconds.
        takes_s: f64,
    },
    /// Two assignments hold the same device at the same time.
    #[error(
        "tasks `{first}` and `{second}` both hold device {device} of node `{node}` at {at_s} s"
    )]
    Overlap {
        /// The task that started first.
        first: String,
        /// The task that started second.
        second: String,
        /// The node.
        node: String,
        /// The device.
        device: u32,
        /// When the second task starts, seconds.
        at_s: f64,
    },
    /// The gangs on a node take more host memory than it has.
    #[error(
        "task `{task}` runs on node `{node}`, where gangs take {taken} bytes of host memory at \
         {at_s} s: it has {has}"
    )]
    HostMemory {
        /// The task that the plan started there last.
        task: String,
        /// The node.
        node: String,
        /// When it starts, seconds.
        at_s: f64,
        /// Bytes that all gangs on the node take then.
        taken: u128,
        /// Bytes that the node has.
        has: u64,
    },
    /// An owner's gangs hold more devices than the owner's cap.
    #[error(
        "task `{task}` starts at {at_s} s, when gangs of `{owner}` hold {held} devices: at most \
         {max_gpus} may be held at once"
    )]
    Cap {
        /// The task that the plan starts last.
        task: String,
        /// The owner.
        owner: String,
        /// When it starts, seconds.
        at_s: f64,
        /// Devices that all gangs of the owner hold then.
        held: u128,
        /// Devices that they may hold.
        max_gpus: u32,
    },
    /// The plan violates a fact of the problem: a release, a deadline, an order or a place.
    #[error("task `{task}` {reason}")]
    Fact {
        /// The task.
        task: String,
        /// How the task violates it.
        reason: String,
    },
    /// A value of the plan disagrees with its assignments.
    #[error("{what} is {stated}, but the assignments come to {real}")]
    Value {
        /// Which value.
        what: &'static str,
        /// The plan's value.
        stated: f64,
        /// The value that follows from the assignments.
        real: f64,
    },
    /// A lower bound is negative, not a number, or above the value that it bounds.
    #[error("lower bound of the {what} is {bound} with a {what} of {value}")]
    LowerBound {
        /// Which value.
        what: &'static str,
        /// The plan's bound.
        bound: f64,
        /// The plan's value.
        value: f64,
    },
    /// The plan contradicts its status.
    #[error("status is {status:?}, but {reason}")]
    Status {
        /// The plan's status.
        status: PlanStatus,
        /// Why the status can't be true.
        reason: String,
    },
}

/// Checks `plan` against `problem`. Every task must appear once, or in segments that do its work
/// once, under one of its strategies. Its devices must exist, suit the strategy, and belong to no
/// other task at the time. Every fact of the problem must hold, and numbers and status must agree.
///
/// Returns all faults, in the order of the plan.
pub fn check(problem: &Problem, plan: &Plan) -> Result<(), Vec<Violation>> {
    let mut violations = Vec::new();
    if plan.is_usable() {
        check_assignments(problem, plan, &mut violations);
        segments::check_tasks(problem, plan, &mut violations);
        check_devices(problem, plan, &mut violations);
        host_memory::check_host_memory(problem, plan, &mut violations);
        caps::check_caps(problem, plan, &mut violations);
        facts::check_facts(problem, plan, &mut violations);
        objective::check_values(problem, plan, &mut violations);
    } else {
        check_no_plan(problem, plan, &mut violations);
    }
    objective::check_bounds(plan, &mut violations);
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

fn slack(makespan_s: f64) -> f64 {
    TOLERANCE * makespan_s.abs().max(1.0)
}

fn check_assignments(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    for assignment in &plan.assignments {
        let Some(task) = problem.tasks.get(assignment.task) else {
            violations.push(Violation::UnknownTask(assignment.task));
            continue;
        };
        let Some(strategy) = task.strategies.get(assignment.strategy) else {
            violations.push(Violation::UnknownStrategy {
                task: task.name.clone(),
                strategy: assignment.strategy,
            });
            continue;
        };
        if let Err(reason) = gang_fault(problem, strategy, &assignment.gang) {
            violations.push(Violation::Gang { task: task.name.clone(), reason });
        }
    }
}

/// Checks that the devices are a gang of `strategy`; the error says why not.
pub(crate) fn gang_fault(
    problem: &Problem,
    strategy: &Candidate,
    gang: &[Placement],
) -> Result<(), String> {
    let nodes = &problem.cluster.nodes;
    let mut held: BTreeMap<usize, u32> = BTreeMap::new();
    for part in gang {
        let node = nodes
            .get(part.node)
            .ok_or_else(|| format!("it holds node #{}, which doesn't exist", part.node))?;
        if let Some(device) = part.devices.iter().find(|device| **device >= node.gpus) {
            return Err(format!(
                "it holds device {device} of node `{}`, which has {}",
                node.name, node.gpus
            ));
        }
        if !part.devices.is_sorted_by(|left, right| left < right) {
            return Err(format!(
                "its devices on node `{}` are not ascending and unique",
                node.name
            ));
        }
        let count = u32::try_from(part.devices.len()).unwrap_or(u32::MAX);
        if count == 0 || held.insert(part.node, count).is_some() {
            return Err(format!("it holds node `{}` twice, or none of its devices", node.name));
        }
    }
    let Some((&first, _)) = held.first_key_value() else {
        return Err("it holds no device".to_owned());
    };
    let kind = &nodes[first].gpu_type;
    if let Some(other) = held.keys().find(|node| nodes[**node].gpu_type != *kind) {
        return Err(format!("it holds types `{kind}` and `{}`", nodes[*other].gpu_type));
    }
    if strategy.gpu_type.as_ref().is_some_and(|wanted| **wanted != **kind) {
        return Err(format!("its strategy is not for type `{kind}`"));
    }
    let total: u64 = held.values().map(|count| u64::from(*count)).sum();
    let gpus = u64::from(strategy.gpus);
    let widest = nodes.iter().filter(|node| node.gpu_type == *kind).map(|node| node.gpus).max();
    if widest >= Some(strategy.gpus) {
        if held.len() == 1 && total == gpus {
            return Ok(());
        }
        return Err(format!(
            "its strategy takes {gpus} devices of one node; it holds {total} of {}",
            held.len()
        ));
    }
    check_wide_gang(problem, strategy, &held)
}

/// Checks a gang that is wider than every node of its type. It must hold whole nodes, none of them
/// superfluous. With `pack` it must hold exactly its number of devices, and at most one node in
/// part.
fn check_wide_gang(
    problem: &Problem,
    strategy: &Candidate,
    held: &BTreeMap<usize, u32>,
) -> Result<(), String> {
    let nodes = &problem.cluster.nodes;
    let gpus = u64::from(strategy.gpus);
    let total: u64 = held.values().map(|count| u64::from(*count)).sum();
    let num_part_held = held.iter().filter(|(node, count)| nodes[**node].gpus != **count).count();
    let smallest = held.values().min().copied().map_or(0, u64::from);
    if strategy.pack {
        if total != gpus {
            return Err(format!("its strategy takes {gpus} devices; it holds {total}"));
        }
        if num_part_held > 1 {
            return Err(format!("it holds part of {num_part_held} nodes: one may be part-filled"));
        }
    } else {
        if num_part_held > 0 {
            return Err(format!(
                "its strategy takes whole nodes; it holds part of {num_part_held}"
            ));
        }
        if total < gpus || total - smallest >= gpus {
            return Err(format!(
                "its strategy takes as many whole nodes as {gpus} devices need; it holds {total}"
            ));
        }
    }
    Ok(())
}

fn check_devices(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    let slack = slack(plan.makespan_s);
    let mut by_device: BTreeMap<(usize, u32), Vec<&Assignment>> = BTreeMap::new();
    for assignment in plan.assignments.iter().filter(|one| one.task < problem.tasks.len()) {
        for part in assignment.gang.iter().filter(|one| one.node < problem.cluster.nodes.len()) {
            for device in &part.devices {
                by_device.entry((part.node, *device)).or_default().push(assignment);
            }
        }
    }
    for ((node, device), mut holders) in by_device {
        holders.sort_by(|left, right| left.start_s.total_cmp(&right.start_s));
        let mut last = holders[0];
        for next in &holders[1..] {
            if next.start_s < last.end_s - slack {
                violations.push(Violation::Overlap {
                    first: problem.tasks[last.task].name.clone(),
                    second: problem.tasks[next.task].name.clone(),
                    node: problem.cluster.nodes[node].name.clone(),
                    device,
                    at_s: next.start_s,
                });
            }
            if next.end_s > last.end_s {
                last = next;
            }
        }
    }
}

fn check_no_plan(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    let status = plan.status;
    if !plan.assignments.is_empty() {
        let reason = format!("it has {} assignments", plan.assignments.len());
        violations.push(Violation::Status { status, reason });
    }
    if status == PlanStatus::Infeasible && verified(problem, &plan.reasons).is_empty() {
        let reason = "no reason that it gives proves that".to_owned();
        violations.push(Violation::Status { status, reason });
    }
}
