//! Problems with releases, precedence, deadlines, weights, windows, prices, pinned places and running
//! tasks: against an exhaustive search, and against each other.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod caps;
pub(crate) mod exhaustion;
mod host_memory;
mod impossible;
mod in_time;
mod near;
pub(crate) mod problems;
mod running;
mod six;
pub(crate) mod soft;
mod soft_pairs;
mod tail;

use proptest::prelude::*;
use saturn_core::{Plan, PlanStatus, Problem, ProblemTask, SolveEnd};
use saturn_solver::{Backend, FrozenClock, Objective, Options, solve};

use crate::support::cases;
use exhaustion::brute_force;
use problems::{SMALL, TINY, problems};

fn run(problem: &Problem, backend: Backend, objective: Objective, max_moves: u64) -> Plan {
    let options = Options {
        backend,
        objective,
        max_moves: Some(max_moves),
        time_limit_s: 60.0,
        ..Options::default()
    };
    solve(problem, &options, &FrozenClock).unwrap()
}

fn is_close(left: f64, right: f64) -> bool {
    (left - right).abs() <= 2e-6 * right.abs().max(1.0)
}

/// The optimum by the exact program; `None` where there is no plan.
fn optimum(problem: &Problem, objective: Objective) -> Option<f64> {
    let plan = run(problem, Backend::Milp, objective, 2_000);
    assert!(is_settled(&plan), "{plan:?}");
    plan.is_usable().then(|| plan.value())
}

/// Whether an answer of the exact program says the last word: the best plan, or that there is none. That
/// word is no proof.
fn is_settled(plan: &Plan) -> bool {
    plan.status == PlanStatus::Optimal || !plan.is_usable() && plan.ended == SolveEnd::Complete
}

