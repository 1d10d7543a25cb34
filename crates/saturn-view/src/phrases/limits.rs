//! The limits of a planning problem's tasks and nodes, beyond devices and runtimes, in words.

use saturn_core::names::escape_terminal;
use saturn_core::{Lateness, Node, Plan, Problem, ProblemTask};

use crate::layout::units::{clock, duration};

/// The limits of a task: `from 0:20, after base, by 1:00`; empty if it has none.
pub(crate) fn of_task(task: &ProblemTask) -> String {
    let mut limits = Vec::new();
    if let Some(running) = &task.running {
        limits.push(if running.movable { "running, movable" } else { "running" }.to_owned());
    }
    if task.release_s > 0.0 {
        limits.push(format!("from {}", clock(task.release_s)));
    }
    if !task.after.is_empty() {
        limits.push(format!("after {}", names(&task.after)));
    }
    if let Some(deadline_s) = task.deadline_s {
        let soft = soft_deadline(task.late_price, task.most_late_s);
        limits.push(format!("by {}{soft}", clock(deadline_s)));
    }
    if let Some(only) = &task.only_nodes {
        limits.push(format!("on {}", names(only)));
    }
    if !task.not_nodes.is_empty() {
        limits.push(format!("not on {}", names(&task.not_nodes)));
    }
    if let Some(owner) = &task.owner {
        limits.push(format!("of {}", escape_terminal(owner)));
    }
    if task.weight.to_bits() != 1.0f64.to_bits() {
        limits.push(format!("weight {}", task.weight));
    }
    limits.join(", ")
}

/// What follows a soft deadline: ` (soft: 2 a second, at most 5 min late)`; empty for a hard one.
pub(crate) fn soft_deadline(late_price: Option<f64>, most_late_s: Option<f64>) -> String {
    let most = most_late_s.map(|most_s| format!(", at most {} late", duration(most_s)));
    let most = most.unwrap_or_default();
    late_price.map(|price| format!(" (soft: {price} a second{most})")).unwrap_or_default()
}

/// The limits of a node: `2.50 an hour, there from 0:20 to 0:50`; empty if it is free and always
/// there.
fn of_node(node: &Node) -> String {
    let mut limits = Vec::new();
    if node.price_per_hour > 0.0 {
        limits.push(format!("{:.2} an hour", node.price_per_hour));
    }
    match (node.available_from_s > 0.0, node.available_until_s) {
        (false, None) => {}
        (true, None) => limits.push(format!("there from {}", clock(node.available_from_s))),
        (false, Some(until_s)) => limits.push(format!("there until {}", clock(until_s))),
        (true, Some(until_s)) => {
            limits.push(format!(
                "there from {} to {}",
                clock(node.available_from_s),
                clock(until_s)
            ));
        }
    }
    limits.join(", ")
}

/// Lines for the common deadline, for how the plan keeps deadlines, for each node with limits or a
/// price, and for each owner.
pub(crate) fn of_plan(problem: &Problem, plan: &Plan) -> Vec<String> {
    let all = problem.deadline_s.map(|deadline_s| {
        format!("every task must end by {} ({})", clock(deadline_s), duration(deadline_s))
    });
    let nodes = problem.cluster.nodes.iter().filter_map(|node| {
        let limits = of_node(node);
        (!limits.is_empty()).then(|| format!("node {}: {limits}", escape_terminal(&node.name)))
    });
    let kept = plan.lateness(problem).map(|late| lateness(&late));
    let owners = problem.owners.iter().map(|owner| {
        let name = escape_terminal(&owner.name);
        let noun = if owner.max_gpus == 1 { "GPU" } else { "GPUs" };
        format!("{name} may hold {} {noun} at once", owner.max_gpus)
    });
    all.into_iter().chain(kept).chain(nodes).chain(owners).collect()
}

/// How deadlines are kept: `2 of 5 deadlines missed: 3 min late on average over all 5, 10 min at the
/// 90th percentile, 12 min at worst`.
pub(crate) fn lateness(lateness: &Lateness) -> String {
    let Lateness { num_due, num_late, mean_s, p90_s, worst_s } = *lateness;
    match (num_due, num_late) {
        (1, 0) => "the one deadline is kept".to_owned(),
        (1, _) => format!("the one deadline is missed by {}", duration(worst_s)),
        (_, 0) => format!("all {num_due} deadlines are kept"),
        _ => format!(
            "{num_late} of {num_due} deadlines missed: {} late on average over all {num_due}, {} at \
             the 90th percentile, {} at worst",
            duration(mean_s),
            duration(p90_s),
            duration(worst_s),
        ),
    }
}

fn names(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| escape_terminal(name)).collect();
    names.join(" and ")
}
