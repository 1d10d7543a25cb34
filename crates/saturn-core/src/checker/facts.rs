//! Checks facts of a problem that bind single assignments: releases, deadlines, precedence, the
//! windows of nodes, pinned and forbidden places, and tasks that already run.

use std::collections::{BTreeMap, BTreeSet};

use super::{Violation, slack};
use crate::plan::{Assignment, Plan};
use crate::problem::{Problem, ProblemTask};

pub(super) fn check_facts(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    let slack = slack(plan.makespan_s);
    let mut spans: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let mut are_left: BTreeSet<&str> = BTreeSet::new();
    let known =
        || plan.assignments.iter().filter_map(|one| Some((problem.tasks.get(one.task)?, one)));
    for (task, assignment) in known() {
        let span = spans.entry(&task.name).or_insert((f64::INFINITY, 0.0));
        *span = (span.0.min(assignment.start_s), span.1.max(assignment.end_s));
        if !assignment.is_segment() && is_left(problem, task, assignment) {
            are_left.insert(&task.name);
        }
        for reason in [
            broken_time(problem, task, assignment, slack),
            broken_place(problem, task, assignment, slack),
        ] {
            violations.extend(reason.map(|reason| fact(task, reason)));
        }
    }
    for task in &problem.tasks {
        let Some((start_s, _)) = spans.get(task.name.as_str()) else { continue };
        for first in &task.after {
            let ended_s = spans.get(first.as_str()).map_or(f64::INFINITY, |span| span.1);
            if *start_s < ended_s - slack {
                let reason =
                    format!("starts at {start_s} s, before `{first}` has ended at {ended_s} s");
                violations.push(fact(task, reason));
            }
        }
        if task.running.as_ref().is_some_and(|running| !running.movable)
            && !are_left.contains(task.name.as_str())
        {
            let reason = "runs already and can't be moved, but the plan doesn't leave it there";
            violations.push(fact(task, reason.to_owned()));
        }
    }
}

fn fact(task: &ProblemTask, reason: String) -> Violation {
    Violation::Fact { task: task.name.clone(), reason }
}

fn broken_time(
    problem: &Problem,
    task: &ProblemTask,
    assignment: &Assignment,
    slack: f64,
) -> Option<String> {
    let Assignment { start_s, end_s, .. } = *assignment;
    let due_s = problem.due_s(task);
    // Another check refuses a start before 0.
    if start_s < task.release_s - slack && start_s >= 0.0 {
        Some(format!("starts at {start_s} s, before its release at {} s", task.release_s))
    } else if end_s > due_s + slack {
        Some(format!("ends at {end_s} s, after its deadline at {due_s} s"))
    } else {
        None
    }
}

fn broken_place(
    problem: &Problem,
    task: &ProblemTask,
    assignment: &Assignment,
    slack: f64,
) -> Option<String> {
    let Assignment { start_s, end_s, .. } = *assignment;
    for node in assignment.gang.iter().filter_map(|part| problem.cluster.nodes.get(part.node)) {
        let name = &node.name;
        if !task.may_use(name) {
            return Some(format!("holds devices of node `{name}`, which it may not use"));
        }
        if start_s < node.available_from_s - slack && start_s >= 0.0 {
            let from_s = node.available_from_s;
            return Some(format!(
                "starts at {start_s} s, before node `{name}` arrives at {from_s} s"
            ));
        }
        if end_s > node.until_s() + slack {
            let until_s = node.until_s();
            return Some(format!("ends at {end_s} s, after node `{name}` leaves at {until_s} s"));
        }
    }
    None
}

/// Whether a task runs already and an assignment leaves it as it runs.
pub(super) fn is_left(problem: &Problem, task: &ProblemTask, assignment: &Assignment) -> bool {
    task.running.is_some() && stays(problem, task, assignment)
}

/// Whether an assignment leaves a running task unchanged: from the start of the plan, under its
/// present strategy, on its present devices.
pub(super) fn stays(problem: &Problem, task: &ProblemTask, assignment: &Assignment) -> bool {
    let mut gang = assignment.gang.clone();
    gang.sort_by_key(|part| part.node);
    task.running_strategy() == Some(assignment.strategy)
        && assignment.start_s == 0.0
        && problem.running_gang(task) == Some(gang)
}
