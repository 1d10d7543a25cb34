//! `saturn simulate --replay`: what is a run, and what is not.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Exit code, standard output and standard error.
fn replay(folder: &TempDir, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saturn"));
    command.args(["simulate", "--replay"]).args(arguments).current_dir(folder.path());
    let output = command.env("NO_COLOR", "1").env_remove("COLUMNS").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn put(folder: &TempDir, name: &str, lines: &[String]) {
    std::fs::write(folder.path().join(name), lines.join("\n") + "\n").unwrap();
}

/// A recording of a run of two tasks, as a journal of version 1 has it.
fn first_version() -> Vec<String> {
    let task = |name: &str| {
        json!({"name": name, "dir": format!("tasks/{name}"), "steps": 100, "epochs": null,
               "gpu_range": [1], "profile_key": "k"})
    };
    let strategy = json!({"technique": "ddp", "gpus": 1, "knobs": {}});
    let gang = |device: u32| json!([{"node": 0, "devices": [device]}]);
    let measured = json!({"outcome": "measured", "step_s": 0.1, "setup_s": 0.5,
                          "peak_memory_bytes": 1, "timed_steps": 3});
    let place = |task: u32| {
        json!({"task": task, "strategy": strategy, "gang": gang(task), "share": 1.0,
               "start_s": 1.2, "end_s": 11.8})
    };
    let policy = json!({"interval_s": 1000.0, "checkpoint_every_s": 1000.0, "warmup_steps": 1,
        "timed_steps": 3, "max_failures": 3, "backoff_s": 1.0, "stall_s": 60.0, "min_gain": 0.05,
        "solver_time_limit_s": 2.0, "seed": 0});
    let mut rows = vec![
        (
            0.0,
            json!({"record": "began", "config": {
            "mode": "orchestrate", "device_kind": "cpu",
            "cluster": {"nodes": [{"name": "n", "gpus": 2, "type": "cpu"}]},
            "techniques": [{"name": "ddp", "level": "managed", "import": null, "pickle": null}],
            "tasks": [task("a"), task("b")], "policy": policy}}),
        ),
        (
            0.0,
            json!({"record": "launched", "attempt": 1, "task": 0, "purpose": {"trial": 0},
                     "strategy": strategy, "gang": gang(0)}),
        ),
        (1.0, json!({"record": "tried", "trial": 0, "strategy": strategy, "outcome": measured})),
        (1.1, json!({"record": "ended", "attempt": 1, "end": {"how": "finished"}, "step": 0})),
        (
            1.2,
            json!({"record": "planned", "plan": {"at_s": 1.2, "status": "optimal",
                     "makespan_s": 10.6, "lower_bound_s": 10.6, "solve_s": 0.1,
                     "current_practice_s": null, "tasks": [place(0), place(1)]}}),
        ),
    ];
    for task in 0..2 {
        rows.push((
            1.2,
            json!({"record": "launched", "attempt": task + 2, "task": task,
                   "purpose": "train", "strategy": strategy, "gang": gang(task)}),
        ));
    }
    for task in 0..2 {
        rows.push((
            1.7,
            json!({"record": "started", "attempt": task + 2, "step": 0,
                   "setup_s": 0.5}),
        ));
    }
    for task in 0..2 {
        let attempt = task + 2;
        rows.push((
            11.8,
            json!({"record": "checkpointed", "attempt": attempt, "step": 100,
                   "save_s": 0.1, "blocked_s": 0.1}),
        ));
        rows.push((
            11.9,
            json!({"record": "ended", "attempt": attempt,
                   "end": {"how": "finished"}, "step": 100}),
        ));
        rows.push((
            11.9,
            json!({"record": "task_ended", "task": task,
                   "end": {"how": "done", "loss": 0.5}}),
        ));
    }
    rows.push((11.9, json!({"record": "run_ended", "end": "complete"})));
    let header = json!({"recording": 1, "journal": 1, "run": "first"}).to_string();
    let lines = rows.into_iter().map(|(at_s, row): (f64, Value)| format!("[{at_s},{row}]"));
    std::iter::once(header).chain(lines).collect()
}

/// The lines of a recording that comes with Saturn.
fn recording(name: &str) -> Vec<String> {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/replay/runs");
    let text = std::fs::read_to_string(runs.join(name)).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_run_of_the_first_version_is_replayed() {
    let folder = TempDir::new().unwrap();
    put(&folder, "first.jsonl", &first_version());
    let (code, shown, talk) = replay(&folder, &["first.jsonl"]);
    assert_eq!((code, talk.as_str()), (0, ""));
    insta::assert_snapshot!("replay_first_version", shown);
    let (code, shown, _) = replay(&folder, &["first.jsonl", "--json"]);
    let data: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, &data["version"], &data["runs"][0]["tasks"]), (0, &json!(1), &json!(2)));
    assert!(data["runs"][0]["difference"].as_f64().unwrap().abs() < 0.01, "{data}");
}

#[test]
fn what_is_no_ended_run_gets_one_clear_message() {
    let folder = TempDir::new().unwrap();
    let whole = recording("many.jsonl");
    put(&folder, "half.jsonl", &whole[..whole.len() / 2]);
    put(&folder, "torn.jsonl", &[whole[0].clone(), whole[1][..50].to_owned()]);
    put(&folder, "headless.jsonl", &whole[1..]);
    put(&folder, "later.jsonl", &[r#"{"recording": 1, "journal": 99, "run": "x"}"#.to_owned()]);
    put(&folder, "empty.jsonl", &[whole[0].clone()]);
    std::fs::create_dir(folder.path().join("directory")).unwrap();
    let mut shown = String::new();
    for name in [
        "half.jsonl",
        "torn.jsonl",
        "headless.jsonl",
        "later.jsonl",
        "empty.jsonl",
        "directory",
        "none",
    ] {
        let (code, told, talk) = replay(&folder, &[name]);
        assert_eq!((code, told.as_str()), (2, ""), "{name}: {talk}");
        write!(shown, "{name}\n  {talk}").unwrap();
    }
    let (code, _, talk) = replay(&folder, &["half.jsonl", "--seeds", "3"]);
    assert_eq!(code, 2);
    shown += talk.lines().next().unwrap();
    insta::assert_snapshot!("no_ended_runs", shown);
}