fn agree(left: Option<f64>, right: Option<f64>) -> bool {
    match (left, right) {
        (None, None) => true,
        (Some(left), Some(right)) => is_close(left, right),
        _ => false,
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn tiny_problems_equal_exhaustion(problem in problems(TINY)) {
        let least = brute_force(&problem);
        for (index, &objective) in Objective::ALL.iter().enumerate() {
            let value = least.map(|least| least[index]);
            let exact = optimum(&problem, objective);
            prop_assert!(agree(exact, value), "{objective}: {exact:?}, exhaustion {least:?}");
            let auto = run(&problem, Backend::Auto, objective, 4_000);
            let found = auto.is_usable().then(|| auto.value());
            prop_assert!(agree(found, value), "{objective}: {auto:?}, exhaustion {least:?}");
            let search = run(&problem, Backend::Search, objective, 20_000);
            prop_assert!(search.status != PlanStatus::Infeasible || least.is_none());
            let Some(least) = least else { continue };
            if search.is_usable() {
                prop_assert!(search.value() >= least[index] * (1.0 - 1e-9));
            }
            for plan in [&auto, &search] {
                let bounds = [plan.lower_bound_s, plan.completion_bound_s, plan.cost_bound];
                for (bound, least) in bounds.iter().zip(least) {
                    prop_assert!(*bound <= least * (1.0 + 1e-9), "{objective}: {plan:?} {least:?}");
                }
            }
        }
    }

    #[test]
    fn yardsticks_give_valid_plans_or_say_why_not(problem in problems(TINY)) {
        let least = brute_force(&problem);
        for backend in [Backend::CurrentPractice, Backend::Max, Backend::Min, Backend::Optimus, Backend::Random] {
            let plan = run(&problem, backend, Objective::Cost, 1);
            match plan.status {
                PlanStatus::Infeasible => prop_assert!(least.is_none()),
                PlanStatus::TimedOut => prop_assert!(!plan.reasons.is_empty()),
                _ => {
                    prop_assert!(plan.value() >= least.unwrap()[2] * (1.0 - 1e-9));
                    prop_assert_eq!(plan.ended, SolveEnd::Complete);
                }
            }
        }
    }
}

/// The same problem with every time `factor` times as long.
fn scaled(problem: &Problem, factor: f64) -> Problem {
    let mut scaled = problem.clone();
    let scale = |time: &mut Option<f64>| *time = time.map(|time| time * factor);
    scale(&mut scaled.deadline_s);
    for node in &mut scaled.cluster.nodes {
        node.available_from_s *= factor;
        scale(&mut node.available_until_s);
    }
    for task in &mut scaled.tasks {
        task.release_s *= factor;
        scale(&mut task.deadline_s);
        scale(&mut task.switch_cost_s);
        task.strategies.iter_mut().for_each(|one| one.runtime_s *= factor);
    }
    scaled
}

/// The same problem with a worse strategy for each task, behind the others.
fn padded(problem: &Problem) -> Problem {
    let mut padded = problem.clone();
    for task in &mut padded.tasks {
        let mut worse = task.strategies[0].clone();
        worse.technique = format!("{}-worse", worse.technique).into();
        worse.runtime_s += 1.0;
        task.strategies.push(worse);
    }
    padded
}

/// The same problem without a limit that `pick` chooses.
fn relaxed(problem: &Problem, pick: usize) -> Problem {
    let mut relaxed = problem.clone();
    let all = |relaxed: &mut Problem, edit: &dyn Fn(&mut ProblemTask)| {
        relaxed.tasks.iter_mut().for_each(edit);
    };
    match pick {
        0 => all(&mut relaxed, &|task| task.deadline_s = None),
        1 => all(&mut relaxed, &|task| task.after.clear()),
        2 => all(&mut relaxed, &|task| task.release_s = 0.0),
        3 => all(&mut relaxed, &|task| (task.only_nodes, task.not_nodes) = (None, Vec::new())),
        4 => all(&mut relaxed, &|task| {
            task.switch_cost_s = task.switch_cost_s.map(|_| 0.0);
            task.running.iter_mut().for_each(|running| running.movable = true);
        }),
        5 => relaxed.deadline_s = None,
        _ => relaxed.cluster.nodes.iter_mut().for_each(|node| {
            (node.available_from_s, node.available_until_s) = (0.0, None);
        }),
    }
    relaxed
}

proptest! {
    #![proptest_config(cases(30))]

    #[test]
    fn order_and_scale_and_what_is_dominated_leave_the_optimum(problem in problems(TINY)) {
        for &objective in Objective::ALL {
            let value = optimum(&problem, objective);
            let mut turned = problem.clone();
            turned.tasks.reverse();
            turned.cluster.nodes.reverse();
            prop_assert!(agree(optimum(&turned, objective), value), "{objective}");
            prop_assert!(agree(optimum(&padded(&problem), objective), value), "{objective}");
            let slow = optimum(&scaled(&problem, 4.0), objective);
            prop_assert!(agree(slow, value.map(|value| value * 4.0)), "{objective}");
        }
    }

    #[test]
    fn a_limit_less_never_worsens_the_optimum(problem in problems(TINY), pick in 0usize..7) {
        let less = relaxed(&problem, pick);
        for &objective in Objective::ALL {
            if let Some(value) = optimum(&problem, objective) {
                let relaxed = optimum(&less, objective);
                prop_assert!(relaxed.is_some_and(|least| least <= value * (1.0 + 2e-6)), "{objective}");
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(30))]

    /// Every plan has passed the checker, or `solve` would have failed.
    #[test]
    fn every_backend_is_checked_and_bounded(problem in problems(SMALL), seed in any::<u64>()) {
        for &objective in Objective::ALL {
            let mut least = f64::INFINITY;
            let mut bound = 0.0f64;
            for &backend in Backend::ALL.iter().filter(|one| **one != Backend::Milp) {
                let options = Options {
                    backend,
                    objective,
                    seed,
                    max_moves: Some(2_000),
                    time_limit_s: 0.2,
                    ..Options::default()
                };
                let plan = solve(&problem, &options, &FrozenClock).unwrap();
                if plan.is_usable() {
                    least = least.min(plan.value());
                } else {
                    prop_assert!(!plan.reasons.is_empty());
                }
                bound = bound.max(plan.bound());
            }
            prop_assert!(bound <= least * (1.0 + 1e-9), "{objective}: {bound} {least}");
        }
    }

    #[test]
    fn equal_options_give_equal_plans(problem in problems(SMALL), seed in any::<u64>()) {
        for &objective in Objective::ALL {
            let options = Options {
                backend: Backend::Search,
                objective,
                seed,
                max_moves: Some(3_000),
                ..Options::default()
            };
            let first = solve(&problem, &options, &FrozenClock).unwrap();
            prop_assert_eq!(&first, &solve(&problem, &options, &FrozenClock).unwrap());
            // Its own plan as a start is never made worse.
            let again = Options { max_moves: Some(1), warm_start: Some(first.clone()), ..options };
            let second = solve(&problem, &again, &FrozenClock).unwrap();
            if first.is_usable() && problem.tasks.iter().flat_map(|task| &task.strategies).all(|one| one.gpus <= 1) {
                prop_assert!(second.value() <= first.value() * (1.0 + 1e-9));
            }
        }
    }
}
