//! Plans with switches: never worse than without, never below their bound, always right.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{MEDIUM, TINY, brute_force, cases, problems};
use proptest::prelude::*;
use saturn_core::{Objective, Plan, PlanStatus, Problem, check};
use saturn_solver::{Backend, Clock, FrozenClock, Options, SolveError, solve};

fn options(max_switches: usize) -> Options {
    Options { max_moves: Some(200_000), max_switches, threads: 2, ..Options::default() }
}

fn plan(problem: &Problem, max_switches: usize) -> Plan {
    solve(problem, &options(max_switches), &FrozenClock).unwrap()
}

/// The same after a tenth of the moves.
fn glance(problem: &Problem, max_switches: usize) -> Plan {
    let options = Options { max_moves: Some(20_000), ..options(max_switches) };
    solve(problem, &options, &FrozenClock).unwrap()
}

fn switchable(mut problem: Problem, cost_s: f64) -> Problem {
    problem.tasks.iter_mut().for_each(|task| task.switch_cost_s = Some(cost_s));
    problem
}

/// One node of two devices; `a` gains little from the second, `b` and `c` none.
fn three_on_two() -> Problem {
    let task = |name: &str| {
        format!(
            r#"{{"name": "{name}", "strategies": [
                {{"technique": "ddp", "gpus": 1, "runtime_s": 100}},
                {{"technique": "ddp", "gpus": 2, "runtime_s": 60}}]}}"#
        )
    };
    let tasks = ["a", "b", "c"].map(task).join(",");
    Problem::from_json(&format!(
        r#"{{"cluster": {{"nodes": [{{"gpus": 2}}]}}, "tasks": [{tasks}]}}"#
    ))
    .unwrap()
}

/// Whole, three such tasks take 160 s: two side by side, the third on both devices. Free switches let
/// one device do one and a half: 150 s. A cost of 4 s is paid once, by one of the devices, and shared
/// by both: 152 s.
#[test]
fn a_switch_fills_what_whole_tasks_leave() {
    assert!((plan(&three_on_two(), 1).makespan_s - 160.0).abs() < 1e-6);
    let free = plan(&switchable(three_on_two(), 0.0), 1);
    assert!((free.makespan_s - 150.0).abs() < 1e-6, "{free:?}");
    assert_eq!(free.status, PlanStatus::Optimal, "the bound is met: {free:?}");
    let costly = plan(&switchable(three_on_two(), 4.0), 1);
    assert!((costly.makespan_s - 152.0).abs() < 1e-6, "{costly:?}");
    assert!((costly.lower_bound_s - 150.0).abs() < 1e-5, "{costly:?}");
    assert_eq!(costly.assignments.iter().filter(|one| one.is_segment()).count(), 2);
    let dear = plan(&switchable(three_on_two(), 100.0), 1);
    assert!((dear.makespan_s - 160.0).abs() < 1e-6, "{dear:?}");
}

/// The switch of 4 s gains 8 s of 160 s: 5%.
#[test]
fn a_switch_that_gains_too_little_is_not_planned() {
    let problem = switchable(three_on_two(), 4.0);
    let segments_at = |min_switch_gain: f64| {
        let options = Options { min_switch_gain, ..options(1) };
        let plan = solve(&problem, &options, &FrozenClock).unwrap();
        plan.assignments.iter().filter(|one| one.is_segment()).count()
    };
    assert_eq!([segments_at(0.04), segments_at(0.06)], [2, 0]);
}

/// Free switches would reach 150 s, which is 6.25% less than 160 s.
#[test]
fn a_plan_is_proven_where_no_switch_can_gain_enough() {
    let problem = switchable(three_on_two(), 4.0);
    let status_at = |min_switch_gain: f64| {
        let options = Options { min_switch_gain, ..options(1) };
        let plan = solve(&problem, &options, &FrozenClock).unwrap();
        assert!((plan.makespan_s - 160.0).abs() < 1e-6, "{plan:?}");
        plan.status
    };
    assert_eq!([status_at(0.06), status_at(0.065)], [PlanStatus::Feasible, PlanStatus::Optimal]);
}

