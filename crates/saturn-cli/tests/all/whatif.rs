//! What a person sees of `saturn whatif`: a table, a page, exit codes, and clear refusals.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// Exit code, standard output and standard error, without progress, which depends on how busy the
/// machine is.
pub(crate) fn whatif(folder: &TempDir, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saturn"));
    command.arg("whatif").args(arguments).current_dir(folder.path());
    let output = command.env("NO_COLOR", "1").env_remove("COLUMNS").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let talk = text(output.stderr);
    let talk = talk.split_inclusive('\n').filter(|line| !line.starts_with("planned "));
    (output.status.code().unwrap(), text(output.stdout), talk.collect())
}

/// Three tasks on nodes of two GPUs: the first bounds every larger pool.
const WORKLOAD: &str = r#"
costs = { load_s = 20, save_s = 5, checkpoint_every_s = 1800 }
[[nodes]]
gpus = 2
[[tasks]]
name = "long"
steps = 20000
step_s = { ddp = { 1 = 0.5, 2 = 0.3 } }
[[tasks]]
name = "short"
count = 2
steps = 10000
step_s = { ddp = { 1 = 0.4 }, fsdp = { 2 = 0.25 } }
"#;
const PROBLEM: &str = r#"{
    "cluster": {"nodes": [{"gpus": 1, "price_per_hour": 2.0}, {"gpus": 2, "price_per_hour": 3.0}]},
    "tasks": [
        {"name": "a", "strategies": [{"technique": "ddp", "gpus": 2, "runtime_s": 3600}]},
        {"name": "b", "strategies": [{"technique": "ddp", "gpus": 4, "runtime_s": 1800}]}]}"#;

pub(crate) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn a_table_says_what_each_number_of_nodes_comes_to() {
    let folder = folder(&[("w.toml", WORKLOAD)]);
    let options = ["w.toml", "--nodes", "1..4", "--price", "3.5", "--deadline", "3h"];
    let (code, shown, talk) = whatif(&folder, &options);
    assert_eq!((code, talk.as_str()), (0, ""));
    insta::assert_snapshot!("whatif", shown);
    assert_eq!(whatif(&folder, &options).1, shown, "equal seeds give equal answers");
}

#[test]
fn the_same_as_data() {
    let folder = folder(&[("w.toml", WORKLOAD)]);
    let (code, shown, talk) = whatif(&folder, &["w.toml", "--nodes", "1,3", "--json"]);
    assert_eq!((code, talk.as_str()), (0, ""));
    insta::assert_snapshot!("whatif_json", shown);
}

#[test]
fn a_deadline_that_no_size_meets_is_told_apart() {
    let folder = folder(&[("w.toml", WORKLOAD)]);
    let options = ["w.toml", "--nodes", "1..3", "--deadline", "90m"];
    let (code, shown, _) = whatif(&folder, &options);
    assert_eq!(code, 3);
    assert!(shown.contains("no number of nodes meets 1 h 30 min: `long` alone takes"), "{shown}");
    let (_, shown, _) = whatif(&folder, &[&options[..], &["--json"]].concat());
    assert!(serde_json::from_str::<Value>(&shown).unwrap()["cheapest_nodes"].is_null());
}

#[test]
fn reclaimed_nodes_cost_time() {
    let folder = folder(&[("w.toml", WORKLOAD)]);
    let makespan_s = |more: &[&str]| {
        let (code, shown, talk) =
            whatif(&folder, &[&["w.toml", "--nodes", "1", "--json"], more].concat());
        assert_eq!(code, 0, "{talk}");
        let data: Value = serde_json::from_str(&shown).unwrap();
        data["sizes"][0]["makespan_s"].as_f64().unwrap()
    };
    let (safe_s, daily_s) = (makespan_s(&[]), makespan_s(&["--spot"]));
    let hourly_s = makespan_s(&["--spot", "--reclaimed-every", "1h"]);
    // A reclaim loses 920 s here: a launch and half of a checkpoint interval. The first plan is of
    // whole tasks or of switched ones, so the ratio is not exact.
    let ratio = |every_s: f64| 1.0 / (1.0 - 920.0 / every_s);
    assert!((daily_s / safe_s - ratio(86_400.0)).abs() < 0.01, "{daily_s} {safe_s}");
    assert!((hourly_s / safe_s - ratio(3600.0)).abs() < 0.02, "{hourly_s} {safe_s}");
    let (code, _, talk) = whatif(&folder, &["w.toml", "--spot", "--reclaimed-every", "15m"]);
    assert_eq!(code, 2);
    assert!(talk.contains("all that it trains between two reclaims"), "{talk}");
}

