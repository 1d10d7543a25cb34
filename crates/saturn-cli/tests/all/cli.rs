//! What a person sees of the `saturn` program: help, plans, exit codes, and one clear message for
//! each kind of bad input. Seconds that a solve took are redacted.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Runs the program with `input` on its standard input; renders exit code and both streams.
fn saturn(arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_saturn"))
        .args(arguments)
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments does not read: then the pipe is closed.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let mut shown = format!("exit code {}\n", output.status.code().unwrap());
    for (name, stream) in [("stdout", output.stdout), ("stderr", output.stderr)] {
        let text = String::from_utf8(stream).unwrap();
        if !text.is_empty() {
            write!(shown, "--- {name}\n{text}").unwrap();
        }
    }
    shown
}

/// A text with what lies between `before` and the next `end` replaced.
fn redacted(text: &str, before: &str, end: char, by: &str) -> String {
    let (head, tail) = text.split_once(before).unwrap();
    format!("{head}{before}{by}{}", &tail[tail.find(end).unwrap()..])
}

fn plan_with(options: &[&str], problem: &str) -> String {
    saturn(&[&["plan", "-", "--time-limit", "20"], options].concat(), problem)
}

fn plan(problem: &str) -> String {
    plan_with(&[], problem)
}

const TWO_TASKS: &str = r#"{
    "cluster": {"nodes": [{"gpus": 2}]},
    "tasks": [
        {"name": "a", "strategies": [
            {"technique": "ddp", "gpus": 1, "runtime_s": 60.0},
            {"technique": "fsdp", "gpus": 2, "runtime_s": 35.0}]},
        {"name": "b", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 60.0}]}]}"#;

#[test]
fn help() {
    insta::assert_snapshot!("help", saturn(&["--help"], ""));
    insta::assert_snapshot!("help_plan", saturn(&["plan", "--help"], ""));
    insta::assert_snapshot!("help_resume", saturn(&["resume", "--help"], ""));
    for verb in [
        "estimate",
        "simulate",
        "whatif",
        "run",
        "runs",
        "status",
        "web",
        "explain",
        "logs",
        "cancel",
        "pause",
        "unpause",
        "priority",
        "take-back",
        "trace",
        "close",
        "stop",
        "sweep",
        "submit",
        "shell",
        "doctor",
        "completions",
    ] {
        insta::assert_snapshot!(format!("help_{verb}"), saturn(&[verb, "--help"], ""));
    }
}

#[test]
fn bash_completes_verbs_and_options() {
    let script = saturn(&["completions", "bash"], "");
    let script = script.strip_prefix("exit code 0\n--- stdout\n").unwrap();
    let completed = |words: &[&str]| {
        let ask = format!(
            "{script}\nCOMP_WORDS=({}) COMP_CWORD={}; _saturn saturn {} ''; echo ${{COMPREPLY[@]}}",
            words.join(" "),
            words.len() - 1,
            words.last().unwrap(),
        );
        let output = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed(&["saturn", "sta"]), "status");
    assert_eq!(completed(&["saturn", "profile", "fo"]), "forget");
    assert_eq!(completed(&["saturn", "stop", "--at"]), "--at-once");
    for (shell, word) in [("zsh", "#compdef saturn"), ("fish", "complete -c saturn")] {
        assert!(saturn(&["completions", shell], "").contains(word), "{shell}");
    }
}

#[test]
fn a_plan_for_a_person_and_for_a_script() {
    let text = redacted(&plan(TWO_TASKS), "solved in ", '\n', "[time]");
    insta::assert_snapshot!("plan", text);
    let json = redacted(&plan_with(&["--json"], TWO_TASKS), "\"solve_s\": ", ',', "[time]");
    insta::assert_snapshot!("plan_json", json);
}

