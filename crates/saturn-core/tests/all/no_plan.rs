//! Tests proofs that a problem has no plan: those that hold are verified, and no others.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use saturn_core::{Problem, Reason, Refutation, verified};
use serde_json::{Value, json};

/// A node of two GPUs that comes at 10 s and leaves at 100 s, two nodes of one GPU of another type, and
/// two tasks, of which the second waits for the first.
fn problem(change: impl FnOnce(&mut Value)) -> Problem {
    let mut problem = json!({
        "cluster": {"nodes": [
            {"name": "wide", "gpus": 2, "type": "x", "available_from_s": 10, "available_until_s": 100},
            {"name": "a", "gpus": 1, "type": "y"}, {"name": "b", "gpus": 1, "type": "y"}]},
        "tasks": [
            {"name": "first", "strategies": [
                {"technique": "ddp", "gpus": 2, "type": "x", "runtime_s": 20},
                {"technique": "ddp", "gpus": 1, "runtime_s": 50}]},
            {"name": "second", "after": ["first"], "strategies": [
                {"technique": "ddp", "gpus": 2, "runtime_s": 30}]}],
    });
    change(&mut problem);
    Problem::from_json(&problem.to_string()).unwrap()
}

fn is_proven(problem: &Problem, task: Option<usize>, refutation: Refutation) -> bool {
    let reason = Reason { task, reason: String::new(), refutation: Some(refutation) };
    verified(problem, &[Reason::unproven(task, "words"), reason.clone()]) == [reason]
}

fn is_too_late(task: usize, change: impl FnOnce(&mut Value)) -> bool {
    is_proven(&problem(change), Some(task), Refutation::TooLate)
}

#[test]
fn a_task_can_end_as_early_as_its_best_strategy_lets_it() {
    // The node comes at 10 s and takes 20 s.
    assert!(is_too_late(0, |problem| problem["tasks"][0]["deadline_s"] = json!(29.99)));
    assert!(!is_too_late(0, |problem| problem["tasks"][0]["deadline_s"] = json!(30)));
    let released = |release_s: u32, deadline_s: u32| {
        is_too_late(0, |problem| {
            problem["tasks"][0]["release_s"] = json!(release_s);
            problem["tasks"][0]["deadline_s"] = json!(deadline_s);
        })
    };
    assert!(released(25, 44) && !released(25, 45));
    // A soft deadline may be missed by as much as it says.
    let soft = |most_late_s: u32| {
        is_too_late(0, |problem| {
            let task = &mut problem["tasks"][0];
            task["deadline_s"] = json!(20);
            task["late_price"] = json!(1);
            task["most_late_s"] = json!(most_late_s);
        })
    };
    assert!(soft(9) && !soft(10));
}

#[test]
fn a_task_waits_for_those_before_it_and_must_end_in_time_for_those_after_it() {
    // Both tasks take the whole node, from 10 s to 60 s, or one of them takes both small nodes.
    let all_by = |task: usize, deadline_s: f64| {
        is_too_late(task, |problem| problem["deadline_s"] = json!(deadline_s))
    };
    assert!(all_by(1, 59.9) && !all_by(1, 60.0));
    assert!(all_by(0, 59.9) && !all_by(0, 60.0));
    // Only the second has a deadline: the first is too late for it.
    let second_by =
        |deadline_s: u32| is_too_late(0, |one| one["tasks"][1]["deadline_s"] = json!(deadline_s));
    assert!(second_by(59) && !second_by(60));
}

#[test]
fn nodes_must_be_there_for_as_long_as_a_task_runs() {
    let leaving = |until_s: u32| {
        is_too_late(0, |problem| {
            problem["tasks"][0]["only_nodes"] = json!(["wide"]);
            problem["cluster"]["nodes"][0]["available_until_s"] = json!(until_s);
        })
    };
    assert!(leaving(29) && !leaving(30));
    // A gang on both small nodes runs while both are there.
    let both = |from_s: u32, until_s: u32| {
        is_too_late(1, |problem| {
            problem["tasks"][1]["after"] = json!([]);
            problem["tasks"][1]["not_nodes"] = json!(["wide"]);
            problem["cluster"]["nodes"][1]["available_until_s"] = json!(until_s);
            problem["cluster"]["nodes"][2]["available_from_s"] = json!(from_s);
        })
    };
    assert!(both(0, 29) && !both(0, 30));
    assert!(both(20, 49) && !both(20, 50) && both(20, 10));
}

