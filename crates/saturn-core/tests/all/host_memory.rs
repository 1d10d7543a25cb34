//! Host memory in problems: how it is read, which tasks fit, and what the checker refuses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use saturn_core::{Assignment, Objective, Placement, Plan, Problem, WHOLE, check};

/// `old` runs on the first node and takes all that this has. `big` fits the second alone.
const TEXT: &str = r#"{
  "cluster": {"nodes": [
    {"name": "small", "gpus": 4, "host_memory_bytes": 10},
    {"name": "large", "gpus": 4, "host_memory_bytes": 30}]},
  "tasks": [
    {"name": "old", "switch_cost_s": 5,
     "running": {"technique": "ddp", "gpus": 1, "movable": true,
                 "placement": [{"node": "small", "devices": [3]}]},
     "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 30, "host_bytes": 10}]},
    {"name": "big", "strategies": [{"technique": "offload", "gpus": 1, "runtime_s": 10, "host_bytes": 20}]},
    {"name": "lean", "strategies": [{"technique": "fsdp", "gpus": 1, "runtime_s": 10, "host_bytes": 10}]},
    {"name": "none", "strategies": [{"technique": "fsdp", "gpus": 1, "runtime_s": 10}]}]}"#;

fn place(task: usize, node: usize, device: u32, span: (f64, f64)) -> Assignment {
    let gang = vec![Placement { node, devices: vec![device] }];
    Assignment { task, strategy: 0, gang, share: WHOLE, start_s: span.0, end_s: span.1 }
}

/// The faults of a plan with `old` left as it is and these others, in words.
fn faults(text: &str, others: [Assignment; 3]) -> String {
    let problem = Problem::from_json(text).unwrap();
    let [big, lean, none] = others;
    let all = vec![place(0, 0, 3, (0.0, 30.0)), big, lean, none];
    match check(&problem, &Plan::of(&problem, Objective::Makespan, all)) {
        Ok(()) => "none".to_owned(),
        Err(faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    }
}

fn of(others: [Assignment; 3]) -> String {
    faults(TEXT, others)
}

#[test]
fn gangs_share_a_node_as_far_as_its_host_memory_goes() {
    let (big, lean, none) =
        (place(1, 1, 0, (0.0, 10.0)), place(2, 1, 1, (0.0, 10.0)), place(3, 0, 0, (0.0, 10.0)));
    assert_eq!(of([big.clone(), lean.clone(), none.clone()]), "none", "20 and 10 of 30");
    let tight = TEXT.replace("\"host_memory_bytes\": 30", "\"host_memory_bytes\": 29");
    let fault = "task `lean` runs on node `large`, where gangs take 30 bytes of host memory at 0 s: \
                 it has 29";
    assert_eq!(
        faults(&tight, [big.clone(), lean, none.clone()]).split("; ").last(),
        Some(fault),
        "one more byte"
    );
    let later = place(2, 1, 1, (10.0, 20.0));
    assert_eq!(faults(&tight, [big.clone(), later, none.clone()]), "none", "one after the other");
    let early = place(2, 1, 1, (9.0, 19.0));
    assert!(faults(&tight, [big, early, none]).contains("at 9 s"));
}

#[test]
fn a_gang_alone_needs_a_node_that_is_large_enough() {
    let lean = place(2, 1, 1, (0.0, 10.0));
    let small = place(1, 0, 0, (30.0, 40.0));
    let fault = "task `big` runs on node `small`, where gangs take 20 bytes of host memory at 30 s: it \
                 has 10";
    assert_eq!(of([small, lean, place(3, 1, 2, (0.0, 10.0))]), fault);
}

#[test]
fn a_running_task_that_is_left_may_take_more_than_there_is() {
    let text = TEXT.replace("\"host_memory_bytes\": 10", "\"host_memory_bytes\": 9");
    let (big, lean) = (place(1, 1, 0, (0.0, 10.0)), place(2, 1, 1, (0.0, 10.0)));
    let none = place(3, 0, 0, (0.0, 10.0));
    assert_eq!(faults(&text, [big.clone(), lean, none.clone()]), "none");
    let beside = place(2, 0, 1, (5.0, 15.0));
    assert!(faults(&text, [big, beside, none]).contains("gangs take 20 bytes"));
}

#[test]
fn a_task_that_no_node_has_memory_for_does_not_fit() {
    let problem = |text: &str| Problem::from_json(text).unwrap().unplaceable();
    assert!(problem(TEXT).is_empty());
    let text = TEXT.replace("\"host_bytes\": 20", "\"host_bytes\": 31");
    let [(1, why)] = &problem(&text)[..] else { panic!("{:?}", problem(&text)) };
    assert!(why.contains("31 bytes of host memory"), "{why}");
    // The wide node has too little memory, and the other is too narrow.
    let text = TEXT.replace("\"name\": \"large\", \"gpus\": 4", "\"name\": \"large\", \"gpus\": 1");
    let text = text.replace("\"offload\", \"gpus\": 1", "\"offload\", \"gpus\": 2");
    assert_eq!(problem(&text).len(), 1, "{:?}", problem(&text));
    // A task that runs has its memory.
    let text = TEXT.replace("\"host_memory_bytes\": 30", "\"host_memory_bytes\": 20");
    let text = text
        .replace("\"runtime_s\": 30, \"host_bytes\": 10", "\"runtime_s\": 30, \"host_bytes\": 40");
    assert!(problem(&text).is_empty());
}

#[test]
fn bytes_are_whole_numbers() {
    for (from, to) in [
        ("\"host_bytes\": 20", "\"host_bytes\": -1"),
        ("\"host_bytes\": 20", "\"host_bytes\": 2.5"),
        ("\"host_bytes\": 20", "\"host_bytes\": null"),
        ("\"host_bytes\": 20", "\"host_bytes\": 1152921504606846977"),
        ("\"host_memory_bytes\": 30", "\"host_memory_bytes\": \"30\""),
        ("\"host_memory_bytes\": 30", "\"host_memory_bytes\": null"),
        ("\"host_memory_bytes\": 30", "\"host_memory_bytes\": 1152921504606846977"),
    ] {
        let error = Problem::from_json(&TEXT.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains("a whole number of bytes"), "{to}: {error}");
    }
    // A file without either reads and writes as before.
    let plain = r#"{"cluster": {"nodes": [{"gpus": 1}]}, "tasks": [{"name": "a",
        "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 1}]}]}"#;
    let problem = Problem::from_json(plain).unwrap();
    assert_eq!(problem.cluster.nodes[0].host_memory_bytes, None);
    assert!(!serde_json::to_string(&problem).unwrap().contains("host"));
}
