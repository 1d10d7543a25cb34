//! What a person sees of `saturn simulate`: a table, a page, exit codes, and one clear message for
//! each kind of bad workload.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// Of a simulation with short solves: exit code, standard output, and standard error without the progress, which a slow machine shows.
fn simulate(folder: &TempDir, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saturn"));
    command.arg("simulate").args(arguments).current_dir(folder.path());
    if !arguments.contains(&"--moves") {
        command.args(["--moves", "20000"]);
    }
    let output = command.env("NO_COLOR", "1").env_remove("COLUMNS").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let talk = text(output.stderr);
    let talk = talk.split_inclusive('\n').filter(|line| !line.starts_with("simulated "));
    (output.status.code().unwrap(), text(output.stdout), talk.collect())
}

fn folder(workload: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("w.toml"), workload).unwrap();
    let table = "model,gpus,nodes,technique,step_s\nsmall,1,1,ddp,0.5\nsmall,2,1,ddp,0.3\n";
    std::fs::write(folder.path().join("table.csv"), table).unwrap();
    folder
}

const WORKLOAD: &str = r#"
profile = "table.csv"
[costs]
load_s = 20
save_s = 5
[[nodes]]
gpus = 4
[[tasks]]
name = "small"
count = 5
model = "small"
steps = 20000
asks_gpus = 2
[[tasks]]
name = "large"
steps = 4000
step_s = { pipeline = { 2 = 3.0, 4 = 1.6 }, fsdp = { 4 = 1.4 } }
"#;

#[test]
fn a_table_sets_policies_side_by_side() {
    let (code, shown, talk) = simulate(&folder(WORKLOAD), &["w.toml"]);
    assert_eq!((code, talk.as_str()), (0, ""));
    insta::assert_snapshot!("simulate", shown);
}

