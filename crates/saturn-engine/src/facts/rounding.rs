//! The times of an order to the solver, rounded so that a run and its replay ask the same.

use crate::facts::event::SolveOrder;

/// Microseconds in a second.
const MICROSECONDS: f64 = 1e6;

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
                node.available_until_s = node.available_until_s.map(rounded);
            }
            for task in &mut problem.tasks {
                for candidate in &mut task.strategies {
                    // Every strategy takes some time.
                    candidate.runtime_s = rounded(candidate.runtime_s).max(1.0 / MICROSECONDS);
                }
                task.release_s = rounded(task.release_s);
                task.deadline_s = task.deadline_s.map(rounded);
                task.switch_cost_s = task.switch_cost_s.map(rounded);
            }
            problem.deadline_s = problem.deadline_s.map(rounded);
        }
        self
    }
}

fn rounded(time_s: f64) -> f64 {
    (time_s * MICROSECONDS).round() / MICROSECONDS
}

#[cfg(test)]
mod tests {
    use saturn_core::{Candidate, Cluster, Objective, Problem, ProblemTask};

    use super::*;

    fn order(runtime_s: f64) -> SolveOrder {
        let strategy =
            Candidate { technique: "ddp".into(), gpus: 1, gpu_type: None, runtime_s, pack: true };
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
            warm_start: None,
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
    }
}
