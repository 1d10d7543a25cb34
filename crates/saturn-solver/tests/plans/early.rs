//! Early ends within a makespan: never longer, never later in sum, never more launches.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::{MEDIUM, Sizes, cases, problems};
use proptest::prelude::*;
use saturn_core::{Plan, PlanStatus, Problem, check};
use saturn_solver::{Backend, FrozenClock, Options, solve};

/// So few tasks that linear programs are solved, and the exact program too where a gang is wide.
const FOR_PROGRAMS: Sizes =
    Sizes { nodes: 1..=2, gpus: 4..=9, kinds: 1, tasks: 5..=8, strategies: 1..=4, widest: 10 };

fn options(max_switches: usize, has_early_ends: bool) -> Options {
    let max_moves = Some(100_000);
    Options { max_moves, max_switches, has_early_ends, threads: 2, ..Options::default() }
}

fn plan(problem: &Problem, options: &Options) -> Plan {
    solve(problem, options, &FrozenClock).unwrap()
}

/// The sum of the tasks' ends, from the assignments alone.
fn sum_of_ends(problem: &Problem, plan: &Plan) -> f64 {
    let end = |task: usize| {
        let own = plan.assignments.iter().filter(|one| one.task == task);
        own.map(|one| one.end_s).fold(0.0, f64::max)
    };
    (0..problem.tasks.len()).map(end).sum()
}

fn switchable(mut problem: Problem) -> Problem {
    problem.tasks.iter_mut().for_each(|task| task.switch_cost_s = Some(1.0));
    problem
}

proptest! {
    #![proptest_config(cases(20))]

    /// Both solves take the same course until early ends, as long as only moves limit them. If HiGHS had
    /// a limit in real seconds, a busy machine would change the course, since programs take up to a
    /// second here. So one solve has a time limit that no machine could meet, and the other has a time
    /// limit that every machine could meet.
    #[test]
    fn a_plan_with_early_ends_is_as_good(
        problem in prop_oneof![problems(MEDIUM), problems(FOR_PROGRAMS)],
        max_switches in 0usize..3,
    ) {
        let problem = switchable(problem);
        let late = Options { time_limit_s: 1e-9, ..options(max_switches, false) };
        let early = Options { time_limit_s: 1e6, ..options(max_switches, true) };
        let (late, early) = (plan(&problem, &late), plan(&problem, &early));
        check(&problem, &early).unwrap();
        prop_assert!(early.makespan_s <= late.makespan_s * (1.0 + 1e-8));
        prop_assert!(sum_of_ends(&problem, &early) <= sum_of_ends(&problem, &late) * (1.0 + 1e-9));
        prop_assert!(early.assignments.len() <= late.assignments.len());
        prop_assert!((early.lower_bound_s - late.lower_bound_s).abs() <= 1e-9 * late.makespan_s);
        if late.status == PlanStatus::Optimal {
            prop_assert_eq!(early.status, PlanStatus::Optimal);
        }
    }

    #[test]
    fn equal_seeds_give_equal_early_ends(
        problem in problems(Sizes { nodes: 1..=8, ..MEDIUM }),
        seed in any::<u64>(),
    ) {
        let options = Options { seed, ..options(1, true) };
        let one = plan(&switchable(problem.clone()), &options);
        let other = plan(&switchable(problem), &Options { threads: 1, ..options });
        prop_assert_eq!(one.assignments, other.assignments);
    }
}

fn task(name: &str, runtime_s: u32, running: &str) -> String {
    format!(
        r#"{{"name": "{name}", "switch_cost_s": 1, "strategies": [
            {{"technique": "ddp", "gpus": 1, "runtime_s": {runtime_s}}}]{running}}}"#
    )
}

fn on_gpus(gpus: u32, tasks: &[String]) -> Problem {
    let tasks = tasks.join(",");
    let text = format!(
        r#"{{"cluster": {{"nodes": [{{"name": "n0", "gpus": {gpus}}}]}}, "tasks": [{tasks}]}}"#
    );
    Problem::from_json(&text).unwrap()
}

