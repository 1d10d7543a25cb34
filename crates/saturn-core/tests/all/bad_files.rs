//! Tests that every kind of malformed problem and profile file gets one clear message: a table by
//! snapshot.

use saturn_core::{Problem, Profile};

const NODE: &str = r#"{"gpus": 8, "type": "a100"}"#;
const STRATEGY: &str = r#"{"technique": "ddp", "gpus": 2, "runtime_s": 10.5}"#;

fn problem(nodes: &str, tasks: &str) -> String {
    format!(r#"{{"cluster": {{"nodes": [{nodes}]}}, "tasks": [{tasks}]}}"#)
}

fn task(strategies: &str) -> String {
    problem(NODE, &format!(r#"{{"name": "a", "strategies": [{strategies}]}}"#))
}

fn with_runtime(runtime: &str) -> String {
    task(&format!(r#"{{"technique": "ddp", "gpus": 2, "runtime_s": {runtime}}}"#))
}

fn switched(cost: &str) -> String {
    let fields = format!(r#""strategies": [{STRATEGY}], "switch_cost_s": {cost}"#);
    problem(NODE, &format!(r#"{{"name": "a", {fields}}}"#))
}

fn with_gpus(gpus: &str) -> String {
    task(&format!(r#"{STRATEGY}, {{"technique": "ddp", "gpus": {gpus}, "runtime_s": 1}}"#))
}

#[test]
fn problem_files() {
    let two = format!(r#"{{"name": "a", "strategies": [{STRATEGY}]}}"#);
    let cases = [
        ("empty file", String::new()),
        ("not an object", "[1, 2]".to_owned()),
        ("objects as lists", r#"{"cluster": [[]], "tasks": []}"#.to_owned()),
        ("strategy as a list", task(r#"["ddp", 2, null, 10, false]"#)),
        ("cut off", r#"{"cluster": {"nodes": ["#.to_owned()),
        ("trailing text", format!("{} x", task(STRATEGY))),
        ("no tasks field", r#"{"cluster": {"nodes": []}}"#.to_owned()),
        ("empty cluster", problem("", &two)),
        ("empty tasks", problem(NODE, "")),
        ("empty strategies", task("")),
        ("unknown top field", r#"{"clusters": {}}"#.to_owned()),
        ("unknown task field", problem(NODE, r#"{"name": "a", "strategy": []}"#)),
        ("unknown strategy field", task(r#"{"technique": "ddp", "gpu": 2, "runtime_s": 10}"#)),
        ("switch cost is null", switched("null")),
        ("switch cost is negative", switched("-1")),
        ("switch cost is text", switched("\"60\"")),
        ("unknown node field", problem(r#"{"gpus": 8, "kind": "a100"}"#, &two)),
        ("field given twice", problem(r#"{"gpus": 8, "gpus": 4}"#, &two)),
        ("missing technique", task(r#"{"gpus": 2, "runtime_s": 10}"#)),
        ("missing gpus in node", problem(r#"{"type": "a100"}"#, &two)),
        ("runtime is text", with_runtime(r#""10""#)),
        ("runtime is null", with_runtime("null")),
        ("runtime is NaN", with_runtime("NaN")),
        ("runtime is Infinity", with_runtime("Infinity")),
        ("runtime is too large for a float", with_runtime("1e400")),
        ("runtime is negative", with_runtime("-1.5")),
        ("runtime is zero", with_runtime("0")),
        ("runtime is beyond all sense", with_runtime("1e300")),
        ("gpus is zero", with_gpus("0")),
        ("gpus is negative", with_gpus("-2")),
        ("gpus is a fraction", with_gpus("1.5")),
        ("gpus is text", with_gpus(r#""8""#)),
        ("gpus is huge", with_gpus("99999999999")),
        ("gpus is a million", with_gpus("1000000")),
        ("node with zero gpus", problem(r#"{"gpus": 0}"#, &two)),
        ("duplicate task names", problem(NODE, &format!("{two}, {two}"))),
        (
            "duplicate node names",
            problem(r#"{"name": "x", "gpus": 1}, {"name": "x", "gpus": 1}"#, &two),
        ),
        (
            "a node named like one by position",
            problem(r#"{"gpus": 1}, {"name": "n0", "gpus": 1}"#, &two),
        ),
        ("empty task name", problem(NODE, &two.replace("\"a\"", "\"\""))),
        ("empty technique", task(r#"{"technique": "", "gpus": 2, "runtime_s": 10}"#)),
        ("type is a number", task(r#"{"technique": "a", "gpus": 2, "runtime_s": 1, "type": 3}"#)),
    ];
    let table: Vec<String> = cases
        .iter()
        .map(|(what, text)| match Problem::from_json(text) {
            Ok(_) => format!("{what}: ACCEPTED"),
            Err(error) => format!("{what}:\n    {error}"),
        })
        .collect();
    insta::assert_snapshot!(table.join("\n"));
}

/// A problem with extra fields in a node, in a task with one strategy, and at the top.
fn with_facts(node: &str, task: &str, top: &str) -> String {
    format!(
        r#"{{"cluster": {{"nodes": [{{"name": "n", "gpus": 4{node}}}, {{"name": "m", "gpus": 4}}]}},
            "tasks": [{{"name": "a", "strategies": [{STRATEGY}]{task}}},
                      {{"name": "b", "strategies": [{STRATEGY}], "after": ["a"]}}]{top}}}"#
    )
}

#[test]
fn facts_that_cannot_be() {
    let node = |fields: &str| with_facts(&format!(", {fields}"), "", "");
    let task = |fields: &str| with_facts("", &format!(", {fields}"), "");
    let running = |fields: &str| task(&format!(r#""running": {{{fields}}}"#));
    let held = r#""placement": [{"node": "n", "devices": [0, 1]}]"#;
    let there = format!(r#""technique": "ddp", "gpus": 2, {held}"#);
    let twice = r#"{"name": "c", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 1}],
        "running": {"technique": "ddp", "gpus": 1, "placement": [{"node": "n", "devices": [1]}]}},"#;
    let cases = [
        ("price is negative", node(r#""price_per_hour": -1"#)),
        ("price is text", node(r#""price_per_hour": "3""#)),
        ("arrival is negative", node(r#""available_from_s": -1"#)),
        ("node leaves at once", node(r#""available_until_s": 0"#)),
        ("node leaves before it arrives", node(r#""available_from_s": 9, "available_until_s": 9"#)),
        ("departure is null", node(r#""available_until_s": null"#)),
        ("release is negative", task(r#""release_s": -5"#)),
        ("release is text", task(r#""release_s": "noon""#)),
        ("weight is zero", task(r#""weight": 0"#)),
        ("weight is a million millions", task(r#""weight": 1e12"#)),
        ("deadline is zero", task(r#""deadline_s": 0"#)),
        ("deadline of all is negative", with_facts("", "", r#", "deadline_s": -1"#)),
        ("after a task that isn't there", task(r#""after": ["z"]"#)),
        ("after itself", task(r#""after": ["a"]"#)),
        ("after each other", task(r#""after": ["b"]"#)),
        ("after is text", task(r#""after": "b""#)),
        ("pinned to nothing", task(r#""only_nodes": []"#)),
        ("pinned to a node that isn't there", task(r#""only_nodes": ["n", "x"]"#)),
        ("kept off a node that isn't there", task(r#""not_nodes": ["x"]"#)),
        ("switch cost is negative", task(r#""switch_cost_s": -1"#)),
        ("running without a place", running(r#""technique": "ddp", "gpus": 2"#)),
        ("running as a list", task(r#""running": ["ddp", 2]"#)),
        ("unknown field of running", running(&format!(r#"{there}, "fixed": true"#))),
        ("running under no strategy", running(&there.replace("\"gpus\": 2", "\"gpus\": 3"))),
        ("running on no node", running(&there.replace("\"n\"", "\"x\""))),
        ("running on no device", running(&there.replace("[0, 1]", "[]"))),
        ("running on too few devices", running(&there.replace("[0, 1]", "[0]"))),
        ("running on a device that isn't there", running(&there.replace("[0, 1]", "[3, 4]"))),
        ("running but released later", task(&format!(r#""running": {{{there}}}, "release_s": 1"#))),
        (
            "running but after another",
            with_facts("", "", "")
                .replace(r#""after""#, &format!(r#""running": {{{there}}}, "after""#)),
        ),
        ("movable at no known cost", running(&format!(r#"{there}, "movable": true"#))),
        (
            "running on a node that arrives later",
            running(&there).replace("\"gpus\": 4", "\"gpus\": 4, \"available_from_s\": 3"),
        ),
        (
            "two on one device",
            running(&there).replace("\"tasks\": [", &format!("\"tasks\": [{twice}")),
        ),
    ];
    let table: Vec<String> = cases
        .iter()
        .map(|(what, text)| match Problem::from_json(text) {
            Ok(_) => format!("{what}: ACCEPTED"),
            Err(error) => format!("{what}:\n    {error}"),
        })
        .collect();
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn profile_files() {
    let measured = r#"{"task": "a", "technique": "ddp", "gpus": 1, "outcome": "measured",
        "step_s": 0.1, "setup_s": 2, "peak_memory_bytes": 1000, "timed_steps": 3}"#;
    let trained = r#""gpus": 1, "trained": {"step_s": 0.2, "steps": 40, "relative_error": 0.02},"#;
    let with = |from: &str, to: &str| format!(r#"{{"trials": [{}]}}"#, measured.replace(from, to));
    assert!(Profile::from_json(&with("", "")).is_ok());
    let cases = [
        ("no trials field", "{}".to_owned()),
        ("other version", r#"{"version": 2, "trials": []}"#.to_owned()),
        ("unknown outcome", with("\"measured\"", "\"fast\"")),
        ("unknown field", with("\"step_s\"", "\"seconds\"")),
        ("zero step_s", with("0.1", "0")),
        ("negative step_s", with("0.1", "-1")),
        ("NaN step_s", with("0.1", "NaN")),
        ("negative setup_s", with("\"setup_s\": 2", "\"setup_s\": -2")),
        ("negative checkpoint_s", with("\"setup_s\": 2", "\"setup_s\": 2, \"checkpoint_s\": -1")),
        ("negative warmup_s", with("\"setup_s\": 2", "\"setup_s\": 2, \"warmup_s\": -1")),
        ("NaN relative_error", with("\"setup_s\": 2", "\"setup_s\": 2, \"relative_error\": NaN")),
        (
            "negative relative_error",
            with("\"setup_s\": 2", "\"setup_s\": 2, \"relative_error\": -0.1"),
        ),
        ("zero timed_steps", with("\"timed_steps\": 3", "\"timed_steps\": 0")),
        ("missing step_s", with("\"step_s\": 0.1,", "")),
        ("field of another outcome", with("\"step_s\": 0.1", "\"step_s\": 0.1, \"reason\": \"x\"")),
        ("measured fields without measuring", with("\"measured\"", "\"failed\"")),
        ("memory is negative", with("1000", "-5")),
        ("trial given twice", format!(r#"{{"trials": [{measured}, {measured}]}}"#)),
        ("empty task", with("\"a\"", "\"\"")),
        (
            "neither outcome nor training",
            r#"{"trials": [{"task": "a", "technique": "ddp", "gpus": 1}]}"#.to_owned(),
        ),
        (
            "fields of an outcome without one",
            with("\"gpus\": 1, \"outcome\": \"measured\",", trained),
        ),
        ("trained by no step", with("\"gpus\": 1,", &trained.replace("40", "0"))),
        ("negative seconds of training", with("\"gpus\": 1,", &trained.replace("0.2", "-1"))),
    ];
    let table: Vec<String> = cases
        .iter()
        .map(|(what, text)| match Profile::from_json(text) {
            Ok(_) => format!("{what}: ACCEPTED"),
            Err(error) => format!("{what}:\n    {error}"),
        })
        .collect();
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn a_task_that_fits_nowhere_is_told_why() {
    let text = problem(
        r#"{"gpus": 8, "type": "a100"}, {"gpus": 8, "type": "a100"}, {"gpus": 4, "type": "h100"}"#,
        r#"{"name": "fits", "strategies": [{"technique": "fsdp", "gpus": 16, "runtime_s": 1}]},
           {"name": "wrong type", "strategies": [
              {"technique": "ddp", "gpus": 1, "type": "v100", "runtime_s": 1}]},
           {"name": "too wide", "strategies": [
              {"technique": "fsdp", "gpus": 17, "runtime_s": 1},
              {"technique": "tensor", "gpus": 8, "type": "h100", "runtime_s": 1}]}"#,
    );
    let problem = Problem::from_json(&text).unwrap();
    let reasons: Vec<String> = problem
        .unplaceable()
        .iter()
        .map(|(task, reason)| format!("{}: {reason}", problem.tasks[*task].name))
        .collect();
    insta::assert_snapshot!(reasons.join("\n"), @r"
    wrong type: needs 1 GPU of type `v100` (`ddp`); the cluster has 16 of `a100`, 4 of `h100`
    too wide: needs 17 GPUs of one type (`fsdp`) or 8 GPUs of type `h100` (`tensor`); the cluster has 16 of `a100`, 4 of `h100`
    ");
}

#[test]
fn names_and_types_default_by_position() {
    let text = problem(r#"{"gpus": 1}, {"name": "big", "gpus": 8}, {"gpus": 2}"#, &{
        format!(r#"{{"name": "a", "strategies": [{STRATEGY}]}}"#)
    });
    let problem = Problem::from_json(&text).unwrap();
    let nodes: Vec<_> = problem
        .cluster
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), node.gpu_type.as_str()))
        .collect();
    assert_eq!(nodes, [("n0", "gpu"), ("big", "gpu"), ("n2", "gpu")]);
    let again = serde_json::to_string(&problem).unwrap();
    assert_eq!(Problem::from_json(&again).unwrap(), problem);
}

#[test]
fn a_profile_reads_back_as_it_was_written() {
    let text = r#"{"trials": [
        {"task": "a", "technique": "ddp", "gpus": 4,
         "trained": {"step_s": 0.05, "steps": 70, "relative_error": 0.02}},
        {"task": "a", "technique": "ddp", "gpus": 1, "knobs": {"micro": 2}, "outcome": "measured",
         "trained": {"step_s": 0.2, "steps": 40, "relative_error": 0.02, "measured_unix_s": 9},
         "step_s": 0.1, "setup_s": 2, "peak_memory_bytes": 1000, "timed_steps": 3,
         "checkpoint_s": 0.4, "batches_per_epoch": 56},
        {"task": "a", "technique": "tensor", "gpus": 2, "outcome": "not_applicable", "reason": "r"},
        {"task": "a", "technique": "ddp", "gpus": 2, "outcome": "out_of_memory", "detail": "d"},
        {"task": "a", "technique": "fsdp", "gpus": 2, "outcome": "failed", "error": "e",
         "traceback": "t\nu"}]}"#;
    let profile = Profile::from_json(text).unwrap();
    assert_eq!(profile.trials.len(), 5);
    assert_eq!(Profile::from_json(&profile.to_json()).unwrap(), profile);
    let derived = serde_json::to_string(&profile).unwrap();
    assert_eq!(Profile::from_json(&derived).unwrap(), profile);
}
