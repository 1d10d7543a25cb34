//! Owners' caps in problems: how they are read, which tasks fit, and what the checker refuses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use saturn_core::{Assignment, Objective, Placement, Plan, Problem, WHOLE, check};

/// `ada` may hold three devices, two of which `old` holds already.
const TEXT: &str = r#"{
  "cluster": {"nodes": [{"name": "n", "gpus": 8}]},
  "owners": [{"name": "ada", "max_gpus": 3}, {"name": "bob", "max_gpus": 1}],
  "tasks": [
    {"name": "old", "owner": "ada", "switch_cost_s": 5,
     "running": {"technique": "ddp", "gpus": 2, "movable": true,
                 "placement": [{"node": "n", "devices": [0, 1]}]},
     "strategies": [{"technique": "ddp", "gpus": 2, "runtime_s": 30}]},
    {"name": "new", "owner": "ada",
     "strategies": [{"technique": "ddp", "gpus": 2, "runtime_s": 10},
                    {"technique": "ddp", "gpus": 1, "runtime_s": 15},
                    {"technique": "ddp", "gpus": 4, "runtime_s": 6}]},
    {"name": "free", "strategies": [{"technique": "ddp", "gpus": 4, "runtime_s": 10}]}]}"#;

fn place(task: usize, strategy: usize, devices: &[u32], span: (f64, f64)) -> Assignment {
    let gang = vec![Placement { node: 0, devices: devices.to_vec() }];
    Assignment { task, strategy, gang, share: WHOLE, start_s: span.0, end_s: span.1 }
}

/// The faults of a plan with `old` left as it is, `free` at once and this `new`, in words.
fn faults(text: &str, new: Assignment) -> String {
    let problem = Problem::from_json(text).unwrap();
    let all = vec![place(0, 0, &[0, 1], (0.0, 30.0)), new, place(2, 0, &[4, 5, 6, 7], (0.0, 10.0))];
    match check(&problem, &Plan::of(&problem, Objective::Makespan, all)) {
        Ok(()) => "none".to_owned(),
        Err(faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    }
}

#[test]
fn gangs_of_an_owner_run_together_as_far_as_the_cap_goes() {
    assert_eq!(faults(TEXT, place(1, 1, &[2], (0.0, 15.0))), "none", "two and one of three");
    assert_eq!(faults(TEXT, place(1, 0, &[2, 3], (30.0, 40.0))), "none", "one after the other");
    assert_eq!(
        faults(TEXT, place(1, 0, &[2, 3], (29.0, 39.0))),
        "task `new` starts at 29 s, when gangs of `ada` hold 4 devices: at most 3 may be held at once"
    );
}

#[test]
fn a_strategy_wider_than_the_cap_is_none_of_the_owners() {
    let fault = faults(TEXT, place(1, 2, &[0, 1, 2, 3], (30.0, 36.0)));
    let said = "task `new` runs under a strategy that may hold 4 devices: `ada` may hold 3 at once";
    assert_eq!(fault.split("; ").next(), Some(said));
}

#[test]
fn running_tasks_that_are_left_may_hold_more_than_the_cap() {
    let lowered = TEXT.replace("\"max_gpus\": 3", "\"max_gpus\": 1");
    assert_eq!(faults(&lowered, place(1, 1, &[2], (30.0, 45.0))), "none");
    let fault = faults(&lowered, place(1, 1, &[2], (0.0, 15.0)));
    assert!(fault.contains("hold 3 devices: at most 1"), "{fault}");
}

#[test]
fn a_task_all_of_whose_strategies_are_wider_than_the_cap_does_not_fit() {
    let unplaceable = |text: &str| Problem::from_json(text).unwrap().unplaceable();
    assert!(unplaceable(TEXT).is_empty());
    let text = TEXT.replace("\"name\": \"free\"", "\"name\": \"free\", \"owner\": \"ada\"");
    let [(2, why)] = &unplaceable(&text)[..] else { panic!("{:?}", unplaceable(&text)) };
    assert_eq!(why, "takes at least 4 GPUs; `ada` may hold 3 at once");
    // A task that runs has its devices.
    let text = TEXT.replace("\"max_gpus\": 3", "\"max_gpus\": 1");
    assert!(unplaceable(&text).is_empty());
}

#[test]
fn whole_nodes_count_as_wide_as_they_may_be() {
    let text = |nodes: &str, cap: u32| {
        format!(
            r#"{{"cluster": {{"nodes": [{nodes}]}}, "owners": [{{"name": "a", "max_gpus": {cap}}}],
            "tasks": [{{"name": "t", "owner": "a",
            "strategies": [{{"technique": "fsdp", "gpus": 5, "runtime_s": 1}}]}}]}}"#
        )
    };
    let fits = |nodes: &str, cap: u32| {
        Problem::from_json(&text(nodes, cap)).unwrap().unplaceable().is_empty()
    };
    let equal = r#"{"gpus": 4}, {"gpus": 4}"#;
    assert!(fits(equal, 8) && !fits(equal, 7), "two whole nodes");
    // One of the three and one of the four would be seven, but two of the four are eight.
    let mixed = r#"{"gpus": 3}, {"gpus": 4}, {"gpus": 4}"#;
    assert!(fits(mixed, 8) && !fits(mixed, 7));
}

#[test]
fn what_a_file_says_of_owners_is_checked() {
    for (from, to, error) in [
        (
            "\"owner\": \"ada\",\n",
            "\"owner\": \"eve\",\n",
            "`tasks[1].owner` is `eve`: expected the name of an owner in `owners`",
        ),
        ("\"max_gpus\": 3", "\"max_gpus\": 0", "`owners[0].max_gpus`"),
        ("\"max_gpus\": 3", "\"max_gpu\": 3", "unknown field `max_gpu`"),
        ("\"name\": \"bob\"", "\"name\": \"ada\"", "names must be unique"),
        ("\"name\": \"bob\"", "\"name\": \"\"", "`owners[1].name` is empty"),
    ] {
        let told = Problem::from_json(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(told.contains(error), "{to}: {told}");
    }
    let plain = TEXT.replace("\"owner\": \"ada\",", "");
    let lines = plain.lines().filter(|line| !line.contains("owners"));
    let problem = Problem::from_json(&lines.collect::<String>()).unwrap();
    assert!(!serde_json::to_string(&problem).unwrap().contains("owner"));
}