#[test]
fn rounding_refutes_nothing() {
    // A small time is left of two large ones, and its last digits are wrong.
    let tasks = json!([{"name": "a", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 0.002}]},
        {"name": "b", "after": ["a"],
         "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 86_399.998}]}]);
    let day = problem(|problem| {
        *problem =
            json!({"cluster": {"nodes": [{"gpus": 1}]}, "deadline_s": 86_400, "tasks": tasks});
    });
    assert!(!is_proven(&day, Some(0), Refutation::TooLate));
    let work = |from_s: f64, runtime_s: f64, price: f64| {
        let late = problem(|problem| {
            let strategies = json!([{"technique": "ddp", "gpus": 1, "runtime_s": runtime_s}]);
            *problem = json!({"cluster": {"nodes": [{"gpus": 1, "available_from_s": from_s}]},
                "deadline_s": 1e8, "tasks": [{"name": "t", "strategies": strategies}]});
        });
        let prices = BTreeMap::from([("gpu".to_owned(), price)]);
        is_proven(&late, None, Refutation::Work { until_s: 1e8, prices })
    };
    assert!(!work(99_999_999.996, 0.004, 1.0));
    assert!(!work(0.0, 1e7, 1e307) && work(0.0, 1.1e8, 1e307) && work(0.0, 1.1e8, 1e-300));
}

#[test]
fn a_running_task_may_stay_and_pays_to_move() {
    let running = |movable: bool, deadline_s: u32| {
        is_too_late(0, |problem| {
            let task = &mut problem["tasks"][0];
            task["running"] = json!({"technique": "ddp", "gpus": 1, "movable": movable,
                "placement": [{"node": "a", "devices": [0]}]});
            task["switch_cost_s"] = json!(5);
            task["deadline_s"] = json!(deadline_s);
        })
    };
    assert!(running(false, 49) && !running(false, 50));
    assert!(running(true, 34) && !running(true, 35));
}

#[test]
fn a_task_without_a_place_has_none_at_any_time() {
    let fits = |change: fn(&mut Value)| !is_proven(&problem(change), Some(0), Refutation::NoPlace);
    assert!(fits(|_| {}));
    assert!(fits(|problem| problem["cluster"]["nodes"][0]["available_until_s"] = json!(11)));
    assert!(fits(|problem| problem["tasks"][0]["only_nodes"] = json!(["wide"])));
    let only_wide = |problem: &mut Value, key: &str, value: Value| {
        let task = &mut problem["tasks"][0];
        task["only_nodes"] = json!(["wide"]);
        task["strategies"][0][key] = value.clone();
        task["strategies"][1][key] = value;
        problem["cluster"]["nodes"][0]["host_memory_bytes"] = json!(100);
    };
    assert!(!is_proven(
        &problem(|problem| only_wide(problem, "gpus", json!(3))),
        Some(1),
        Refutation::NoPlace
    ));
    for (key, value) in [("gpus", json!(3)), ("type", json!("y")), ("host_bytes", json!(101))] {
        let tight = problem(|problem| only_wide(problem, key, value));
        assert!(is_proven(&tight, Some(0), Refutation::NoPlace), "{key}");
    }
}

#[test]
fn work_that_is_due_needs_the_room_that_there_is() {
    // By 80 s: 140 GPU-seconds of `x`, 160 of `y`. Each task costs 50 at least, or 40 on `x`.
    let eight = |strategies: Value, deadline_s: u32| {
        problem(|problem| {
            let task = |index: usize| {
                json!({"name": format!("t{index}"),
                "deadline_s": deadline_s, "strategies": strategies})
            };
            problem["tasks"] = (0..8).map(task).collect();
        })
    };
    let both = json!([{"technique": "ddp", "gpus": 2, "type": "x", "runtime_s": 20},
                      {"technique": "ddp", "gpus": 1, "type": "y", "runtime_s": 50}]);
    let prices = |x: f64, y: f64| BTreeMap::from([("x".to_owned(), x), ("y".to_owned(), y)]);
    let work = |until_s: f64, x: f64, y: f64| Refutation::Work { until_s, prices: prices(x, y) };
    assert!(is_proven(&eight(both.clone(), 80), None, work(80.0, 1.0, 1.0)));
    assert!(!is_proven(&eight(both.clone(), 90), None, work(90.0, 1.0, 1.0)));
    // At 5 to 4 a task costs 200 on either type, so the bound is as high as it can be.
    assert!(is_proven(&eight(both.clone(), 90), None, work(90.0, 5.0, 4.0)));
    assert!(!is_proven(&eight(both.clone(), 100), None, work(100.0, 5.0, 4.0)));
    // Before they are due nothing is refuted, and without a price nothing costs anything.
    assert!(!is_proven(&eight(both.clone(), 80), None, work(79.0, 1.0, 1.0)));
    assert!(!is_proven(&eight(both.clone(), 80), None, work(80.0, 0.0, 0.0)));
    for wrong in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(!is_proven(&eight(both.clone(), 80), None, work(80.0, wrong, 1.0)), "{wrong}");
    }
    // What could not have ended by then can't be the cheaper way.
    let slow = json!([{"technique": "ddp", "gpus": 2, "type": "x", "runtime_s": 35},
                      {"technique": "ddp", "gpus": 1, "type": "y", "runtime_s": 81}]);
    assert!(is_proven(&eight(slow, 80), None, work(80.0, 1.0, 0.01)));
}

#[test]
fn a_proof_about_no_task_proves_nothing() {
    let problem = problem(|problem| problem["deadline_s"] = json!(1));
    assert!(is_proven(&problem, Some(0), Refutation::TooLate));
    for task in [None, Some(2)] {
        assert!(!is_proven(&problem, task, Refutation::TooLate));
        assert!(!is_proven(&problem, task, Refutation::NoPlace));
    }
    assert_eq!(verified(&problem, &[Reason::unproven(Some(0), "it is too late")]), []);
}
