//! `saturn whatif RUN` on the recorded runs, as they stood at some time.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::{recordings, root};

/// Exit code, standard output, and standard error without the progress.
fn whatif(run: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saturn"));
    let path = root().join("benches/replay/runs").join(run);
    command.arg("whatif").arg(path).args(arguments);
    let output = command.env("NO_COLOR", "1").env_remove("COLUMNS").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let talk = text(output.stderr);
    let talk = talk.split_inclusive('\n').filter(|line| !line.starts_with("planned "));
    (output.status.code().unwrap(), text(output.stdout), talk.collect())
}

fn data(run: &str, arguments: &[&str]) -> Value {
    let (code, shown, talk) = whatif(run, &[arguments, &["--json"]].concat());
    assert_eq!((code, talk.as_str()), (0, ""), "{run}");
    serde_json::from_str(&shown).unwrap()
}

/// When a recording ends, seconds on its clock.
fn end_s(recording: &PathBuf) -> f64 {
    let text = std::fs::read_to_string(recording).unwrap();
    let last = text.lines().last().unwrap();
    last[1..].split_once(',').unwrap().0.parse().unwrap()
}

#[test]
fn as_it_is_a_run_ends_when_it_expects_to_or_earlier_by_a_better_plan() {
    // Halfway through each run: what `status` says, by the plan in force, beside a plan anew.
    let mut differences = Vec::new();
    for recording in recordings() {
        let name = recording.file_name().unwrap().to_str().unwrap();
        let at = format!("{}s", end_s(&recording) / 2.0);
        let found = data(name, &["--at", &at, "--add", "0"]);
        let planned_s = found["sizes"][0]["makespan_s"].as_f64().unwrap();
        assert_eq!(found["run"]["as_it_is"]["makespan_s"], planned_s);
        let Some(expected_s) = found["run"]["expected_s"].as_f64() else { continue };
        let is_makespan = found["run"]["objective"] == "makespan";
        let difference = planned_s / expected_s - 1.0;
        assert!(difference < 1e-3 || !is_makespan, "{name}: {planned_s} after {expected_s}");
        differences.push(difference.abs());
    }
    differences.sort_by(f64::total_cmp);
    assert!(differences.len() >= 20, "{differences:?}");
    let within = |most: f64| differences.iter().filter(|one| **one <= most).count();
    assert!(3 * within(0.001) > differences.len(), "a third are equal: {differences:?}");
    assert!(4 * within(0.05) > 3 * differences.len(), "most are within 5%: {differences:?}");
}

#[test]
fn further_nodes_and_cancelled_tasks_end_a_run_sooner() {
    let (code, shown, talk) =
        whatif("demo.jsonl", &["--at", "50s", "--add", "0..3", "--price", "2"]);
    assert_eq!((code, talk.as_str()), (0, ""));
    insta::assert_snapshot!("whatif_run", shown);
    let all = data("demo.jsonl", &["--at", "50s"]);
    assert_eq!(all["sizes"].as_array().unwrap().len(), 5);
    let makespans_s = |of: &Value| -> Vec<f64> {
        let sizes = of["sizes"].as_array().unwrap();
        sizes.iter().map(|size| size["makespan_s"].as_f64().unwrap()).collect()
    };
    let ends_s = makespans_s(&all);
    assert!(ends_s.is_sorted_by(|a, b| a >= b) && ends_s[4] < 0.7 * ends_s[0], "{ends_s:?}");
    assert_eq!(data("demo.jsonl", &["--at", "50s", "--nodes", "1..5"]), all);
    let cancelled = "gpt2-b4-lr0.0002,gpt2-b4-lr0.0008";
    let fewer = data("demo.jsonl", &["--at", "50s", "--add", "1", "--without", cancelled]);
    assert_eq!(fewer["run"]["cancelled"].as_array().unwrap().len(), 2);
    assert_eq!(fewer["run"]["as_it_is"]["makespan_s"], all["sizes"][0]["makespan_s"]);
    assert!(makespans_s(&fewer)[0] < ends_s[0], "{fewer}");
    assert_eq!(fewer["num_tasks"].as_u64().unwrap() + 2, all["num_tasks"].as_u64().unwrap());
    let arguments = ["--at", "50s", "--add", "1", "--without", cancelled];
    let (_, shown, _) = whatif("demo.jsonl", &arguments);
    insta::assert_snapshot!("whatif_run_without", shown);
}