#[test]
fn a_planning_problem_will_do_and_too_few_nodes_are_said() {
    let folder = folder(&[("p.json", PROBLEM)]);
    let (code, shown, talk) = whatif(&folder, &["p.json", "--nodes", "1..3"]);
    assert_eq!((code, talk.as_str()), (0, ""));
    insta::assert_snapshot!("whatif_problem", shown);
    let (code, shown, talk) = whatif(&folder, &["p.json", "--nodes", "1"]);
    assert_eq!((code, shown.as_str()), (3, ""));
    assert!(talk.starts_with("error: `p.json`: task `b`: "), "{talk}");
}

#[test]
fn the_page_needs_nothing_else() {
    let folder = folder(&[("w.toml", WORKLOAD)]);
    let options = ["w.toml", "--nodes", "1..4", "--price", "3.5", "--out", "page.html"];
    let (code, _, talk) = whatif(&folder, &options);
    assert_eq!((code, talk.as_str()), (0, "charts: page.html\n"));
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert_eq!(page.matches("data-chart=\"curves\"").count(), 2);
    assert!(!page.contains("http://") && !page.contains("https://"));
    let (code, _, talk) = whatif(&folder, &["w.toml", "--nodes", "1", "--out", "no/p.html"]);
    assert_eq!(code, 5);
    assert!(talk.starts_with("error: failed to write `no/p.html`: "), "{talk}");
}

#[test]
fn bad_input_gets_one_clear_message_each() {
    let running = PROBLEM.replace("\"name\": \"a\",", "\"name\": \"a\", \"only_nodes\": [\"n1\"],");
    let leaving = PROBLEM.replace("{\"gpus\": 1,", "{\"gpus\": 1, \"available_until_s\": 7200,");
    let named = PROBLEM
        .replace("{\"gpus\": 1,", "{\"gpus\": 1, \"type\": \"NVIDIA A100-SXM4-80GB\",")
        .replace("{\"gpus\": 2,", "{\"gpus\": 2, \"type\": \"NVIDIA A100-SXM4-80GB\",");
    let types = PROBLEM.replace("{\"gpus\": 1,", "{\"gpus\": 1, \"type\": \"a100\",");
    let folder = folder(&[
        ("w.toml", WORKLOAD),
        ("p.json", PROBLEM),
        ("bound.json", &running),
        ("leaving.json", &leaving),
        ("types.json", &types),
        ("named.json", &named),
        ("faults.toml", &format!("faults = {{ early = {{ share = 0.5, at = 0.5 }} }}\n{WORKLOAD}")),
        ("bad.json", "{\"cluster\": 3}"),
        ("bad.toml", "nodes = []\ntasks = []\n"),
    ]);
    let mut shown = String::new();
    for arguments in [
        &["none.toml"][..],
        &["bad.toml"],
        &["bad.json"],
        &["bound.json"],
        &["faults.toml"],
        &["w.toml", "--without", "long"],
        &["no-such-run"],
        &["w.toml", "--type", "a100"],
        &["w.toml", "--type", "a100-80gb"],
        &["w.toml", "--type", "h100,a100-80gb", "--price", "3"],
        &["w.toml", "--type", "h100,a100-80gb", "--price", "h100=3"],
        &["w.toml", "--type", "h100", "--price", "h100=3,l4=2"],
        &["w.toml", "--price", "h100=3"],
        &["no-such-run", "--price", "h100=3"],
        &["named.json", "--type", "h200", "--measured-on", "h100"],
        &["w.toml", "--precision", "bf16"],
        &["w.toml", "--type", "l4", "--measured-on", "h100"],
        &["w.toml", "--type", "v100-32gb", "--measured-on", "a10"],
        &["p.json", "--type", "h100"],
        &["w.toml", "--type", "h100", "--measured-on", "h100", "--out", "p.html"],
        &["leaving.json"],
        &["types.json"],
        &["p.json", "--spot"],
        &["w.toml", "--nodes", "0"],
        &["w.toml", "--nodes", "4..1"],
        &["w.toml", "--gpus", "0"],
        &["w.toml", "--price", "-1"],
        &["w.toml", "--deadline", "48"],
        &["w.toml", "--reclaimed-every", "6h"],
    ] {
        let (code, told, talk) = whatif(&folder, arguments);
        assert_eq!((code, told.as_str()), (2, ""), "{arguments:?}: {talk}");
        writeln!(shown, "{}\n  {}", arguments.join(" "), talk.lines().next().unwrap()).unwrap();
    }
    insta::assert_snapshot!("bad_whatif", shown);
    let narrow = WORKLOAD.replace("1 = 0.5, ", "").replace("1 = 0.4", "2 = 0.4");
    std::fs::write(folder.path().join("narrow.toml"), narrow).unwrap();
    let (code, _, talk) = whatif(&folder, &["narrow.toml", "--gpus", "1"]);
    assert_eq!((code, talk.contains("has no strategy that a node can hold")), (3, true), "{talk}");
}

