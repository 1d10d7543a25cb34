//! The plan checker: whether a plan is a right answer to a problem.
//!
//! Written from the problem's definition and sharing nothing with the solver. Numbers are compared
//! with a tolerance of 1e-9 relative to the larger of the makespan and one second: that is some
//! thousand times the rounding of a sum of a thousand runtimes, and far below a training step.
//!
//! It does not prove a lower bound, nor that no plan exists; it refuses a bound that contradicts the
//! plan, and an infeasible problem without a reason.

mod facts;
mod objective;
mod segments;

use std::collections::BTreeMap;

use thiserror::Error;

use crate::plan::{Assignment, Placement, Plan, PlanStatus};
use crate::problem::{Candidate, Problem};

/// Relative tolerance of every comparison of times.
const TOLERANCE: f64 = 1e-9;
/// The largest gap that may be called optimal.
const OPTIMAL_GAP: f64 = 1e-6;

/// One thing that is wrong with a plan. Tasks and nodes are given by name, or as `#index` where the
/// index names nothing.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Violation {
    /// An assignment refers to a task that doesn't exist.
    #[error("an assignment is for task #{0}, which the problem doesn't have")]
    UnknownTask(usize),
    /// A task has no assignment.
    #[error("task `{0}` is not in the plan")]
    Missing(String),
    /// A task that must not be switched has several assignments.
    #[error("task `{0}` is in the plan more than once, but it has no switch cost")]
    Repeated(String),
    /// The shares of a task's assignments are not positive or don't sum to 1.
    #[error("task `{task}` does {shares:?} of its work: expected positive shares that sum to 1")]
    Shares {
        /// The task.
        task: String,
        /// Its assignments' shares, by start.
        shares: Vec<f64>,
    },
    /// A segment starts before the one before it has ended.
    #[error("task `{task}` goes on at {start_s} s while its segment before that ends at {end_s} s")]
    SegmentOverlap {
        /// The task.
        task: String,
        /// When the later segment starts, seconds.
        start_s: f64,
        /// When the earlier one ends, seconds.
        end_s: f64,
    },
    /// An assignment refers to a strategy that the task doesn't have.
    #[error("task `{task}` runs under strategy #{strategy}, which it doesn't have")]
    UnknownStrategy {
        /// The task.
        task: String,
        /// The index.
        strategy: usize,
    },
    /// The devices can't be those of the strategy's gang.
    #[error("task `{task}`: {reason}")]
    Gang {
        /// The task.
        task: String,
        /// What is wrong with its devices.
        reason: String,
    },
    /// A start or an end is negative, not a number, or not as far apart as the work takes.
    #[error(
        "task `{task}` runs from {start_s} to {end_s}, but what it does there takes {takes_s} s"
    )]
    Times {
        /// The task.
        task: String,
        /// Its start, seconds.
        start_s: f64,
        /// Its end, seconds.
        end_s: f64,
        /// What its share of the strategy's runtime and a switch before it take, seconds.
        takes_s: f64,
    },
    /// Two assignments hold one device at one time.
    #[error(
        "tasks `{first}` and `{second}` both hold device {device} of node `{node}` at {at_s} s"
    )]
    Overlap {
        /// The task that started first.
        first: String,
        /// The other.
        second: String,
        /// The node.
        node: String,
        /// The device.
        device: u32,
        /// When the second starts, seconds.
        at_s: f64,
    },
    /// A fact of the problem is not kept: a release, a deadline, an order, a place.
    #[error("task `{task}` {reason}")]
    Fact {
        /// The task.
        task: String,
        /// What it does.
        reason: String,
    },
    /// A value isn't what the assignments come to.
    #[error("{what} is {stated}, but the assignments come to {real}")]
    Value {
        /// Which value.
        what: &'static str,
        /// What the plan says.
        stated: f64,
        /// What its assignments say.
        real: f64,
    },
    /// A lower bound is negative, not a number, or above what it bounds.
    #[error("lower bound of the {what} is {bound} with a {what} of {value}")]
    LowerBound {
        /// Which value.
        what: &'static str,
        /// What the plan says.
        bound: f64,
        /// What the plan says.
        value: f64,
    },
    /// The status says what the plan doesn't bear out.
    #[error("status is {status:?}, but {reason}")]
    Status {
        /// What the plan says.
        status: PlanStatus,
        /// Why that can't be.
        reason: String,
    },
}

/// Checks `plan` against `problem`: every task once, or in segments that do its work once, under its
/// strategies, on devices that exist, suit the strategy and are nobody else's at the time, with
/// every fact of the problem kept, and with numbers and a status that agree.
///
/// Returns everything that is wrong, in the order of the plan.
pub fn check(problem: &Problem, plan: &Plan) -> Result<(), Vec<Violation>> {
    let mut violations = Vec::new();
    if plan.is_usable() {
        check_assignments(problem, plan, &mut violations);
        segments::check_tasks(problem, plan, &mut violations);
        check_devices(problem, plan, &mut violations);
        facts::check_facts(problem, plan, &mut violations);
        objective::check_values(problem, plan, &mut violations);
    } else {
        check_no_plan(plan, &mut violations);
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

/// Whether the devices are those of one gang of `strategy`.
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

/// A gang wider than every node of its type: whole nodes, none of them superfluous; with `pack`
/// exactly its devices, and at most one node held in part.
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

fn check_no_plan(plan: &Plan, violations: &mut Vec<Violation>) {
    let status = plan.status;
    if !plan.assignments.is_empty() {
        let reason = format!("it has {} assignments", plan.assignments.len());
        violations.push(Violation::Status { status, reason });
    }
    if status == PlanStatus::Infeasible && plan.reasons.is_empty() {
        let reason = "it gives no reason".to_owned();
        violations.push(Violation::Status { status, reason });
    }
}
