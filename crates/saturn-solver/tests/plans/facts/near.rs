//! Plans that differ by a millionth: `optimal` means that no plan is better by more than that.

use proptest::prelude::*;
use saturn_core::{OPTIMAL_GAP, PlanStatus, Problem};
use saturn_solver::{Backend, Objective};

use super::problems::problems;
use super::run;
use crate::completion::SIX;
use crate::completion::orders::least;
use crate::support::cases;

/// The same problem in units of a hundred thousandth: some runtimes are a few units longer.
fn nearly_equal(mut problem: Problem, units: &[u32]) -> Problem {
    const UNIT: f64 = 1e-5;
    let mut units = units.iter().cycle();
    for strategy in problem.tasks.iter_mut().flat_map(|task| &mut task.strategies) {
        strategy.runtime_s += UNIT * f64::from(*units.next().unwrap());
    }
    // What no longer fits its windows by a few units is not what this is about.
    problem.deadline_s = None;
    problem.tasks.iter_mut().for_each(|task| task.deadline_s = None);
    problem.cluster.nodes.iter_mut().for_each(|node| node.available_until_s = None);
    problem
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn nothing_beats_an_optimal_plan_by_more_than_a_millionth(
        problem in problems(SIX),
        units in prop::collection::vec(0u32..=6, 1..=12),
    ) {
        let problem = nearly_equal(problem, &units);
        for objective in [Objective::Makespan, Objective::Completion] {
            let Some(least) = least(&problem, objective) else { continue };
            for backend in [Backend::Milp, Backend::Auto] {
                let plan = run(&problem, backend, objective, 1_500);
                prop_assert!(plan.bound() <= least * (1.0 + 1e-9), "{objective}: {plan:?} {least}");
                if plan.status == PlanStatus::Optimal {
                    let most = least * (1.0 + OPTIMAL_GAP) + 1e-9;
                    prop_assert!(plan.value() <= most, "{objective}: {plan:?} {least}");
                }
            }
        }
    }
}