const TYPED: [&str; 8] =
    ["w.toml", "--nodes", "1,4", "--type", "a100-80gb,h100", "--precision", "bf16", "--deadline"];

#[test]
fn types_of_gpu_stand_side_by_side_with_bounds() {
    let folder = folder(&[("w.toml", WORKLOAD)]);
    let more =
        ["3h", "--measured-on", "a100-80gb", "--price", "a100-80gb=3.5,h100=9", "--gpus", "2"];
    let options = [&TYPED[..], &more].concat();
    let (code, shown, talk) = whatif(&folder, &options);
    assert_eq!((code, talk.as_str()), (0, ""));
    insta::assert_snapshot!("whatif_types", shown);
    let (code, shown, _) = whatif(&folder, &[&options[..], &["--json"]].concat());
    assert_eq!(code, 0);
    let data: Value = serde_json::from_str(&shown).unwrap();
    let [here, there] = [&data["types"][0], &data["types"][1]];
    // On the type that was measured, the answer is the one without --type.
    let alone = ["w.toml", "--nodes", "1,4", "--json"];
    let alone: Value = serde_json::from_str(&whatif(&folder, &alone).1).unwrap();
    for index in 0..2 {
        let makespan_s = &alone["sizes"][index]["makespan_s"];
        assert_eq!(&here["sizes"][index]["least_makespan_s"], makespan_s);
        assert_eq!(&here["sizes"][index]["most_makespan_s"], makespan_s);
    }
    // Arithmetic in bf16 is 3.17 times as fast there, and the host is as fast.
    let low = there["ratio"]["low"].as_f64().unwrap();
    assert!((low - 312.0 / 989.5).abs() < 1e-9, "{low}");
    assert_eq!(there["ratio"]["high"], 1.0);
    let [least_s, most_s] = ["least_makespan_s", "most_makespan_s"]
        .map(|name| there["sizes"][0][name].as_f64().unwrap());
    let all_s = alone["sizes"][0]["makespan_s"].as_f64().unwrap();
    assert!(least_s > all_s * low && least_s < all_s * (low + 0.02), "{least_s} {all_s}");
    assert!((most_s / all_s - 1.0).abs() < 1e-9, "{most_s} {all_s}");
    // Nobody is in time.
    let late = [&TYPED[..], &["1m", "--measured-on", "a100-80gb"]].concat();
    let (code, shown, _) = whatif(&folder, &late);
    assert_eq!(code, 3);
    assert!(
        shown.contains("no number of h100-80gb nodes is sure to finish within 1 min"),
        "{shown}"
    );
}

