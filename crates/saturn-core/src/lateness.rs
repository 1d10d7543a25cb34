//! How late the tasks with a deadline end: mean, 90th percentile and worst.
//!
//! A mean hides the tail: one task may be hours late while most keep their deadlines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::problem::Problem;

/// How late the tasks with a deadline end, seconds. A task that ends in time is 0 s late.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// How many tasks have a deadline.
    pub num_due: usize,
    /// How many of these tasks end after their deadline.
    pub num_late: usize,
    /// The mean over all tasks with a deadline, seconds.
    pub mean_s: f64,
    /// Nine tenths of the tasks with a deadline are no later than this, seconds.
    pub p90_s: f64,
    /// The latest task, seconds.
    pub worst_s: f64,
}

impl Lateness {
    /// The lateness of tasks with these deadlines and ends, both in seconds. `None` without any.
    pub fn of(due_and_end_s: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let late = due_and_end_s.into_iter().map(|(due_s, end_s)| (end_s - due_s).max(0.0));
        let mut late: Vec<f64> = late.collect();
        late.sort_by(f64::total_cmp);
        // The least number that nine tenths don't exceed: no interpolation, so it is a task's own.
        let at_p90 = (late.len() * 9).div_ceil(10).saturating_sub(1);
        Some(Self {
            num_due: late.len(),
            num_late: late.iter().filter(|late_s| **late_s > 0.0).count(),
            mean_s: late.iter().sum::<f64>() / late.len() as f64,
            p90_s: *late.get(at_p90)?,
            worst_s: *late.last()?,
        })
    }
}

impl Plan {
    /// How late the plan's tasks end after their deadlines; `None` if no task has a deadline, or if
    /// there is no plan. Less than the checker allows for rounding is not late.
    pub fn lateness(&self, problem: &Problem) -> Option<Lateness> {
        let mut ends: BTreeMap<usize, f64> = BTreeMap::new();
        for one in &self.assignments {
            let last_s = ends.entry(one.task).or_default();
            *last_s = last_s.max(one.end_s);
        }
        let rounding_s = 1e-9 * self.makespan_s.max(1.0);
        Lateness::of(ends.into_iter().filter_map(|(task, end_s)| {
            let own_s = problem.tasks.get(task)?.deadline_s.unwrap_or(f64::INFINITY);
            let due_s = own_s.min(problem.deadline_s.unwrap_or(f64::INFINITY));
            let is_late = end_s > due_s + rounding_s;
            due_s.is_finite().then_some((due_s, if is_late { end_s } else { due_s }))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ninetieth_percentile_is_some_task_s_own_lateness() {
        assert_eq!(Lateness::of([]), None);
        let of = |late: &[f64]| Lateness::of(late.iter().map(|late_s| (100.0, 100.0 + late_s)));
        let one = of(&[5.0]);
        let known = Lateness { num_due: 1, num_late: 1, mean_s: 5.0, p90_s: 5.0, worst_s: 5.0 };
        assert_eq!(one, Some(known));
        let ten: Vec<f64> = (0..10).map(f64::from).collect();
        let known = Lateness { num_due: 10, num_late: 9, mean_s: 4.5, p90_s: 8.0, worst_s: 9.0 };
        assert_eq!(of(&ten), Some(known));
        // Ends before the deadline are no credit for late tasks.
        let known = Lateness { num_due: 3, num_late: 1, mean_s: 2.0, p90_s: 6.0, worst_s: 6.0 };
        assert_eq!(of(&[-50.0, 6.0, 0.0]), Some(known));
    }
}
