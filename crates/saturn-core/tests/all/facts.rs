//! Tests that the checker enforces every fact of a problem, and computes a plan's values itself.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use saturn_core::{
    Assignment, Objective, Placement, Plan, PlanStatus, Problem, Reason, Refutation, WHOLE, check,
};

/// `old` runs on the first node and may be moved. `fixed` runs on the second. `base` comes before
/// `tuned`.
const TEXT: &str = r#"{
  "cluster": {"nodes": [
    {"name": "home", "gpus": 2, "price_per_hour": 3600},
    {"name": "spot", "gpus": 2, "price_per_hour": 360, "available_until_s": 50},
    {"name": "late", "gpus": 2, "available_from_s": 20}]},
  "deadline_s": 200,
  "tasks": [
    {"name": "old", "switch_cost_s": 5, "weight": 2,
     "running": {"technique": "ddp", "gpus": 1, "movable": true,
                 "placement": [{"node": "home", "devices": [1]}]},
     "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 30},
                    {"technique": "fsdp", "gpus": 2, "runtime_s": 16}]},
    {"name": "fixed",
     "running": {"technique": "ddp", "gpus": 1, "placement": [{"node": "spot", "devices": [0]}]},
     "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 40}]},
    {"name": "base", "release_s": 2, "not_nodes": ["late"],
     "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 10}]},
    {"name": "tuned", "after": ["base"], "only_nodes": ["late"], "deadline_s": 60,
     "strategies": [{"technique": "ddp", "gpus": 2, "runtime_s": 10}]}]}"#;

fn problem() -> Problem {
    Problem::from_json(TEXT).unwrap()
}

fn place(
    task: usize,
    strategy: usize,
    node: usize,
    devices: &[u32],
    span: (f64, f64),
) -> Assignment {
    let gang = vec![Placement { node, devices: devices.to_vec() }];
    Assignment { task, strategy, gang, share: WHOLE, start_s: span.0, end_s: span.1 }
}

/// Running tasks stay, and `base` runs beside `old`.
fn right() -> Vec<Assignment> {
    vec![
        place(0, 0, 0, &[1], (0.0, 30.0)),
        place(1, 0, 1, &[0], (0.0, 40.0)),
        place(2, 0, 0, &[0], (2.0, 12.0)),
        place(3, 0, 2, &[0, 1], (20.0, 30.0)),
    ]
}