#[test]
fn a_smaller_memory_is_only_taken_for_what_is_known_to_fit() {
    let trial = |gpus: u32, peak: u64| {
        format!(
            r#"{{"task": "m", "gpu_type": "NVIDIA A100-SXM4-80GB", "technique": "ddp", "gpus": {gpus},
            "knobs": {{}}, "outcome": "measured", "step_s": 1.0, "setup_s": 9.0,
            "peak_memory_bytes": {peak}, "timed_steps": 3}}"#
        )
    };
    let trials = [trial(1, 60_000_000_000), trial(2, 30_000_000_000)].join(",");
    let profile = format!(r#"{{"version": 1, "trials": [{trials}]}}"#);
    let workload = "profile = \"p.json\"\n[[nodes]]\ngpus = 8\n[[tasks]]\nname = \"m\"\n\
                    model = \"m\"\nsteps = 1000\n";
    let folder = folder(&[("w.toml", workload), ("p.json", &profile)]);
    let (code, shown, talk) = whatif(&folder, &["w.toml", "--type", "a100-40gb,a100-80gb"]);
    assert_eq!((code, talk.as_str()), (0, ""));
    assert!(shown.contains("one strategy is left out: it may not fit the memory"), "{shown}");
    // Tasks that are evaluated have the memory of their model too.
    let evaluated = format!("{workload}evaluate = {{ every_steps = 500, takes_s = 20 }}\n");
    std::fs::write(folder.path().join("evaluated.toml"), evaluated).unwrap();
    let (code, shown, _) = whatif(&folder, &["evaluated.toml", "--type", "a100-40gb,a100-80gb"]);
    assert_eq!(code, 0);
    assert!(shown.contains("one strategy is left out: it may not fit the memory"), "{shown}");
    let (code, _, talk) = whatif(&folder, &["w.toml", "--type", "l4"]);
    assert_eq!(code, 3);
    let why =
        "l4-24gb has less memory than a100-80gb: each measured strategy of `m` took more than";
    assert!(talk.contains(why), "{talk}");
    // Other types are answered for all the same, each once.
    let (code, shown, _) = whatif(&folder, &["w.toml", "--type", "l4,h100,h100", "--nodes", "1"]);
    assert_eq!(code, 0);
    assert!(shown.contains(&format!("l4-24gb: left out: `w.toml`: {why}")), "{shown}");
    assert_eq!(shown.matches("h100-80gb      1").count(), 1, "{shown}");
}

#[test]
fn strategies_across_nodes_have_no_bounds_on_another_type() {
    let more =
        r#"{"technique": "ddp", "gpus": 2, "runtime_s": 3000}, {"technique": "ddp", "gpus": 4"#;
    let wider = PROBLEM.replace(r#"{"technique": "ddp", "gpus": 4"#, more);
    let folder = folder(&[("p.json", PROBLEM), ("wider.json", &wider)]);
    let options = ["--type", "h100,a100-80gb", "--measured-on", "a100-80gb", "--nodes", "2"];
    let (code, shown, talk) = whatif(&folder, &[&["wider.json"], &options[..]].concat());
    assert_eq!((code, talk.as_str()), (0, ""));
    let words = "one strategy is left out: it was measured across nodes";
    assert_eq!(shown.matches(words).count(), 2, "of each type alike: {shown}");
    let (code, shown, _) = whatif(&folder, &[&["p.json"], &options[..]].concat());
    assert_eq!(code, 0);
    assert!(shown.contains("task `b` has no strategy of at most 2 GPUs"), "{shown}");
}

#[test]
fn evaluations_take_as_much_longer_on_another_type_as_steps_may() {
    let more = "name = \"long\"\nevaluate = { takes_s = 9000 }";
    let evaluated = WORKLOAD.replace("name = \"long\"", more);
    let folder = folder(&[("w.toml", &evaluated)]);
    let (code, shown, talk) = whatif(
        &folder,
        &["w.toml", "--type", "h100", "--measured-on", "a100-80gb", "--nodes", "4", "--json"],
    );
    assert_eq!((code, talk.as_str()), (0, ""));
    let data: Value = serde_json::from_str(&shown).unwrap();
    let least_s = data["types"][0]["sizes"][0]["least_makespan_s"].as_f64().unwrap();
    // On the measured type the evaluation alone takes 9000 s, and all takes 15,040 s.
    assert!(least_s < 0.5 * 15_040.0, "{least_s}");
}