/// There are more nodes here than the search anneals together, and most of them stay idle. A thread
/// that gets only idle nodes has nothing to anneal.
#[test]
fn idle_nodes_are_left_alone() {
    let task = |index: usize| {
        format!(
            r#"{{"name": "t{index}", "switch_cost_s": 1, "strategies": [
                {{"technique": "ddp", "gpus": 4, "runtime_s": {}}}]}}"#,
            60 + index
        )
    };
    let tasks: Vec<String> = (0..3).map(task).collect();
    let small = r#", {"gpus": 1}"#.repeat(12);
    let problem = Problem::from_json(&format!(
        r#"{{"cluster": {{"nodes": [{{"gpus": 8}}{small}]}}, "tasks": [{}]}}"#,
        tasks.join(",")
    ))
    .unwrap();
    let plan = plan(&problem, 1);
    assert!(check(&problem, &plan).is_ok());
    assert!(
        plan.makespan_s > plan.lower_bound_s * 1.001,
        "the search had something to do: {plan:?}"
    );
}

#[test]
fn equal_seeds_and_moves_give_equal_plans() {
    let problem = switchable(three_on_two(), 4.0);
    let (first, second) = (plan(&problem, 2), plan(&problem, 2));
    assert_eq!(first.assignments, second.assignments);
    assert_eq!(first.lower_bound_s.to_bits(), second.lower_bound_s.to_bits());
}

#[test]
fn a_plan_with_switches_is_a_start() {
    let problem = switchable(three_on_two(), 4.0);
    let warm_start = Some(plan(&problem, 1));
    let few = Options { max_moves: Some(0), warm_start, ..options(1) };
    let again = solve(&problem, &few, &FrozenClock).unwrap();
    assert!((again.makespan_s - 152.0).abs() < 1e-6, "{again:?}");
}

#[test]
fn only_what_can_plan_switches_is_asked_to() {
    let problem = switchable(three_on_two(), 4.0);
    for backend in Backend::ALL {
        let options = Options { backend: *backend, max_moves: Some(1000), ..options(1) };
        let answer = solve(&problem, &options, &FrozenClock);
        match backend {
            Backend::Auto | Backend::Search => assert!(answer.unwrap().is_usable()),
            _ => assert!(matches!(answer, Err(SolveError::Option { .. })), "{backend}"),
        }
    }
    let objective = Options { objective: Objective::Completion, ..options(1) };
    assert!(matches!(solve(&problem, &objective, &FrozenClock), Err(SolveError::Option { .. })));
}

proptest! {
    #![proptest_config(cases(40))]

    /// Config LP ≤ plan with switches ≤ plan without, and the bound ≤ the optimum without, which brute
    /// force knows; whatever the tasks, the nodes and the cost.
    #[test]
    fn bounds_and_plans_are_in_order(
        problem in problems(TINY),
        cost_s in prop_oneof![Just(0.0), 0.1..5.0_f64],
    ) {
        let (optimum, _) = brute_force(&problem);
        let problem = switchable(problem, cost_s);
        for max_switches in [1, 3] {
            let cut = glance(&problem, max_switches);
            prop_assert_eq!(check(&problem, &cut), Ok(()));
            prop_assert!(cut.lower_bound_s <= cut.makespan_s * (1.0 + 1e-9));
            prop_assert!(cut.lower_bound_s <= optimum * (1.0 + 1e-9));
            let unsplit = solve(
                &problem,
                &Options { backend: Backend::Search, max_moves: Some(5_000), ..options(0) },
                &FrozenClock,
            ).unwrap();
            prop_assert!(cut.makespan_s <= unsplit.makespan_s * (1.0 + 1e-9));
            for task in 0..problem.tasks.len() {
                let segments = cut.assignments.iter().filter(|one| one.task == task).count();
                prop_assert!((1..=max_switches + 1).contains(&segments));
            }
        }
    }

    /// Tasks without a cost stay whole whatever the others do; wide gangs and many nodes are no matter.
    #[test]
    fn only_tasks_that_say_so_are_cut(problem in problems(MEDIUM), cuttable in 0usize..4) {
        let mut problem = problem;
        if let Some(task) = problem.tasks.get_mut(cuttable) {
            task.switch_cost_s = Some(0.5);
        }
        let cut = glance(&problem, 2);
        prop_assert_eq!(check(&problem, &cut), Ok(()));
        for segment in cut.assignments.iter().filter(|one| one.is_segment()) {
            prop_assert_eq!(segment.task, cuttable);
        }
    }
}