/// Any order of tasks on one GPU has the same makespan. The shortest first has the earliest ends.
#[test]
fn the_shortest_task_is_first_where_the_order_is_free() {
    let tasks: Vec<String> =
        [70, 20, 50, 10, 60, 30, 40].iter().map(|s| task(&format!("t{s}"), *s, "")).collect();
    let problem = on_gpus(1, &tasks);
    for backend in [Backend::Auto, Backend::Search, Backend::Milp] {
        for seed in 0..5 {
            let options = Options { backend, seed, ..options(0, true) };
            let plan = plan(&problem, &options);
            assert_eq!(plan.status, PlanStatus::Optimal);
            assert!((plan.makespan_s - 280.0).abs() < 1e-6, "{plan:?}");
            let sum = sum_of_ends(&problem, &plan);
            assert!((sum - 840.0).abs() < 1e-6, "{backend}, seed {seed}: {sum}");
        }
    }
}

/// The task that runs is the longest. To put it behind all others would have them end earlier, but
/// would move it.
#[test]
fn no_running_task_is_moved_for_early_ends() {
    let running = r#", "running": {"technique": "ddp", "gpus": 1, "movable": true,
        "placement": [{"node": "n0", "devices": [0]}]}"#;
    let problem = on_gpus(1, &[task("long", 100, running), task("b", 10, ""), task("c", 20, "")]);
    let plan = plan(&problem, &options(0, true));
    let long = plan.assignments.iter().find(|one| one.task == 0).unwrap();
    assert!(long.start_s.abs() < 1e-12, "{plan:?}");
    assert!((sum_of_ends(&problem, &plan) - (100.0 + 110.0 + 130.0)).abs() < 1e-6, "{plan:?}");
}

/// Two GPUs. `a` trains alone on both for 60 s more, or for 100 s on one. `b` takes 100 s on one.
/// With `a` left alone, all is done after 160 s; with `a` moved, after 101 s.
fn moved_or_left() -> Problem {
    let text = r#"{"cluster": {"nodes": [{"name": "n0", "gpus": 2}]}, "tasks": [
        {"name": "a", "switch_cost_s": 1, "strategies": [
            {"technique": "ddp", "gpus": 1, "runtime_s": 100},
            {"technique": "ddp", "gpus": 2, "runtime_s": 60}],
         "running": {"technique": "ddp", "gpus": 2, "movable": true,
            "placement": [{"node": "n0", "devices": [0, 1]}]}},
        {"name": "b", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 100}]}]}"#;
    Problem::from_json(text).unwrap()
}

#[test]
fn running_tasks_are_moved_for_what_the_options_ask() {
    let problem = moved_or_left();
    let makespan_s = |min_move_gain: f64, min_move_gain_s: f64| {
        let options = Options { min_move_gain, min_move_gain_s, ..options(0, true) };
        let plan = plan(&problem, &options);
        assert!((plan.lower_bound_s - 101.0).abs() < 1.1, "{plan:?}");
        plan.makespan_s
    };
    assert!((makespan_s(0.0, 0.0) - 101.0).abs() < 1e-6);
    assert!((makespan_s(0.3, 50.0) - 160.0).abs() < 1e-6, "59 s are gained, 98 s asked for");
    assert!((makespan_s(0.0, 60.0) - 160.0).abs() < 1e-6, "59 s are gained");
    assert!((makespan_s(0.4, 0.0) - 160.0).abs() < 1e-6, "37% are gained");
    assert!((makespan_s(0.3, 5.0) - 101.0).abs() < 1e-6);
    let moved = plan(&problem, &options(0, true));
    let options =
        Options { warm_start: Some(moved.clone()), min_move_gain: 0.5, ..options(0, true) };
    let kept = plan(&problem, &options);
    assert!(kept.makespan_s <= moved.makespan_s * (1.0 + 1e-9), "the moves were decided: {kept:?}");
}

