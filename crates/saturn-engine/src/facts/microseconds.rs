//! The times of a solver's order, as the solver gets them: whole microseconds.

use crate::facts::event::SolveOrder;

/// Microseconds in a second, and the reverse.
const MICROSECONDS: f64 = 1e6;
const MICROSECOND_S: f64 = 1.0 / MICROSECONDS;

impl SolveOrder {
    /// The order with its times rounded to whole microseconds. The times of a run and of its replay
    /// may differ in the last bit, since they are sums of different numbers. A search that saw such
    /// a bit would take another course.
    #[must_use]
    pub fn in_microseconds(mut self) -> Self {
        let problems = [Some(&mut self.problem), self.optimistic.as_mut(), self.expected.as_mut()];
        for problem in problems.into_iter().flatten() {
            for node in &mut problem.cluster.nodes {
                node.available_from_s = rounded(node.available_from_s);
                // A node is there for some time.
                let least_s = node.available_from_s + MICROSECOND_S;
                node.available_until_s =
                    node.available_until_s.map(|until_s| rounded(until_s).max(least_s));
            }
            for task in &mut problem.tasks {
                for candidate in &mut task.strategies {
                    // Every strategy takes some time.
                    candidate.runtime_s = rounded(candidate.runtime_s).max(MICROSECOND_S);
                }
                task.release_s = rounded(task.release_s);
                task.deadline_s = task.deadline_s.map(ahead);
                task.most_late_s = task.most_late_s.map(rounded);
                task.switch_cost_s = task.switch_cost_s.map(rounded);
            }
            problem.deadline_s = problem.deadline_s.map(ahead);
        }
        for place in self.warm_start.iter_mut().flat_map(|plan| &mut plan.assignments) {
            // What starts at 0 trains already.
            place.start_s =
                if place.start_s > 0.0 { ahead(place.start_s) } else { rounded(place.start_s) };
            place.end_s = rounded(place.end_s);
        }
        self
    }
}

fn rounded(time_s: f64) -> f64 {
    (time_s * MICROSECONDS).round() / MICROSECONDS
}

/// A time ahead, rounded so that it stays ahead by a microsecond at least. The solver refuses a
/// problem with a deadline at 0, and takes a place that starts at 0 for the place of a running task.
fn ahead(time_s: f64) -> f64 {
    rounded(time_s).max(MICROSECOND_S)
}

#[cfg(test)]
mod tests {
    use saturn_core::{
        Assignment, Candidate, Cluster, Node, Objective, Plan, Problem, ProblemTask, WHOLE,
    };

    use super::*;

    fn order(runtime_s: f64) -> SolveOrder {
        let strategy = Candidate {
            technique: "ddp".into(),
            gpus: 1,
            gpu_type: None,
            runtime_s,
            pack: true,
            host_bytes: 0,
            relative_error: 0.0,
        };
        let task = ProblemTask { release_s: runtime_s, ..ProblemTask::new("a", vec![strategy]) };
        SolveOrder {
            problem: Problem::new(Cluster { nodes: Vec::new() }, vec![task]),
            optimistic: None,
            expected: None,
            objective: Objective::Makespan,
            time_limit_s: 1.0,
            seed: 0,
            max_switches: 0,
            min_switch_gain: 0.0,
            min_move_gain: 0.0,
            min_move_gain_s: 0.0,
            warm_start: Some(Plan {
                assignments: vec![Assignment {
                    task: 0,
                    strategy: 0,
                    gang: Vec::new(),
                    share: WHOLE,
                    start_s: runtime_s,
                    end_s: 2.0 * runtime_s,
                }],
                ..Plan::none(Objective::Makespan)
            }),
        }
    }

    #[test]
    fn orders_are_equal_whose_times_differ_in_their_last_bits() {
        let (one, other) = (134.366_796_979_805_83, 134.366_796_979_805_74);
        assert_ne!(order(one), order(other));
        assert_eq!(order(one).in_microseconds(), order(other).in_microseconds());
        assert_ne!(order(one).in_microseconds(), order(one + 1e-5).in_microseconds());
        let short = order(1e-9).in_microseconds();
        assert!(short.problem.tasks[0].strategies[0].runtime_s > 0.0);
        let waiting = &short.warm_start.expect("it was given").assignments[0];
        assert!(waiting.start_s > 0.0, "only what trains starts at once");
    }

    /// A deadline that has all but come is still ahead.
    #[test]
    fn what_is_due_within_half_a_microsecond_is_not_due_at_once() {
        let mut order = order(1.0);
        order.problem.cluster.nodes = vec![Node {
            available_from_s: 3.000_000_1,
            available_until_s: Some(3.000_000_3),
            ..Node::new("n", 1, "gpu")
        }];
        order.problem.tasks[0].deadline_s = Some(2e-7);
        order.problem.deadline_s = Some(4e-7);
        order.in_microseconds().problem.validate().expect("valid in microseconds");
    }
}
