//! Soft deadlines: hard deadlines come first, then the price of missing soft deadlines, then the
//! objective.

use proptest::prelude::*;
use saturn_core::{Plan, PlanStatus, Problem, SolveEnd};
use saturn_solver::{Backend, FrozenClock, Objective, Options, solve};

use super::exhaustion::brute_force_softly;
use super::problems::{SMALL, Scale, TINY, problems, with_memory};
use super::{is_close, is_settled, run};
use crate::completion::SIX;
use crate::completion::orders::least_softly;
use crate::support::cases;

/// Problems with any facts, in which most tasks have soft deadlines that are often missed.
fn soft(scale: Scale) -> impl Strategy<Value = Problem> {
    let (due, most_tasks) = (scale.due, *scale.tasks.end());
    softened(problems(scale), due, most_tasks)
}

/// The same where nodes also have limits of host memory.
pub(crate) fn soft_with_memory(scale: Scale) -> impl Strategy<Value = Problem> {
    let (due, most_tasks) = (scale.due, *scale.tasks.end());
    softened(with_memory(scale), due, most_tasks)
}

fn softened(
    problems: impl Strategy<Value = Problem>,
    latest: u32,
    most_tasks: usize,
) -> impl Strategy<Value = Problem> {
    let deadline = (1..=latest / 2, 1u32..=3, prop::option::weighted(0.3, 0..=latest / 4));
    let deadlines = prop::collection::vec(prop::option::weighted(0.6, deadline), most_tasks);
    (problems, deadlines).prop_map(|(mut problem, deadlines)| {
        for (task, deadline) in problem.tasks.iter_mut().zip(deadlines) {
            if let Some((due, price, most)) = deadline {
                task.deadline_s = Some(f64::from(due));
                task.late_price = Some(f64::from(price));
                task.most_late_s = most.map(f64::from);
            }
        }
        problem
    })
}

pub(super) fn answer(plan: &Plan) -> Option<(f64, f64)> {
    plan.is_usable().then(|| (plan.tardiness, plan.value()))
}

pub(super) fn agree(found: Option<(f64, f64)>, least: Option<(f64, f64)>) -> bool {
    match (found, least) {
        (None, None) => true,
        (Some(found), Some(least)) => is_close(found.0, least.0) && is_close(found.1, least.1),
        _ => false,
    }
}