#[test]
fn further_nodes_hold_strategies_that_the_runs_nodes_cannot_hold_now() {
    // Before it is asked, a device is set aside: of the tasks' strategies on two devices, measured
    // before, none has a node.
    let path = root().join("benches/replay/runs/full-trials.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let is_before = |line: &&str| {
        let at_s = line.strip_prefix('[').and_then(|row| row.split_once(','));
        at_s.is_none_or(|(at_s, _)| at_s.parse::<f64>().unwrap() < 36.0)
    };
    let mut lines: Vec<&str> = text.lines().filter(is_before).collect();
    let record = r#"{"record":"set_aside","node":0,"devices":[1],"reason":"x"}"#;
    let aside = format!("[36.0,{record}]");
    lines.push(&aside);
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("aside.jsonl");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let found = |add: &str| data(path.to_str().unwrap(), &["--at", "36s", "--add", add]);
    assert!(found("0")["run"]["num_too_wide"].as_u64().unwrap() > 0);
    let more = found("1");
    assert_eq!(more["run"]["num_too_wide"], 0, "{more}");
    // Further nodes of one device hold none of them either.
    let narrow = data(path.to_str().unwrap(), &["--at", "36s", "--add", "1", "--gpus", "1"]);
    assert!(narrow["run"]["num_too_wide"].as_u64().unwrap() > 0);
}

#[test]
fn tasks_after_a_cancelled_task_are_cancelled_too() {
    let found = data("wishes.jsonl", &["--at", "10s", "--add", "0", "--without", "first"]);
    assert_eq!(found["run"]["cancelled"], serde_json::json!(["first", "second", "third"]));
}

#[test]
fn a_run_of_which_nothing_can_be_planned_says_why() {
    let at = |at: &'static str| ["--at", at];
    for (arguments, code, words) in [
        (&[][..], 2, "the run is complete: nothing of it is left to plan"),
        (&at("1s"), 3, "no task can be planned yet: `gpt2-b2-lr0.0002` (inspecting)"),
        (&at("3h"), 2, "the run's journal ends at"),
        (&["--at", "50s", "--price", "h100=2"], 2, "of a run expected one number"),
        (&["--at", "50s", "--without", "nobody"], 2, "there is no task `nobody`"),
        (&["--at", "50s", "--without", "vit-b16-lr0.002"], 2, "`vit-b16-lr0.002` has ended (done)"),
        (&["--at", "50s", "--spot"], 2, "--spot and --type are for files, not for runs"),
        (&["--at", "50s", "--type", "h100"], 2, "--spot and --type are for files, not for runs"),
    ] {
        let (found, shown, talk) = whatif("demo.jsonl", arguments);
        assert_eq!((found, shown.as_str()), (code, ""), "{arguments:?}: {talk}");
        assert!(talk.starts_with("error: ") && talk.contains(words), "{arguments:?}: {talk}");
        assert_eq!(talk.lines().count(), 1, "{talk}");
    }
}

#[test]
fn further_nodes_keep_deadlines_that_the_run_alone_misses() {
    // Each task is due at 110 s, 60 s from when it is asked.
    let path = root().join("benches/replay/runs/demo.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let due = |at_s: u32| text.replace("\"deadline_s\":null", &format!("\"deadline_s\":{at_s}"));
    let folder = tempfile::TempDir::new().unwrap();
    let shown = |at_s: u32, more: &[&str]| {
        let path = folder.path().join("due.jsonl");
        std::fs::write(&path, due(at_s)).unwrap();
        let options = [&["--at", "50s", "--add", "0..1"], more].concat();
        let (code, shown, talk) = whatif(path.to_str().unwrap(), &options);
        assert_eq!((code, talk.as_str()), (0, ""));
        shown
    };
    let left_out = "these plans leave them out";
    let missed = "misses a task's deadline";
    let found = shown(110, &[]);
    assert!(found.contains(missed) && !found.contains(left_out), "{found}");
    let found = shown(110, &["--without", " gpt2-b4-lr0.0002, gpt2-b4-lr0.0008"]);
    assert!(found.contains(&format!("as it is, {missed}")) && !found.contains(left_out), "{found}");
    // With too little time for all sizes deadlines don't count.
    let found = shown(60, &[]);
    assert!(!found.contains(missed) && found.contains(left_out), "{found}");
}
