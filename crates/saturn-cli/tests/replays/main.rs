//! The recorded runs of `benches/replay/runs`, replayed: `docs/evaluation/replay.md` has what comes
//! of them. `SATURN_WRITE_REPLAYS=1` writes its table again.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bands;
mod refusals;
mod rests;
mod wrong;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::Value;

/// What the page's table stands between.
const BEGIN: &str = "<!-- the table of `crates/saturn-cli/tests/replays`: begin -->\n";
const END: &str = "<!-- end -->\n";

/// Held while the page is written, since two tests write a part of it.
static PAGE: Mutex<()> = Mutex::new(());

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every recording, by its name.
fn recordings() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("benches/replay/runs")).unwrap();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn replayed(runs: &[PathBuf]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saturn"));
    command.args(["simulate", "--json", "--replay"]).args(runs);
    let output = command.output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), talk.as_str()), (Some(0), ""));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The table of the page.
fn table(replayed: &Value) -> String {
    let mut text =
        "| run | tasks | devices | realised, s | simulated, s | difference | where they \
                    differ |\n|---|---|---|---|---|---|---|\n"
            .to_owned();
    for run in replayed["runs"].as_array().unwrap() {
        let (realised, simulated) = (&run["realised"], &run["simulated"]);
        writeln!(
            text,
            "| {} | {} | {} | {:.1} | {:.1} | {:+.1} % | {} |",
            run["run"].as_str().unwrap().replace('_', "-"),
            run["tasks"],
            run["devices"],
            realised["makespan_s"].as_f64().unwrap(),
            simulated["makespan_s"].as_f64().unwrap(),
            100.0 * run["difference"].as_f64().unwrap(),
            run["explained_by"].as_str().unwrap(),
        )
        .unwrap();
    }
    let share = |name: &str| 100.0 * replayed[name].as_f64().unwrap();
    let (median, worst) = (share("median_difference"), share("worst_difference"));
    let number = replayed["runs"].as_array().unwrap().len();
    writeln!(
        text,
        "\n**{number} runs: the makespans differ by {median:.1} % (median), and by {worst:.1} % at most.**"
    )
    .unwrap();
    text
}

#[test]
fn the_page_has_what_comes_of_the_recorded_runs() {
    let runs = recordings();
    assert!(runs.len() >= 20, "{} recordings", runs.len());
    let table = table(&replayed(&runs));
    let _lock = PAGE.lock().unwrap();
    let path = root().join("docs/evaluation/replay.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    if std::env::var_os("SATURN_WRITE_REPLAYS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    for line in written.lines().filter(|line| line.ends_with(" |") && line.contains(" % |")) {
        let difference = line.split('|').find_map(|cell| cell.trim().strip_suffix(" %"));
        let difference: f64 = difference.unwrap().parse().unwrap();
        let known_far =
            FARTHER_PERCENT.iter().find(|(run, _)| line.starts_with(&format!("| {run} |")));
        let most = known_far.map_or(WORST_PERCENT, |(_, most)| *most);
        assert!(difference.abs() <= most, "{line}");
    }
    let (written, now) = (rows(written), rows(&table));
    let known = |rows: &[(String, f64)]| rows.iter().map(|row| row.0.clone()).collect::<Vec<_>>();
    assert_eq!(known(&written), known(&now), "SATURN_WRITE_REPLAYS=1 writes the table");
    let is_apart = |(before, after): &(&(String, f64), &(String, f64))| {
        (before.1 / after.1 - 1.0).abs() > 0.002
    };
    let apart: Vec<_> = written.iter().zip(&now).filter(is_apart).collect();
    assert!(apart.len() <= MOST_APART, "SATURN_WRITE_REPLAYS=1 writes the table: {apart:?}");
}

/// A simulated makespan may be this far from the real one, percent.
const WORST_PERCENT: f64 = 8.0;
/// Runs whose replay is known to be farther off, and how far at most; the page says what differs.
const FARTHER_PERCENT: [(&str, f64); 3] =
    [("failing-task", 18.0), ("two-nodes", 11.0), ("uneven", 13.0)];

/// Rows whose simulated makespan may differ between processors. Their mathematical functions differ
/// in the last bit, and a trial or a move may then fall the other way.
const MOST_APART: usize = 3;

/// What a row says of its run, up to the realised makespan, and the simulated makespan.
fn rows(table: &str) -> Vec<(String, f64)> {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let row = |cells: Vec<String>| Some((cells.get(1..5)?.join(" "), cells.get(5)?.parse().ok()?));
    table.lines().filter_map(|line| row(cells(line))).collect()
}

#[test]
fn recordings_are_small_and_name_no_path_of_their_machine() {
    for path in recordings() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() < 100_000, "{}: {} bytes", path.display(), text.len());
        for place in ["/home/", "/root/", "/tmp/", "/work/", "/usr/"] {
            assert!(!text.contains(place), "{} names {place}", path.display());
        }
    }
}