/// Whether `found` is no better than the best, up to rounding.
pub(super) fn is_no_better(found: (f64, f64), least: (f64, f64)) -> bool {
    let is_as_tardy = is_close(found.0, least.0);
    found.0 >= least.0 && !is_as_tardy || is_as_tardy && found.1 >= least.1 * (1.0 - 1e-9)
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn tiny_problems_with_soft_deadlines_equal_exhaustion(problem in soft(TINY)) {
        let least = brute_force_softly(&problem);
        for (index, &objective) in Objective::ALL.iter().enumerate() {
            let least = least.map(|least| least[index]);
            let exact = run(&problem, Backend::Milp, objective, 2_000);
            prop_assert!(is_settled(&exact), "{exact:?}");
            let auto = run(&problem, Backend::Auto, objective, 4_000);
            for plan in [&exact, &auto] {
                prop_assert!(agree(answer(plan), least), "{objective}: {plan:?}, exhaustion {least:?}");
            }
            let search = run(&problem, Backend::Search, objective, 20_000);
            let Some(least) = least else {
                prop_assert!(!search.is_usable());
                continue;
            };
            for plan in [&exact, &auto, &search] {
                prop_assert!(plan.tardiness_bound <= least.0 * (1.0 + 1e-9), "{objective}: {plan:?} {least:?}");
                prop_assert!(plan.bound() <= least.1 * (1.0 + 1e-9), "{objective}: {plan:?} {least:?}");
            }
            if let Some(found) = answer(&search) {
                prop_assert!(is_no_better(found, least), "{objective}: {found:?} {least:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn no_plan_of_six_tasks_is_less_tardy_or_better_than_all_orders_say(problem in soft(SIX)) {
        for &objective in Objective::ALL {
            let plan = run(&problem, Backend::Auto, objective, 1_500);
            let Some(least) = least_softly(&problem, objective) else {
                prop_assert!(!plan.is_usable(), "{objective}: {plan:?}");
                continue;
            };
            prop_assert!(plan.tardiness_bound <= least.0 * (1.0 + 1e-9), "{objective}: {plan:?}");
            prop_assert!(plan.bound() <= least.1 * (1.0 + 1e-9) + 1e-9, "{objective}: {plan:?} {least:?}");
            let Some(found) = answer(&plan) else { continue };
            // Waiting may be cheaper, and never makes a plan less tardy.
            let is_better = if objective == Objective::Cost {
                found.0 < least.0 && !is_close(found.0, least.0)
            } else {
                !is_no_better(found, least)
            };
            prop_assert!(!is_better, "{objective}: {plan:?} {least:?}");
            if plan.status == PlanStatus::Optimal {
                let is_best = is_close(found.0, least.0) && found.1 <= least.1 * (1.0 + 2e-6) + 1e-9;
                prop_assert!(is_best, "{objective}: {plan:?} {least:?}");
            }
        }
    }

    #[test]
    fn more_moves_are_never_tardier_nor_as_tardy_and_worse(problem in soft(SMALL), seed in any::<u64>()) {
        for &objective in Objective::ALL {
            let with = |max_moves: u64| {
                let options = Options {
                    backend: Backend::Search,
                    objective,
                    seed,
                    max_moves: Some(max_moves),
                    ..Options::default()
                };
                solve(&problem, &options, &FrozenClock).unwrap()
            };
            let (less, more) = (with(500), with(4_000));
            if less.is_usable() {
                let found = answer(&more).unwrap();
                prop_assert!(is_no_better(answer(&less).unwrap(), found), "{less:?} {more:?}");
            }
        }
    }
}

/// A node of one GPU, and tasks of 10 s with these fields.
fn queue(tasks: &[&str]) -> Problem {
    let task = |(index, fields): (usize, &&str)| {
        format!(
            r#"{{"name": "t{index}", "strategies": [
                {{"technique": "x", "gpus": 1, "runtime_s": 10}}]{fields}}}"#
        )
    };
    let tasks: Vec<String> = tasks.iter().enumerate().map(task).collect();
    let text =
        format!(r#"{{"cluster": {{"nodes": [{{"gpus": 1}}]}}, "tasks": [{}]}}"#, tasks.join(","));
    Problem::from_json(&text).unwrap()
}

/// The order of the tasks, and the tardiness.
fn planned(problem: &Problem, backend: Backend) -> (Vec<usize>, f64) {
    let plan = run(problem, backend, Objective::Completion, 20_000);
    assert_eq!(plan.status, PlanStatus::Optimal, "{plan:?}");
    (plan.assignments.iter().map(|one| one.task).collect(), plan.tardiness)
}

#[test]
fn hard_deadlines_come_first_then_prices_then_weights() {
    for backend in [Backend::Auto, Backend::Milp] {
        // The heavier task is first, unless the other would be late.
        let weighted = r#", "weight": 5"#;
        assert_eq!(planned(&queue(&["", weighted]), backend), (vec![1, 0], 0.0));
        let soft = r#", "deadline_s": 12, "late_price": 0.001"#;
        assert_eq!(planned(&queue(&[soft, weighted]), backend), (vec![0, 1], 0.0));
        // Two tasks want to end by 12 s. The one with the higher price does.
        let dear = r#", "deadline_s": 12, "late_price": 3"#;
        let cheap = r#", "deadline_s": 12, "late_price": 2, "weight": 5"#;
        assert_eq!(planned(&queue(&[cheap, dear]), backend), (vec![1, 0], 16.0));
        // But a task may be late by no more than its ceiling, and a hard deadline is kept at any price.
        let bound = r#", "deadline_s": 12, "late_price": 2, "most_late_s": 7"#;
        assert_eq!(planned(&queue(&[bound, dear]), backend), (vec![0, 1], 24.0));
        let hard = r#", "deadline_s": 12"#;
        assert_eq!(planned(&queue(&[hard, dear]), backend), (vec![0, 1], 24.0));
    }
    let impossible = r#", "deadline_s": 12, "late_price": 2, "most_late_s": 7"#;
    let none = run(&queue(&[impossible, impossible]), Backend::Auto, Objective::Makespan, 1_000);
    assert!(!none.is_usable() && none.ended == SolveEnd::Complete, "{none:?}");
}

/// On lists: 60 tasks on eight nodes, of which each fifth, of little weight, wants to end early.
#[test]
fn lists_keep_soft_deadlines_that_can_be_kept() {
    let strategies = r#"[{"technique": "x", "gpus": 1, "runtime_s": 80},
        {"technique": "x", "gpus": 2, "runtime_s": 45}, {"technique": "x", "gpus": 4, "runtime_s": 26}]"#;
    let task = |index: usize| {
        let fields = if index.is_multiple_of(5) {
            r#", "weight": 0.1, "deadline_s": 100, "late_price": 0.01"#
        } else {
            ""
        };
        format!(r#"{{"name": "t{index}", "strategies": {strategies}{fields}}}"#)
    };
    let tasks: Vec<String> = (0..60).map(task).collect();
    let nodes = [r#"{"gpus": 4}"#; 8].join(",");
    let text = format!(r#"{{"cluster": {{"nodes": [{nodes}]}}, "tasks": [{}]}}"#, tasks.join(","));
    let problem = Problem::from_json(&text).unwrap();
    let plan = run(&problem, Backend::Auto, Objective::Completion, 30_000);
    assert!(plan.tardiness == 0.0 && plan.gap() < 0.3, "{} {}", plan.tardiness, plan.gap());
    let mut free = problem.clone();
    free.tasks.iter_mut().for_each(|task| (task.deadline_s, task.late_price) = (None, None));
    let free = run(&free, Backend::Auto, Objective::Completion, 30_000);
    let late = free.assignments.iter().filter(|one| one.task % 5 == 0 && one.end_s > 100.0);
    assert!(late.count() > 0, "without their deadlines, tasks of little weight come last");
}

/// On lists: eighty light tasks that all end in time if they come first by their deadlines, and forty
/// heavy tasks. A search with hardly a move keeps them all.
#[test]
fn lists_by_deadlines_are_among_the_first() {
    let task = |index: usize| {
        let due = 10 * (1 + index / 8);
        let fields = if index < 80 {
            format!(r#", "weight": 0.1, "deadline_s": {due}, "late_price": 1"#)
        } else {
            r#", "weight": 9"#.to_owned()
        };
        let strategies = r#"[{"technique": "x", "gpus": 1, "runtime_s": 10}]"#;
        format!(r#"{{"name": "t{index}", "strategies": {strategies}{fields}}}"#)
    };
    let tasks: Vec<String> = (0..120).map(task).collect();
    let nodes = [r#"{"gpus": 1}"#; 8].join(",");
    let text = format!(r#"{{"cluster": {{"nodes": [{nodes}]}}, "tasks": [{}]}}"#, tasks.join(","));
    let plan = run(&Problem::from_json(&text).unwrap(), Backend::Search, Objective::Completion, 1);
    assert_eq!(format!("{}", plan.tardiness), "0");
}

/// `a` runs on `n0` for 100 s more, and could move to `n1` in a second. `b` waits for `n0`, and wants
/// to end by 20 s. `more` are further tasks.
fn one_in_the_way(soft: &str, more: &str) -> Problem {
    let text = format!(
        r#"{{"cluster": {{"nodes": [{{"gpus": 1}}, {{"gpus": 1}}, {{"gpus": 1}}]}}, "tasks": [
            {{"name": "a", "switch_cost_s": 1, "not_nodes": ["n2"],
              "strategies": [{{"technique": "x", "gpus": 1, "runtime_s": 100}}],
              "running": {{"technique": "x", "gpus": 1, "movable": true,
                "placement": [{{"node": "n0", "devices": [0]}}]}}}},
            {{"name": "b", "only_nodes": ["n0"],
              "strategies": [{{"technique": "x", "gpus": 1, "runtime_s": 10}}]{soft}}}{more}]}}"#
    );
    Problem::from_json(&text).unwrap()
}

#[test]
fn a_running_task_is_moved_for_a_soft_deadline_if_that_gains_a_share() {
    let moves = |problem: &Problem| {
        let options = Options {
            min_move_gain: 0.2,
            max_moves: Some(20_000),
            threads: 1,
            ..Options::default()
        };
        let plan = solve(problem, &options, &FrozenClock).unwrap();
        (plan.assignments.iter().any(|one| one.task == 0 && one.gang[0].node == 1), plan.tardiness)
    };
    let soft = r#", "deadline_s": 20, "late_price": 1"#;
    // The makespan falls from 110 s to 101 s alone.
    assert_eq!(moves(&one_in_the_way("", "")), (false, 0.0));
    assert_eq!(moves(&one_in_the_way(soft, "")), (true, 0.0));
    // 999 s of tardiness can't be helped. Then 90 s more are less than a fifth.
    let late = r#", {"name": "c", "only_nodes": ["n2"], "deadline_s": 1, "late_price": 1,
        "strategies": [{"technique": "x", "gpus": 1, "runtime_s": 1000}]}"#;
    assert_eq!(moves(&one_in_the_way(soft, late)), (false, 1089.0));
}
