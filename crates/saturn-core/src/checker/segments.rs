//! Checks the segments of one task: how often it appears, the shares of its work, and its times.
//!
//! A task without switches is one segment of share 1. If it runs already and the plan changes its
//! strategy, place or start, this segment also lasts the switch cost. A task that may be switched
//! can have more segments. Their shares sum to 1, and each lasts its share of its strategy's
//! runtime. All but the first also last the switch cost. None starts before the segment before it
//! has ended.

use super::facts::stays;
use super::{Violation, slack};
use crate::plan::{Assignment, Plan, WHOLE};
use crate::problem::Problem;

/// The tolerance for the sum of a task's shares, which covers the rounding of a few additions.
const SHARE_TOLERANCE: f64 = 1e-9;

/// Checks every task of `problem` by the rules of this module.
pub(super) fn check_tasks(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    let mut segments: Vec<Vec<&Assignment>> = vec![Vec::new(); problem.tasks.len()];
    for assignment in &plan.assignments {
        if let Some(segments) = segments.get_mut(assignment.task) {
            segments.push(assignment);
        }
    }
    for (task, mut segments) in segments.into_iter().enumerate() {
        segments.sort_by(|left, right| left.start_s.total_cmp(&right.start_s));
        check_task(problem, task, &segments, slack(plan.makespan_s), violations);
    }
}

/// Checks one task. Its assignments are in the order of their starts.
fn check_task(
    problem: &Problem,
    index: usize,
    segments: &[&Assignment],
    slack: f64,
    violations: &mut Vec<Violation>,
) {
    let task = &problem.tasks[index];
    let name = || task.name.clone();
    if segments.is_empty() {
        violations.push(Violation::Missing(name()));
        return;
    }
    if segments.len() > 1 && task.switch_cost_s.is_none() {
        violations.push(Violation::Repeated(name()));
        return;
    }
    let sum: f64 = segments.iter().map(|one| one.share).sum();
    let are_shares = segments.iter().all(|one| one.share > 0.0);
    let is_done_once = (sum - WHOLE).abs() <= SHARE_TOLERANCE;
    if !are_shares || !is_done_once {
        let shares = segments.iter().map(|one| one.share).collect();
        violations.push(Violation::Shares { task: name(), shares });
    }
    for (position, segment) in segments.iter().enumerate() {
        let Assignment { share, start_s, end_s, .. } = **segment;
        let Some(strategy) = task.strategies.get(segment.strategy) else { continue };
        let begins = position == 0 && (task.running.is_none() || stays(problem, task, segment));
        let lost_s = if begins { 0.0 } else { task.switch_cost_s.unwrap_or(0.0) };
        let takes_s = share * strategy.runtime_s + lost_s;
        let right =
            start_s >= 0.0 && end_s.is_finite() && (end_s - start_s - takes_s).abs() <= slack;
        if !right {
            violations.push(Violation::Times { task: name(), start_s, end_s, takes_s });
        }
    }
    for pair in segments.windows(2) {
        if pair[1].start_s < pair[0].end_s - slack {
            violations.push(Violation::SegmentOverlap {
                task: name(),
                start_s: pair[1].start_s,
                end_s: pair[0].end_s,
            });
        }
    }
}