#[test]
fn seeds_and_errors_are_told_and_equal_seeds_give_equal_numbers() {
    let folder = folder(WORKLOAD);
    let options = ["w.toml", "--policy", "saturn-static,fifo", "--seeds", "3", "--error", "20%"];
    let (code, shown, _) = simulate(&folder, &options);
    assert_eq!(code, 0);
    insta::assert_snapshot!("simulate_error", shown);
    let json = || {
        let (code, shown, _) = simulate(&folder, &[&options[..], &["--json"]].concat());
        assert_eq!(code, 0);
        serde_json::from_str::<Value>(&shown).unwrap()
    };
    let data = json();
    assert_eq!(data, json());
    assert_eq!((&data["version"], &data["seeds"]), (&1.into(), &3.into()));
    let policies = data["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 2);
    for policy in policies {
        let runs = policy["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 3);
        let bound_s = data["lower_bound_s"].as_f64().unwrap();
        assert!(runs.iter().all(|run| run["makespan_s"].as_f64().unwrap() >= bound_s));
        assert!(runs.iter().all(|run| run["over_practice"].as_f64().unwrap() > 0.0));
    }
    // Wrong beliefs differ from seed to seed, and so do plans that rest on them.
    let planned = &policies[0]["mean"];
    assert_ne!(planned["least_makespan_s"], planned["most_makespan_s"]);
}

#[test]
fn arrivals_are_drawn_anew_with_each_seed_and_whatif_refuses_them() {
    let more = "arrivals = { kind = \"poisson\", every_s = 36000 }\n";
    let folder = folder(
        &format!("{WORKLOAD}{more}").replace("name = \"large\"\n", "name = \"large\"\ncount = 3\n"),
    );
    let options = ["w.toml", "--policy", "saturn,fifo-backfill", "--seeds", "3"];
    let (code, shown, _) = simulate(&folder, &options);
    assert_eq!(code, 0);
    insta::assert_snapshot!("simulate_arrivals", shown);
    let (_, shown, _) = simulate(&folder, &[&options[..], &["--json"]].concat());
    let data: Value = serde_json::from_str(&shown).unwrap();
    let runs = data["policies"][0]["runs"].as_array().unwrap();
    let bound_s = |run: usize| runs[run]["lower_bound_s"].as_f64().unwrap();
    assert!(bound_s(0) < bound_s(1) || bound_s(0) > bound_s(1));
    assert!(runs.iter().all(|run| run["makespan_s"].as_f64() >= run["lower_bound_s"].as_f64()));
    let mut whatif = Command::new(env!("CARGO_BIN_EXE_saturn"));
    let output = whatif.args(["whatif", "w.toml"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        talk,
        "error: `w.toml`: tasks arrive later; expected tasks that are all there from the beginning\n"
    );
}

#[test]
fn owners_and_faults_are_told() {
    let workload = WORKLOAD
        .replace("name = \"small\"\n", "name = \"small\"\nowner = \"lena\"\n")
        .replace("name = \"large\"\n", "name = \"large\"\nowner = \"omar\"\n");
    let faults = "[faults]\nlost = { every_s = 20000, away_s = 1000 }\n";
    let folder = folder(&format!("{workload}{faults}"));
    let policies = "saturn,fifo-backfill,themis-like";
    let options = ["w.toml", "--policy", policies, "--seeds", "3", "--price", "32.77"];
    let (code, shown, talk) = simulate(&folder, &options);
    assert_eq!((code, talk.as_str()), (0, ""));
    insta::assert_snapshot!("simulate_owners", shown);
    let (code, _, _) = simulate(&folder, &[&options[..], &["--out", "page.html"]].concat());
    assert_eq!(code, 0);
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("worst owner"));
}

/// A task that only gets through between two losses of its node if it is wide.
const LOST: &str = r#"
costs = { load_s = 1, save_s = 1, checkpoint_every_s = 100000 }
faults = { lost = { every_s = 50, away_s = 5 } }
[[nodes]]
gpus = 4
[[tasks]]
name = "a"
steps = 1000
step_s = { ddp = { 1 = 1.0, 4 = 0.01 } }
"#;

#[test]
fn a_policy_that_is_never_done_hides_no_other() {
    let folder = folder(LOST);
    let options = ["w.toml", "--policy", "min,max"];
    let (code, shown, talk) = simulate(&folder, &options);
    assert_eq!((code, talk.as_str()), (3, ""));
    insta::assert_snapshot!("simulate_endless", shown);
    let (code, shown, _) = simulate(&folder, &[&options[..], &["--json"]].concat());
    assert_eq!(code, 3);
    let data: Value = serde_json::from_str(&shown).unwrap();
    let [min, max] = [&data["policies"][0], &data["policies"][1]];
    assert_eq!((&min["mean"], min["runs"].as_array().unwrap().len()), (&Value::Null, 0));
    assert!(min["not_done"][0]["after_s"].as_f64().unwrap() > 100_000.0);
    assert!(max["mean"]["makespan_s"].as_f64().unwrap() < 1000.0);
    assert_eq!((&max["not_done"], &data["is_partial"]), (&serde_json::json!([]), &false.into()));
    let (code, _, _) = simulate(&folder, &[&options[..], &["--out", "page.html"]].concat());
    assert_eq!(code, 3);
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("a policy is not done") && page.contains("not done after"));
    assert_eq!(page.matches("data-chart=\"gantt\"").count(), 1);
    // Policies that are done exit as ever.
    assert_eq!(simulate(&folder, &["w.toml", "--policy", "max"]).0, 0);
}

#[test]
fn the_page_has_a_chart_for_each_policy_and_needs_nothing_else() {
    let folder = folder(WORKLOAD);
    let options = ["w.toml", "--policy", "saturn,max", "--out", "page.html"];
    let (code, _, talk) = simulate(&folder, &options);
    assert_eq!((code, talk.as_str()), (0, "charts: page.html\n"));
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert_eq!(page.matches("data-chart=\"gantt\"").count(), 2);
    for wanted in ["6 tasks under saturn", "6 tasks under max", "small-3", "lower bound"] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert!(!page.contains("http://") && !page.contains("https://"));
    let (code, _, talk) = simulate(&folder, &["w.toml", "--policy", "max", "--out", "no/p.html"]);
    assert_eq!(code, 5);
    assert!(talk.starts_with("error: failed to write `no/p.html`: "), "{talk}");
}

#[test]
fn bad_workloads_get_one_clear_message_each() {
    let alone = "[[tasks]]\nname = \"a\"\nsteps = 10\n";
    let step_s = "step_s = { ddp = { 1 = 1.0 } }\n";
    let nodes = "[[nodes]]\ngpus = 2\n";
    let mut shown = String::new();
    for (what, workload) in [
        ("no TOML", "nodes = [\n".to_owned()),
        ("a sweep", "script = \"train.py\"\n[args]\nlr = [0.1, 0.2]\n".to_owned()),
        ("an unknown field", format!("{nodes}{alone}{step_s}size = 3\n")),
        ("a missing field", format!("{nodes}[[tasks]]\nname = \"a\"\n{step_s}")),
        ("a wrong type", format!("{nodes}{alone}{step_s}count = \"two\"\n")),
        ("no nodes", format!("nodes = []\n{alone}{step_s}")),
        ("no tasks", format!("tasks = []\n{nodes}")),
        ("a node without GPUs", format!("[[nodes]]\ngpus = 0\n{alone}{step_s}")),
        ("no step times", format!("{nodes}{alone}")),
        ("a bad GPU count", format!("{nodes}{alone}step_s = {{ ddp = {{ one = 1.0 }} }}\n")),
        ("a bad step time", format!("{nodes}{alone}step_s = {{ ddp = {{ 1 = -1.0 }} }}\n")),
        ("too wide a task", format!("{nodes}{alone}step_s = {{ ddp = {{ 4 = 1.0 }} }}\n")),
        ("GPU counts without a time", format!("{nodes}{alone}{step_s}gpus = [2]\n")),
        ("no steps", format!("{nodes}[[tasks]]\nname = \"a\"\nsteps = 0\n{step_s}")),
        ("two of one name", format!("{nodes}{alone}{step_s}{alone}{step_s}")),
        ("a model without a profile", format!("{nodes}{alone}model = \"small\"\n")),
        ("no such model", format!("profile = \"table.csv\"\n{nodes}{alone}model = \"b\"\n")),
        ("no such profile", format!("profile = \"no.csv\"\n{nodes}{alone}{step_s}")),
        ("no table", format!("profile = \"w.toml\"\n{nodes}{alone}{step_s}")),
        ("arrivals of no kind", format!("{nodes}{alone}{step_s}arrivals = {{ every_s = 5 }}\n")),
        (
            "bursts of nothing",
            format!(
                "{nodes}{alone}{step_s}arrivals = {{ kind = \"bursts\", every_s = 5, size = 0 }}\n"
            ),
        ),
        (
            "arrivals in no hour",
            format!(
                "{nodes}{alone}{step_s}arrivals = {{ kind = \"hours\", per_hour = {:?} }}\n",
                [0.0; 24]
            ),
        ),
        (
            "a day of two hours",
            format!("{nodes}{alone}{step_s}arrivals = {{ kind = \"hours\", per_hour = [1, 2] }}\n"),
        ),
        ("a bad arrival", format!("{nodes}{alone}{step_s}arrive_s = -5\n")),
        (
            "no fault",
            format!("faults = {{ lost = {{ every_s = 0, away_s = 1 }} }}\n{nodes}{alone}{step_s}"),
        ),
        (
            "a fault that is a gain",
            format!(
                "faults = {{ slow = {{ every_s = 9, lasts_s = 1, factor = 0.5 }} }}\n{nodes}{alone}{step_s}"
            ),
        ),
        (
            "a bad share",
            format!("faults = {{ early = {{ share = 30, at = 0.5 }} }}\n{nodes}{alone}{step_s}"),
        ),
        (
            "a missing owner",
            format!(
                "{nodes}{alone}{step_s}owner = \"lena\"\n[[tasks]]\nname = \"b\"\nsteps = 1\n{step_s}"
            ),
        ),
        (
            "a neighbour that helps",
            format!("costs = {{ neighbours = 0.9 }}\n{nodes}{alone}{step_s}"),
        ),
        (
            "evaluations at no step",
            format!("{nodes}{alone}{step_s}evaluate = {{ every_steps = 0, takes_s = 1 }}\n"),
        ),
        ("a bad cost", format!("costs = {{ load_s = -1 }}\n{nodes}{alone}{step_s}")),
    ] {
        let (code, told, talk) = simulate(&folder(&workload), &["w.toml"]);
        assert_eq!((code, told.as_str()), (2, ""), "{what}: {talk}");
        write!(shown, "{what}\n  {talk}").unwrap();
    }
    let folder = folder(WORKLOAD);
    for arguments in [
        &["none.toml"][..],
        &["w.toml", "--policy", "best"],
        &["w.toml", "--seeds", "0"],
        &["w.toml", "--error", "20"],
        &["w.toml", "--moves", "0"],
        &["w.toml", "--price", "-2"],
    ] {
        let (code, told, talk) = simulate(&folder, arguments);
        assert_eq!((code, told.as_str()), (2, ""), "{talk}");
        writeln!(shown, "{}\n  {}", arguments.join(" "), talk.lines().next().unwrap()).unwrap();
    }
    insta::assert_snapshot!("bad_workloads", shown);
}

#[test]
fn the_example_is_a_workload() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/simulate.toml");
    let folder = TempDir::new().unwrap();
    let (code, shown, talk) = simulate(&folder, &[example, "--policy", "fifo,max"]);
    assert_eq!((code, talk.as_str()), (0, ""));
    assert!(shown.starts_with("simulate: 12 tasks on 8 GPUs (1 node)\n"), "{shown}");
}