/// Each look at it takes a millisecond.
#[derive(Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn elapsed_s(&self) -> f64 {
        self.0.fetch_add(1, Ordering::Relaxed) as f64 * 1e-3
    }
}

/// Four nodes of eight devices, 40 tasks whose switches are too dear to gain anything, and a task on
/// two whole nodes. With `narrow_s` it may also run on one, for so many seconds.
fn beside_a_wide_gang(narrow_s: Option<f64>) -> Problem {
    let strategy = |gpus: u32, runtime_s: f64| {
        format!(r#"{{"technique": "ddp", "gpus": {gpus}, "runtime_s": {runtime_s}}}"#)
    };
    let task = |index: u32| {
        let work_s = 100.0 + f64::from(index * index % 97) * 7.3;
        let ways: Vec<String> = [1u32, 2, 3, 4, 6, 8]
            .iter()
            .map(|gpus| strategy(*gpus, work_s * (0.08 + 0.92 / f64::from(*gpus))))
            .collect();
        format!(
            r#"{{"name": "t{index}", "switch_cost_s": 1000, "strategies": [{}]}}"#,
            ways.join(",")
        )
    };
    let mut wide = vec![strategy(16, 30.0)];
    wide.extend(narrow_s.map(|seconds| strategy(8, seconds)));
    let mut tasks: Vec<String> = (0..40).map(task).collect();
    tasks.push(format!(r#"{{"name": "wide", "strategies": [{}]}}"#, wide.join(",")));
    Problem::from_json(&format!(
        r#"{{"cluster": {{"nodes": [{{"gpus": 8}}, {{"gpus": 8}}, {{"gpus": 8}}, {{"gpus": 8}}]}},
            "tasks": [{}]}}"#,
        tasks.join(",")
    ))
    .unwrap()
}

fn is_wide(plan: &Plan) -> bool {
    plan.assignments.iter().any(|one| one.gang.len() > 1)
}

#[test]
fn a_task_that_no_node_holds_leaves_all_tasks_whole() {
    let problem = beside_a_wide_gang(None);
    for backend in [Backend::Auto, Backend::Search] {
        let plan = |max_switches: usize| {
            let options = Options { backend, max_moves: Some(2_000), ..options(max_switches) };
            solve(&problem, &options, &FrozenClock).unwrap()
        };
        assert!(is_wide(&plan(1)));
        assert_eq!(plan(1), plan(0), "{backend}");
    }
}

/// Switches are not searched for beside a gang on two nodes, nor where no switch can gain half of the
/// makespan. In both cases, the time and moves that are left go to the search without switches.
#[test]
fn beside_a_wide_gang_the_search_uses_its_time_and_its_moves() {
    // On one node it would end later than all other tasks together.
    let problem = beside_a_wide_gang(Some(9_000.0));
    for (backend, min_switch_gain) in
        [(Backend::Auto, 0.0), (Backend::Search, 0.0), (Backend::Auto, 0.5)]
    {
        let planned = |max_switches: usize, max_moves: Option<u64>, time_limit_s: f64| {
            let asked = Options { backend, min_switch_gain, time_limit_s, ..options(max_switches) };
            solve(&problem, &Options { max_moves, ..asked }, &Ticking::default()).unwrap()
        };
        let timed = planned(1, None, 5.0);
        assert!(is_wide(&timed) && timed.status == PlanStatus::Feasible, "{timed:?}");
        assert!(timed.solve_s > 4.9, "{backend}: ended after {} of 5 s", timed.solve_s);
        // The first quarter of the moves looks for a plan of whole tasks.
        let (first, all) = (planned(0, Some(2_000), 1e9), planned(1, Some(8_000), 1e9));
        let ratio = all.solve_s / first.solve_s;
        assert!(ratio > 2.0, "{backend}: {ratio} times the looks in four times the moves");
        assert!(all.makespan_s <= first.makespan_s);
        if min_switch_gain == 0.0 {
            assert!(all.lower_bound_s < first.lower_bound_s, "with switches less is possible");
        } else {
            assert!(all.lower_bound_s >= first.lower_bound_s, "no answer has switches");
        }
    }
}