/// `late` has to move to both GPUs of `a`, where it ends after 45 s. `other` trains for 200 s more on
/// the only GPU of `b`. Behind `late`, on both GPUs of `a`, it would end 1 s earlier.
#[test]
fn a_task_that_has_to_move_moves_no_other() {
    let missed = (r#", "deadline_s": 60"#, "a");
    let forbidden = (r#", "only_nodes": ["a"]"#, "c");
    for (facts, node) in [missed, forbidden] {
        let text = format!(
            r#"{{"cluster": {{"nodes": [
                {{"name": "a", "gpus": 2}}, {{"name": "b", "gpus": 1}}, {{"name": "c", "gpus": 1}}]}}, "tasks": [
            {{"name": "late", "switch_cost_s": 5{facts}, "strategies": [
                {{"technique": "ddp", "gpus": 1, "runtime_s": 100}},
                {{"technique": "ddp", "gpus": 2, "runtime_s": 40}}],
              "running": {{"technique": "ddp", "gpus": 1, "movable": true,
                "placement": [{{"node": "{node}", "devices": [0]}}]}}}},
            {{"name": "other", "switch_cost_s": 4, "strategies": [
                {{"technique": "ddp", "gpus": 1, "runtime_s": 200}},
                {{"technique": "ddp", "gpus": 2, "runtime_s": 150}}],
              "running": {{"technique": "ddp", "gpus": 1, "movable": true,
                "placement": [{{"node": "b", "devices": [0]}}]}}}}]}}"#
        );
        let problem = Problem::from_json(&text).unwrap();
        let makespan_s = |min_move_gain: f64, min_move_gain_s: f64| {
            let options = Options { min_move_gain, min_move_gain_s, ..options(0, true) };
            plan(&problem, &options).makespan_s
        };
        assert!((makespan_s(0.0, 0.0) - 199.0).abs() < 1e-6, "{facts}");
        assert!((makespan_s(0.2, 5.0) - 200.0).abs() < 1e-6, "{facts}");
        assert!(
            (makespan_s(0.001, 0.0) - 199.0).abs() < 1e-6,
            "{facts}: what is asked for is gained"
        );
    }
}

/// The plan at hand moves `a` and has `b` wait for nothing.
#[test]
fn a_better_plan_with_no_further_move_needs_no_gain() {
    let problem = moved_or_left();
    let mut at_hand = plan(&problem, &options(0, true));
    let second = at_hand.assignments.iter_mut().find(|one| one.task == 1).unwrap();
    (second.start_s, second.end_s) = (second.start_s + 40.0, second.end_s + 40.0);
    let warm_start = Some(Plan::of(&problem, at_hand.objective, at_hand.assignments));
    let options = Options { warm_start, min_move_gain: 0.5, ..options(0, true) };
    let better = plan(&problem, &options);
    assert!((better.makespan_s - 101.0).abs() < 1e-6, "{better:?}");
}

/// Whole tasks take 160 s at least, which the search for them proves. The plan at hand switches and
/// takes 155 s, and 151 s can be had.
#[test]
fn a_plan_at_hand_that_switches_is_no_proof() {
    let tasks = ["a", "b", "c"].map(|name| {
        format!(
            r#"{{"name": "{name}", "switch_cost_s": 1, "strategies": [
                {{"technique": "ddp", "gpus": 1, "runtime_s": 100}},
                {{"technique": "ddp", "gpus": 2, "runtime_s": 60}}]}}"#
        )
    });
    let mut problem = on_gpus(2, &tasks);
    problem.tasks[2].weight = 10.0;
    let best = plan(&problem, &options(1, false));
    assert!(best.makespan_s < 151.1, "{best:?}");
    // The second ends as late as the best of whole tasks, but the weightiest task ends earlier.
    for makespan_s in [155.0, 160.0] {
        let mut at_hand = best.assignments.clone();
        for one in at_hand.iter_mut().filter(|one| one.end_s > best.makespan_s - 1e-6) {
            let shift_s = makespan_s - one.end_s;
            (one.start_s, one.end_s) = (one.start_s + shift_s, makespan_s);
        }
        let warm_start = Some(Plan::of(&problem, best.objective, at_hand));
        let options = Options { warm_start, min_switch_gain: 0.5, ..options(1, false) };
        let answer = plan(&problem, &options);
        assert!((answer.makespan_s - makespan_s).abs() < 1e-6, "{answer:?}");
        assert!(answer.assignments.len() > 3, "{answer:?}");
        assert!(answer.lower_bound_s <= best.makespan_s, "{answer:?}");
    }
}