fn faults(plan: &Plan) -> String {
    match check(&problem(), plan) {
        Ok(()) => "none".to_owned(),
        Err(violations) => {
            violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
    }
}

fn with(index: usize, assignment: Assignment) -> String {
    let mut assignments = right();
    assignments[index] = assignment;
    faults(&Plan::of(&problem(), Objective::Makespan, assignments))
}

#[test]
fn right_plans_pass() {
    let plan = Plan::of(&problem(), Objective::Cost, right());
    assert_eq!(faults(&plan), "none");
    assert!((plan.completion_s - 142.0).abs() < 1e-9);
    // `home` is held for 30 s at a price of 1 a second, `spot` for 40 s at 0.1. `late` is free.
    assert!((plan.cost - 34.0).abs() < 1e-9);
    // If `old` is moved, it first pays its switch: on other devices, under another strategy, or
    // later.
    assert_eq!(with(0, place(0, 0, 1, &[1], (0.0, 35.0))), "none");
    assert_eq!(with(0, place(0, 1, 0, &[0, 1], (12.0, 33.0))), "none");
    assert_eq!(with(0, place(0, 0, 0, &[1], (1.0, 36.0))), "none");
    // `base` ends when `spot` leaves, `tuned` starts at once, and ends at its deadline.
    let mut close = right();
    close[2] = place(2, 0, 1, &[1], (40.0, 50.0));
    close[3] = place(3, 0, 2, &[0, 1], (50.0, 60.0));
    assert_eq!(faults(&Plan::of(&problem(), Objective::Makespan, close)), "none");
}

#[test]
fn broken_facts_are_named() {
    let table = [
        with(2, place(2, 0, 0, &[0], (1.0, 11.0))),
        with(2, place(2, 0, 2, &[0], (30.0, 40.0))),
        with(2, place(2, 0, 0, &[0], (15.0, 25.0))),
        with(3, place(3, 0, 2, &[0, 1], (19.0, 29.0))),
        with(3, place(3, 0, 2, &[0, 1], (55.0, 65.0))),
        with(3, place(3, 0, 0, &[0, 1], (30.0, 40.0))),
        // A switch that is not paid, and a task that stays but pays.
        with(0, place(0, 0, 0, &[1], (1.0, 31.0))),
        with(0, place(0, 0, 1, &[1], (0.0, 30.0))),
        with(0, place(0, 0, 0, &[1], (0.0, 35.0))),
        // A task that can't be moved gets another device or another time.
        with(1, place(1, 0, 1, &[1], (0.0, 40.0))),
        with(1, place(1, 0, 1, &[0], (3.0, 43.0))),
        with(1, place(1, 0, 1, &[0], (11.0, 51.0))),
        with(0, place(0, 0, 0, &[1], (180.0, 215.0))),
    ];
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn wrong_values_and_bounds_are_named() {
    let good = Plan::of(&problem(), Objective::Cost, right());
    let change = |edit: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        edit(&mut plan);
        faults(&plan)
    };
    let table = [
        change(&|plan| plan.completion_s -= 1.0),
        change(&|plan| plan.cost = 0.0),
        change(&|plan| plan.cost = f64::NAN),
        change(&|plan| plan.cost_bound = 35.0),
        change(&|plan| plan.completion_bound_s = -1.0),
        // The makespan's bound is tight, but the objective is the cost.
        change(&|plan| {
            plan.lower_bound_s = 40.0;
            plan.status = PlanStatus::Optimal;
        }),
    ];
    insta::assert_snapshot!(table.join("\n"));
    let proven = change(&|plan| {
        plan.cost_bound = 34.0;
        plan.status = PlanStatus::Optimal;
    });
    assert_eq!(proven, "none");
}

#[test]
fn a_plan_that_costs_nothing_is_optimal_with_a_bound_of_nothing() {
    let mut free = problem();
    for node in &mut free.cluster.nodes {
        node.price_per_hour = 0.0;
    }
    let plan = Plan::of(&free, Objective::Cost, right());
    let plan = Plan { status: PlanStatus::Optimal, ..plan };
    assert!(plan.cost == 0.0 && plan.cost_bound == 0.0);
    assert_eq!(check(&free, &plan), Ok(()));
    let slow = Plan { objective: Objective::Makespan, ..plan };
    assert!(check(&free, &slow).is_err(), "a makespan without a bound is not proven");
}

#[test]
fn no_plan_needs_a_proof_to_be_impossible() {
    let none = Plan { status: PlanStatus::Infeasible, ..Plan::none(Objective::Cost) };
    let unproven = "status is Infeasible, but no reason that it gives proves that";
    assert_eq!(faults(&none), unproven);
    let words = Reason::unproven(Some(3), "its deadline is too early");
    let told = Plan { reasons: vec![words.clone()], ..none };
    assert_eq!(faults(&told), unproven);
    let refutation = Some(Refutation::TooLate);
    let false_proof = Plan { reasons: vec![Reason { refutation, ..words }], ..told };
    assert_eq!(faults(&false_proof), unproven);
    insta::assert_snapshot!(false_proof.to_json(&problem()));
}

#[test]
fn facts_read_back_as_they_were_written() {
    let text = serde_json::to_string(&problem()).unwrap();
    assert_eq!(Problem::from_json(&text).unwrap(), problem());
    let mut plan = Plan::of(&problem(), Objective::Cost, right());
    plan.cost_bound = 30.0;
    insta::assert_snapshot!(plan.to_json(&problem()));
}

/// `tuned` may end after its deadline at 60, by at most 8 s, at 3 a second.
fn soft() -> Problem {
    let text = TEXT
        .replace(r#""deadline_s": 60,"#, r#""deadline_s": 60, "late_price": 3, "most_late_s": 8,"#);
    Problem::from_json(&text).unwrap()
}

#[test]
fn a_soft_deadline_may_be_missed_at_a_price_and_up_to_its_ceiling() {
    let problem = soft();
    assert_eq!(Problem::from_json(&serde_json::to_string(&problem).unwrap()).unwrap(), problem);
    let ending = |end_s: f64| {
        let mut late = right();
        late[3] = place(3, 0, 2, &[0, 1], (end_s - 10.0, end_s));
        Plan::of(&problem, Objective::Makespan, late)
    };
    let (kept, late, beyond) = (ending(60.0), ending(67.5), ending(69.0));
    assert!(kept.tardiness == 0.0 && (late.tardiness - 22.5).abs() < 1e-9);
    assert_eq!((check(&problem, &kept), check(&problem, &late)), (Ok(()), Ok(())));
    let faults = check(&problem, &beyond).unwrap_err();
    assert_eq!(faults[0].to_string(), "task `tuned` ends at 69 s, after its deadline at 68 s");
    assert!(kept.beats(&late) && !late.beats(&kept), "less tardy comes first");
    let wrong = Plan { tardiness: 0.0, ..late.clone() };
    assert!(check(&problem, &wrong).is_err(), "the checker computes the tardiness itself");
    let over = Plan { tardiness_bound: 23.0, ..late.clone() };
    assert!(check(&problem, &over).is_err(), "no bound is above the plan");
    // Optimal needs the least tardiness to be proven too.
    let value_s = late.makespan_s;
    let claimed = Plan { status: PlanStatus::Optimal, lower_bound_s: value_s, ..late };
    assert!(check(&problem, &claimed).is_err());
    let proven = Plan { tardiness_bound: 22.5, ..claimed };
    assert_eq!(check(&problem, &proven), Ok(()));
    let file: serde_json::Value = serde_json::from_str(&proven.to_json(&problem)).unwrap();
    assert_eq!(
        (file["tardiness"].as_f64(), file["lateness"]["num_late"].as_u64()),
        (Some(22.5), Some(1))
    );
}

#[test]
fn a_price_needs_a_deadline_and_a_ceiling_needs_a_price() {
    let refused = |facts: &str| {
        let text = TEXT.replace(r#""deadline_s": 60,"#, facts);
        Problem::from_json(&text).unwrap_err().to_string()
    };
    let table = [
        refused(r#""late_price": 3,"#),
        refused(r#""deadline_s": 60, "most_late_s": 3,"#),
        refused(r#""deadline_s": 60, "late_price": 0,"#),
        refused(r#""deadline_s": 60, "late_price": 1, "most_late_s": -1,"#),
    ];
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn an_error_of_a_runtime_is_a_small_number() {
    let with = |error: &str| {
        let given = format!("\"runtime_s\": 40, \"relative_error\": {error}");
        Problem::from_json(&TEXT.replace("\"runtime_s\": 40", &given))
    };
    for wrong in ["-0.1", "3.5", "1e300"] {
        let error = with(wrong).unwrap_err().to_string();
        assert!(error.contains("relative_error") && error.contains("from 0 to 3"), "{error}");
    }
    assert!(with("null").is_err() && with("\"0.1\"").is_err());
    let problem = with("0.25").unwrap();
    let text = serde_json::to_string(&problem).unwrap();
    assert_eq!(Problem::from_json(&text).unwrap(), problem);
    // Only the strategy that has one writes it.
    assert_eq!(text.matches("relative_error").count(), 1, "{text}");
}