#[test]
fn a_robust_plan_avoids_what_nobody_is_sure_of() {
    let problem = r#"{"cluster": {"nodes": [{"gpus": 1}]}, "tasks": [{"name": "t", "strategies": [
        {"technique": "quick", "gpus": 1, "runtime_s": 100, "relative_error": 0.4},
        {"technique": "sure", "gpus": 1, "runtime_s": 101}]}]}"#;
    let text = plan_with(&["--robust"], problem);
    let told = "in 80.0 % of 200 draws of runtimes: at most makespan 1 min 41 s; the best plan as \
                planned (makespan 1 min 40 s) comes to makespan 2 min";
    assert!(text.contains(told), "{text}");
    let json = plan_with(&["--robust", "--json"], problem);
    assert!(json.contains(r#""technique": "sure""#) && json.contains(r#""robust": {"#), "{json}");
    let sure = plan_with(&["--robust"], TWO_TASKS);
    let told = "`draws` is 200: expected 0, or strategies that state a `relative_error`";
    assert!(sure.starts_with("exit code 2") && sure.contains(told), "{sure}");
    let short = saturn(&["plan", "-", "--robust", "--time-limit", "0.000001"], problem);
    assert!(short.contains("note: the time limit is too short to draw"), "{short}");
}

#[test]
fn a_plan_that_may_not_switch_says_why_and_proves_no_more_than_it_knows() {
    let problem = |deadline_s: u32| {
        format!(
            r#"{{"cluster": {{"nodes": [{{"gpus": 1, "type": "slow"}},
                {{"gpus": 1, "type": "fast", "available_from_s": 50}}]}},
            "tasks": [{{"name": "t", "deadline_s": {deadline_s}, "switch_cost_s": 1, "strategies": [
                {{"technique": "ddp", "gpus": 1, "type": "slow", "runtime_s": 100}},
                {{"technique": "ddp", "gpus": 1, "type": "fast", "runtime_s": 10}}]}}]}}"#
        )
    };
    let with = |switches: &str, deadline_s: u32| {
        saturn(&["plan", "-", "--max-switches", switches], &problem(deadline_s))
    };
    let note = "note: no task is switched, since tasks have releases, deadlines or an order";
    assert!(with("1", 60).contains(note) && !with("0", 60).contains("note:"));
    let (proven, open) = (with("0", 57), with("1", 57));
    assert!(proven.starts_with("exit code 3") && proven.contains("infeasible"), "{proven}");
    assert!(open.starts_with("exit code 4") && open.contains("no plan was found"), "{open}");
    assert!(open.contains("can't end before 60 s"), "{open}");
    let json = saturn(&["plan", "-", "--json"], &problem(57));
    assert!(json.contains(r#""refutation":{"proof":"too_late"}"#), "{json}");
}

#[test]
fn options_of_a_cluster_ask_for_the_cluster() {
    for (option, value) in
        [("--nodes", "2"), ("--gpus-per-node", "2"), ("--network-interface", "eth0")]
    {
        let shown = saturn(&["resume", "nowhere", option, value], "");
        let told = format!("error: {option} is for a cluster: add --cluster auto");
        assert!(shown.starts_with("exit code 2") && shown.contains(&told), "{shown}");
    }
}

#[test]
fn a_bad_memory_size_says_what_would_be_right() {
    let shown = saturn(&["resume", "nowhere", "--device-memory", "600M"], "");
    assert!(shown.starts_with("exit code 2"), "{shown}");
    assert!(shown.contains("600MB, 2GiB or 600000000"), "{shown}");
    let shown = saturn(&["resume", "nowhere", "--device-memory", "5"], "");
    assert!(shown.contains("at least 1MB"), "{shown}");
    // A good one is read, and the next thing that is wrong is told.
    let shown = saturn(&["resume", "nowhere", "--device-memory", "2 GiB"], "");
    assert!(shown.contains("no run at `nowhere`"), "{shown}");
}

#[test]
fn every_solver_that_help_lists_makes_a_plan() {
    for solver in ["auto", "milp", "search", "current-practice", "optimus", "max", "min", "random"]
    {
        let shown = plan_with(&["--json", "--solver", solver], TWO_TASKS);
        assert!(shown.starts_with("exit code 0"), "{solver}: {shown}");
    }
    let shown = plan_with(&["--json", "--objective", "completion"], TWO_TASKS);
    assert!(shown.starts_with("exit code 0"), "{shown}");
}

#[test]
fn bad_input_gets_one_clear_message_each() {
    let task = |strategies: &str| {
        format!(
            r#"{{"cluster": {{"nodes": [{{"gpus": 2}}]}},
                 "tasks": [{{"name": "a", "strategies": [{strategies}]}}]}}"#
        )
    };
    let strategy = |fields: &str| task(&format!("{{\"technique\": \"ddp\", {fields}}}"));
    let cases = [
        ("not JSON", "once upon a time".to_owned()),
        ("a list", "[]".to_owned()),
        ("no tasks", r#"{"cluster": {"nodes": [{"gpus": 2}]}, "tasks": []}"#.to_owned()),
        ("no nodes", TWO_TASKS.replace(r#"[{"gpus": 2}]"#, "[]")),
        ("a node without devices", TWO_TASKS.replace(r#"[{"gpus": 2}]"#, r#"[{"gpus": 0}]"#)),
        (
            "two nodes of one name",
            TWO_TASKS.replace(
                r#"[{"gpus": 2}]"#,
                r#"[{"name": "n", "gpus": 2}, {"name": "n", "gpus": 2}]"#,
            ),
        ),
        ("two tasks of one name", TWO_TASKS.replace(r#""name": "b""#, r#""name": "a""#)),
        ("an unknown field", TWO_TASKS.replace(r#""runtime_s": 35.0"#, r#""runtime": 35.0"#)),
        ("a time that is text", strategy(r#""gpus": 1, "runtime_s": "60""#)),
        ("a time that is NaN", strategy(r#""gpus": 1, "runtime_s": NaN"#)),
        ("a time that is zero", strategy(r#""gpus": 1, "runtime_s": 0"#)),
        ("a time that is negative", strategy(r#""gpus": 1, "runtime_s": -3.5"#)),
        ("a time beyond all numbers", strategy(r#""gpus": 1, "runtime_s": 1e999"#)),
        ("no device", strategy(r#""gpus": 0, "runtime_s": 60"#)),
        ("half a device", strategy(r#""gpus": 0.5, "runtime_s": 60"#)),
        ("no strategy", task("")),
        ("a task that fits nowhere", strategy(r#""gpus": 3, "runtime_s": 60"#)),
        ("a type that no node has", strategy(r#""gpus": 1, "type": "h100", "runtime_s": 60"#)),
    ];
    let mut table = String::new();
    for (name, problem) in cases {
        writeln!(table, "=== {name}\n{}", plan(&problem)).unwrap();
    }
    insta::assert_snapshot!("bad_input", table);
}

#[test]
fn every_exit_code_of_the_reference_is_reached() {
    let exit_code = |arguments: &[&str]| {
        let shown = saturn(arguments, TWO_TASKS);
        shown.lines().next().unwrap().to_owned()
    };
    // 1 and 130 take a run, and are tested with one in tests/python/test_survival.py.
    assert_eq!(exit_code(&["plan", "-", "--time-limit", "20"]), "exit code 0");
    assert_eq!(exit_code(&["plan", "nowhere"]), "exit code 2");
    let milp = ["plan", "-", "--solver", "milp", "--time-limit", "0"];
    assert_eq!(exit_code(&milp), "exit code 4");
    let run = tempfile::tempdir().unwrap();
    std::fs::write(run.path().join("journal.db"), "no journal ".repeat(99)).unwrap();
    assert_eq!(exit_code(&["resume", run.path().to_str().unwrap()]), "exit code 5");
    assert_eq!(exit_code(&["report", run.path().to_str().unwrap()]), "exit code 5");
}

#[test]
fn a_plan_is_drawn_on_a_page_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("plan.html");
    let shown = plan_with(&["--html", page.to_str().unwrap()], TWO_TASKS);
    assert!(shown.starts_with("exit code 0"), "{shown}");
    let text = std::fs::read_to_string(page).unwrap();
    assert!(
        text.contains("data-chart=\"gantt\"")
            && !text.contains("http://")
            && !text.contains("https://")
    );
    let nowhere = dir.path().join("no/such/plan.html");
    let shown = plan_with(&["--html", nowhere.to_str().unwrap()], TWO_TASKS);
    assert!(shown.starts_with("exit code 5") && shown.contains("failed to write"), "{shown}");
}

#[test]
fn a_reader_that_closes_early_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_saturn"))
        .args(["plan", "-", "--time-limit", "20"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(TWO_TASKS.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

#[test]
fn bad_arguments_get_one_clear_message_each() {
    let run = tempfile::tempdir().unwrap();
    let empty = run.path().to_str().unwrap();
    let cases: [&[&str]; 17] = [
        &["plan", "no-such-file.json"],
        &["plan", empty],
        &["plan", "-", "--seed", "-1"],
        &["plan", "-", "--max-switches", "many"],
        &["plan", "-", "--solver", "gurobi"],
        &["plan", "-", "--time-limit", "-1"],
        &["plan", "-", "--time-limit", "soon"],
        &["resume", "no-such-run"],
        &["resume", empty],
        &["report", empty],
        &["status", "no-such-run"],
        &["cancel", "no-such-run"],
        &["priority", "no-such-run", "a", "high"],
        &["take-back", "no-such-run", "node", "all"],
        &["runs", "no-such-directory"],
        &["logs", "no-such-run", "a", "-f", "--attempt", "1"],
        &["completions", "tcsh"],
    ];
    let mut table = String::new();
    for arguments in cases {
        let shown =
            format!("=== saturn {}\n{}\n", arguments.join(" "), saturn(arguments, TWO_TASKS));
        table.push_str(&shown.replace(empty, "[empty directory]"));
    }
    insta::assert_snapshot!("bad_arguments", table);
    assert_eq!(std::fs::read_dir(run.path()).unwrap().count(), 0, "nothing is left behind");
}
