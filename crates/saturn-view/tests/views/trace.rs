//! Checks a run's trace by the rules of the Chrome trace event format.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::Node;
use saturn_engine::{
    AttemptEnd, Evaluation, NodeId, Purpose, Record, StopReason, TaskEnd, TaskId, no_strategy,
};
use saturn_view::trace;
use serde_json::Value;

use crate::scripted::{self, Script, strategy};

/// Begin, end and name.
type Slice = (i64, i64, String);

/// The events of a trace as Perfetto would show them, one a line. Panics if a rule is broken.
fn checked(text: &str) -> Vec<String> {
    let file: Value = serde_json::from_str(text).unwrap();
    assert_eq!(file["version"], 1);
    let events = file["traceEvents"].as_array().unwrap();
    let number = |event: &Value, key: &str| event[key].as_i64().unwrap();
    let row = |event: &Value| (number(event, "pid"), number(event, "tid"));
    let mut names = BTreeMap::new();
    let mut slices: BTreeMap<(i64, i64), Vec<Slice>> = BTreeMap::new();
    let mut open: BTreeMap<(String, i64), (String, i64)> = BTreeMap::new();
    let mut lines = Vec::new();
    for event in events {
        let name = event["name"].as_str().unwrap().to_owned();
        let phase = event["ph"].as_str().unwrap();
        assert!(number(event, "pid") > 0);
        if phase != "M" {
            assert!(number(event, "ts") >= 0 && number(event, "tid") > 0, "{event}");
        }
        match phase {
            "M" if name == "thread_name" => {
                names.insert(row(event), event["args"]["name"].as_str().unwrap().to_owned());
            }
            "M" => {}
            "X" => {
                let (from, lasts) = (number(event, "ts"), number(event, "dur"));
                assert!(lasts >= 0);
                slices.entry(row(event)).or_default().push((from, from + lasts, name));
            }
            "b" | "s" => {
                let key = (event["cat"].to_string(), number(event, "id"));
                assert!(open.insert(key, (name, number(event, "ts"))).is_none(), "{event}");
            }
            "e" | "f" => {
                let key = (event["cat"].to_string(), number(event, "id"));
                let (begun, at) = open.remove(&key).unwrap();
                assert!(begun == name && at <= number(event, "ts"), "{event}");
                lines.push(format!("{at} to {}: {name}", event["ts"]));
            }
            "i" => lines.push(format!("{}: {name}", event["ts"])),
            _ => panic!("{event}"),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for (row, slices) in &mut slices {
        let row_name = names.get(row).unwrap();
        // Sorts as viewers do: by begin, longer slices outside.
        slices.sort_by_key(|(from, to, _)| (*from, -to));
        let mut around: Vec<i64> = Vec::new();
        for (from, to, name) in slices {
            while around.last().is_some_and(|end| end <= from && *end < *to) {
                around.pop();
            }
            assert!(around.last().is_none_or(|end| *to <= *end), "{row_name}: {name} overlaps");
            let depth = "  ".repeat(around.len());
            lines.push(format!("{}/{row_name}: {depth}{from} to {to}: {name}", row.0));
            around.push(*to);
        }
    }
    lines
}

#[test]
fn a_run_is_a_trace() {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    script.rest();
    let lines = checked(&trace(&script.told, "a \"run\"").unwrap());
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_trace_of_a_run_in_progress_ends_where_the_run_stands() {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    let ends: BTreeSet<String> =
        checked(&trace(&script.told, "run").unwrap()).into_iter().collect();
    assert!(ends.iter().any(|line| line.contains("to 29000000: gpt-b8-lr1e-3")), "{ends:?}");
    assert!(trace(&script.told[1..], "run").is_none());
}

/// Records may come later than what they report: a save may have begun before training did.
#[test]
fn slices_stay_within_their_attempt_whatever_the_records_say() {
    let spec = scripted::task("t", 100, "t");
    let mut script = Script::of(scripted::config(), &[Node::new("n0", 2, "cpu")], &[spec]);
    for _ in 0..3 {
        let look = script.launch(0.0, 0, Purpose::Inspection, no_strategy(), &[]);
        script.tell(
            0.5,
            Record::Ended { attempt: look, end: AttemptEnd::Finished, step: 0, step_s: None },
        );
    }
    let trial = script.launch(1.0, 0, Purpose::Trial, strategy("ddp", 2), &[0, 1]);
    script.tell(3.0, Record::WentOn { attempt: trial, step: 3 });
    let saved = |step, save_s, blocked_s| Record::Checkpointed {
        attempt: trial,
        step,
        save_s,
        blocked_s,
        loss: None,
    };
    script.tell(3.5, saved(10, 9.0, 8.0));
    script.tell(4.0, saved(20, 2.0, 0.1));
    script.tell(
        4.1,
        Record::Evaluated {
            attempt: trial,
            evaluation: Evaluation { step: 20, metrics: BTreeMap::new() },
            best: None,
            evaluation_s: Some(5.0),
        },
    );
    script.tell(5.0, Record::Stopping { attempt: trial, reason: StopReason::Replan });
    script.tell(
        5.0,
        Record::SetAside {
            node: NodeId(0),
            devices: vec![1],
            reason: "it fails".to_owned(),
            absolved: Vec::new(),
        },
    );
    script.tell(
        6.0,
        Record::Ended { attempt: trial, end: AttemptEnd::Stopped, step: 20, step_s: None },
    );
    let again = script.launch(6.0, 0, Purpose::Train, strategy("fsdp", 1), &[0]);
    script.tell(
        6.0,
        Record::Resumed { device_memory_bytes: None, machines: None, adopted: Vec::new() },
    );
    script
        .tell(9.0, Record::Ended { attempt: again, end: AttemptEnd::Lost, step: 20, step_s: None });
    let cancelled = TaskEnd::Cancelled { reason: "by its user".to_owned() };
    script.tell(9.0, Record::TaskEnded { task: TaskId(0), end: cancelled });
    let lines = checked(&trace(&script.told, "run").unwrap());
    for expected in [
        "0 to 3500000: save of t after step 10",
        "5999999 to 6000000: move of t",
        "5000000: n0: device 1 set aside: it fails",
        "6000000: the run is resumed",
        "2/device 0: 1000000 to 6000000: t: ddp × 2",
        "2/device 1: 1000000 to 6000000: t: ddp × 2",
        "2/device 1:   1000000 to 3000000: trial",
        "2/device 1:   3000000 to 4100000: evaluation after step 20",
        "2/device 1:   4100000 to 6000000: after step 20",
        "2/device 0: 6000000 to 9000000: t: fsdp × 1",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}\n{lines:#?}");
    }
    let is_inspection = |line: &&String| line.ends_with("0 to 500000: inspect t");
    assert_eq!(lines.iter().filter(is_inspection).count(), 3);
}
