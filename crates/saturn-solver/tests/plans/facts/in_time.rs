//! Deadlines that some plan keeps, where plans that miss them are worth more or miss them by little.

use saturn_core::{PlanStatus, Problem, check};
use saturn_solver::{Backend, FrozenClock, Objective, Options, solve};

use super::{is_close, run};

/// As many tasks of 100 s as `home` has GPUs, and as many of 10 s that may only use `home`. Each has
/// one GPU. All must have ended after 100 s. So one long task must go to the cloud, at 36 an hour.
fn own_and_rented(gpus: u32, home_price: f64) -> Problem {
    let task = |name: &str, index: u32, runtime_s: u32, facts: &str| {
        format!(
            r#"{{"name": "{name}{index}", "strategies": [
                {{"technique": "x", "gpus": 1, "runtime_s": {runtime_s}}}]{facts}}}"#
        )
    };
    let pinned = r#", "weight": 0.01, "only_nodes": ["home"]"#;
    let tasks: Vec<String> = (0..gpus)
        .flat_map(|index| [task("q", index, 100, ""), task("p", index, 10, pinned)])
        .collect();
    let text = format!(
        r#"{{"cluster": {{"nodes": [
            {{"name": "home", "gpus": {gpus}, "price_per_hour": {home_price}}},
            {{"name": "cloud", "gpus": {gpus}, "price_per_hour": 36}}]}},
            "deadline_s": 100, "tasks": [{}]}}"#,
        tasks.join(",")
    );
    Problem::from_json(&text).unwrap()
}

/// A late plan costs 0, or a few cents against a dollar.
#[test]
fn a_cheap_plan_that_is_late_does_not_hide_the_plan_in_time() {
    for gpus in [1, 2, 8] {
        for price in [0.0, 0.1, 1.0, 3.0, 12.0] {
            let problem = own_and_rented(gpus, price);
            // All long tasks in the cloud for 100 s, all short tasks at home for 10 s.
            let least = 1.0 + price / 3600.0 * 10.0;
            for backend in [Backend::Auto, Backend::Search] {
                for seed in 0..3 {
                    let options = Options {
                        backend,
                        objective: Objective::Cost,
                        max_moves: Some(20_000),
                        seed,
                        ..Options::default()
                    };
                    let plan = solve(&problem, &options, &FrozenClock).unwrap();
                    check(&problem, &plan).unwrap();
                    assert!(
                        is_close(plan.value(), least) && plan.status != PlanStatus::TimedOut,
                        "{gpus} GPUs, {price} an hour, {backend}, seed {seed}: {plan:?}"
                    );
                }
            }
        }
    }
}

/// `t` ends half a millisecond late on `a`: less than a billionth of the plan. On `b`, behind `u` or
/// before it, it is in time.
#[test]
fn a_plan_that_is_late_by_a_billionth_does_not_hide_the_plan_in_time() {
    let text = r#"{"cluster": {"nodes": [
        {"name": "a", "gpus": 1, "type": "a"}, {"name": "b", "gpus": 1, "type": "b"}]}, "tasks": [
        {"name": "t", "deadline_s": 1000000, "strategies": [
            {"technique": "x", "gpus": 1, "type": "a", "runtime_s": 1000000.0005},
            {"technique": "x", "gpus": 1, "type": "b", "runtime_s": 900000}]},
        {"name": "u", "strategies": [
            {"technique": "x", "gpus": 1, "type": "b", "runtime_s": 200000}]}]}"#;
    let problem = Problem::from_json(text).unwrap();
    for backend in [Backend::Auto, Backend::Search, Backend::Milp] {
        let plan = run(&problem, backend, Objective::Makespan, 20_000);
        assert!(plan.is_usable() && is_close(plan.value(), 1_100_000.0), "{backend}: {plan:?}");
    }
}

/// A node that arrives in 30,000 years makes half a second no less late. `B` alone first would be
/// the better order.
#[test]
fn how_late_counts_does_not_depend_on_times_that_no_plan_reaches() {
    let text = r#"{"cluster": {"nodes": [{"name": "n", "gpus": 1, "type": "a"},
        {"name": "late", "gpus": 1, "type": "b", "available_from_s": 1e12}]}, "tasks": [
        {"name": "A", "deadline_s": 1, "strategies": [
            {"technique": "x", "gpus": 1, "type": "a", "runtime_s": 1}]},
        {"name": "B", "strategies": [
            {"technique": "x", "gpus": 1, "type": "a", "runtime_s": 0.5}]}]}"#;
    let problem = Problem::from_json(text).unwrap();
    for backend in [Backend::Auto, Backend::Search] {
        let plan = run(&problem, backend, Objective::Completion, 20_000);
        assert!(plan.is_usable() && is_close(plan.value(), 2.5), "{backend}: {plan:?}");
    }
}

/// Under the cost gangs wait where that is cheaper. Found by `fuzz/fuzz_targets/plan.rs`: a gang that
/// lasts for less than times of this size are rounded was put where its devices were held.
#[test]
fn a_gang_of_a_microsecond_waits_for_no_devices_that_are_held() {
    let text = r#"{"cluster": {"nodes": [{"name": "n", "gpus": 6, "price_per_hour": 21600}]}, "tasks": [
        {"name": "long", "strategies": [{"technique": "x", "gpus": 3, "runtime_s": 5e7}]},
        {"name": "running", "switch_cost_s": 9, "strategies": [{"technique": "x", "gpus": 1, "runtime_s": 4e7}],
         "running": {"technique": "x", "gpus": 1, "movable": true,
            "placement": [{"node": "n", "devices": [0]}]}},
        {"name": "short", "release_s": 10, "deadline_s": 31, "strategies": [
            {"technique": "x", "gpus": 4, "runtime_s": 1e-6}]}]}"#;
    let problem = Problem::from_json(text).unwrap();
    let options =
        Options { objective: Objective::Cost, max_moves: Some(300), ..Options::default() };
    let plan = solve(&problem, &options, &FrozenClock).unwrap();
    let short = plan.assignments.iter().find(|one| one.task == 2).unwrap();
    assert!(short.end_s <= 31.0, "{plan:?}");
}
