//! What a person sees of `saturn profile`: a table, a trial, exit codes, and one clear message for
//! each kind of bad input.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Runs `saturn profile` with a home of its own and `input` on its standard input; renders exit
/// code and both streams.
fn profile(home: &Path, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_saturn"))
        .arg("profile")
        .args(arguments)
        .env("SATURN_HOME", home)
        .env("COLUMNS", "100")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let mut shown = format!("exit code {}\n", output.status.code().unwrap());
    for (name, stream) in [("stdout", output.stdout), ("stderr", output.stderr)] {
        let text = String::from_utf8(stream).unwrap();
        if !text.is_empty() {
            write!(shown, "--- {name}\n{text}").unwrap();
        }
    }
    shown.replace(home.to_str().unwrap(), "[home]")
}

/// A line of a table whose last cell tells an age in days, without the age.
fn without_age(line: &str) -> String {
    match line.rsplit_once("  ") {
        Some((head, cell)) if cell.starts_with(char::is_numeric) && cell.ends_with(" ago") => {
            assert!(cell.contains(" d"), "{line}");
            format!("{head}  [age] ago")
        }
        _ => line.to_owned(),
    }
}

fn key(digit: &str) -> String {
    digit.repeat(64)
}

/// A profile of two keys on two kinds of hardware, measured in 2001.
fn file() -> String {
    let (a, b) = (key("a"), key("b"));
    format!(
        r#"{{"version": 1, "trials": [
            {{"task": "gpt-lr1", "profile_key": "{a}", "gpu_type": "cpu", "technique": "ddp",
              "gpus": 1, "outcome": "measured", "step_s": 0.25, "setup_s": 2.0,
              "peak_memory_bytes": 600000000, "timed_steps": 3,
              "hardware": "AMD EPYC 7B13, 1 thread a slot",
              "software": {{"torch": "2.8.0", "saturn": "0.1.0", "technique": "00ff"}},
              "measured_unix_s": 1000000000,
              "trained": {{"step_s": 0.5, "steps": 1200, "relative_error": 0.01,
                "measured_unix_s": 1000000001}}}},
            {{"task": "gpt-lr1", "profile_key": "{a}", "gpu_type": "cpu", "technique": "fsdp",
              "gpus": 2, "outcome": "out_of_memory", "detail": "no\nroom",
              "device_memory_bytes": 500000000, "hardware": "AMD EPYC 7B13, 1 thread a slot",
              "software": {{"torch": "2.8.0", "saturn": "0.1.0", "technique": "00ff"}},
              "measured_unix_s": 1000000000}},
            {{"task": "mine", "profile_key": "{b}", "technique": "fsdp", "gpus": 8,
              "knobs": {{"cpu_offload": true}}, "outcome": "measured", "step_s": 1.5,
              "setup_s": 9.0, "peak_memory_bytes": 70000000000, "timed_steps": 1}},
            {{"task": "mine", "profile_key": "{b}", "technique": "ddp", "gpus": 8,
              "outcome": "failed", "error": "e", "traceback": ""}}]}}"#
    )
}

#[test]
fn help() {
    let home = TempDir::new().unwrap();
    insta::assert_snapshot!("help_profile", profile(home.path(), &["--help"], ""));
    for verb in ["list", "show", "export", "import", "forget"] {
        let shown = profile(home.path(), &[verb, "--help"], "");
        insta::assert_snapshot!(format!("help_profile_{verb}"), shown);
    }
}

#[test]
fn profiles_come_in_are_shown_go_out_and_are_forgotten() {
    let home = TempDir::new().unwrap();
    let path = home.path();
    let mut story = String::new();
    let mut tell = |arguments: &[&str], input: &str| {
        let shown = profile(path, arguments, input);
        writeln!(story, "=== saturn profile {}\n{shown}", arguments.join(" ")).unwrap();
    };
    tell(&["list"], "");
    tell(&["import", "-"], &file());
    tell(&["list"], "");
    tell(&["list", "--json"], "");
    tell(&["show", "aaaa"], "");
    tell(&["show", "bb", "--json"], "");
    tell(&["import", "-", "--json"], &file());
    tell(&["export", "aa", "-"], "");
    let out = path.join("out.json");
    tell(&["export", out.to_str().unwrap()], "");
    tell(&["export", "b", out.to_str().unwrap(), "--json"], "");
    tell(&["forget", "--older-than", "30d"], "");
    tell(&["list"], "");
    tell(&["import", out.to_str().unwrap()], "");
    tell(&["forget", "b"], "");
    tell(&["forget", "--all", "--json"], "");
    tell(&["list", "--json"], "");
    let story = story.replace(path.to_str().unwrap(), "[home]");
    let lines: Vec<String> = story.split('\n').map(without_age).collect();
    insta::assert_snapshot!("story", lines.join("\n"));
}

#[test]
fn what_is_exported_is_imported_elsewhere_as_it_was() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    profile(here.path(), &["import", "-"], &file());
    let file = here.path().join("all.json");
    profile(here.path(), &["export", file.to_str().unwrap()], "");
    profile(there.path(), &["import", file.to_str().unwrap()], "");
    let trials = |home: &Path| profile(home, &["export", "-"], "");
    assert_eq!(trials(here.path()), trials(there.path()));
    assert!(trials(there.path()).contains("AMD EPYC 7B13"));
}

#[test]
fn bad_input_gets_one_clear_message_each() {
    let home = TempDir::new().unwrap();
    let mut table = String::new();
    for (name, text) in [
        ("not JSON", "once upon a time".to_owned()),
        ("another version", file().replace("\"version\": 1", "\"version\": 2")),
        ("negative seconds", file().replace("0.25", "-0.25")),
        ("seconds that are NaN", file().replace("0.25", "NaN")),
        ("no seconds", file().replace("0.25", "0")),
        ("an unknown field", file().replace("\"task\": \"mine\"", "\"job\": \"mine\"")),
        ("no key", file().replace("\"profile_key\": \"bbbb", "\"profile_key\": \"../bbbb")),
        ("a date that is text", file().replace("1000000000", "\"2001\"")),
    ] {
        let shown = profile(home.path(), &["import", "-"], &text);
        writeln!(table, "=== {name}\n{shown}").unwrap();
    }
    insta::assert_snapshot!("bad_profiles", table);
    assert!(!home.path().join("profiles").exists(), "nothing is left behind");

    profile(home.path(), &["import", "-"], &file());
    let more = file().replace(&key("b"), &format!("aaaa{}", "b".repeat(60)));
    profile(home.path(), &["import", "-"], &more);
    let mut table = String::new();
    let cases: [&[&str]; 9] = [
        &[],
        &["show", "cc"],
        &["show", "aaaa"],
        &["import", "no-such-file"],
        &["export"],
        &["export", "cc", "out.json"],
        &["forget"],
        &["forget", "aa", "--all"],
        &["forget", "--older-than", "soon"],
    ];
    for arguments in cases {
        let shown = profile(home.path(), arguments, "");
        writeln!(table, "=== saturn profile {}\n{shown}", arguments.join(" ")).unwrap();
    }
    insta::assert_snapshot!("bad_profile_arguments", table);
}

#[test]
fn a_damaged_file_is_set_aside_and_a_disk_that_fails_is_told() {
    let home = TempDir::new().unwrap();
    profile(home.path(), &["import", "-"], &file());
    let path = home.path().join("profiles").join(format!("{}.v1.json", key("a")));
    std::fs::write(&path, "{").unwrap();
    let shown = profile(home.path(), &["list"], "");
    assert!(shown.starts_with("exit code 0"), "{shown}");
    assert!(shown.contains("warning: ") && shown.contains("set aside as"), "{shown}");
    assert!(shown.contains("mine") && !shown.contains("gpt-lr1"), "{shown}");
    let nowhere = home.path().join("no/such/out.json");
    let shown = profile(home.path(), &["export", nowhere.to_str().unwrap()], "");
    assert!(shown.starts_with("exit code 5") && shown.contains("failed to write"), "{shown}");
}
