//! Tests of the live region and the counter line at moments of a scripted run.

use saturn_core::Node;
use saturn_engine::TaskSpec;
use saturn_view::Paint;
use saturn_view::live::{counter, region};

use crate::scripted::{self, Script};

fn shown(script: &Script, now_s: f64, columns: usize, rows: usize) -> String {
    region(&script.state, &script.history, now_s, (columns, rows), Paint::PLAIN).join("\n")
}

fn training() -> Script {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    script
}

#[test]
fn before_the_first_worker_has_started() {
    let script = Script::new();
    insta::assert_snapshot!(shown(&script, 3.2, 100, 20));
    assert_eq!(counter(&script.state, &script.history, 3.2), None);
}

#[test]
fn while_trials_run() {
    let mut script = Script::new();
    script.some_trials(6);
    insta::assert_snapshot!(shown(&script, 9.0, 110, 20));
    insta::assert_snapshot!(
        "trials_counter",
        counter(&script.state, &script.history, 9.0).unwrap()
    );
}

/// Trials that use one of two devices, one after another: four of eight have ended, and the fifth
/// began at 5 s.
#[test]
fn the_time_left_for_trials_counts_down_with_the_devices_that_they_get() {
    let task = |index: usize| TaskSpec {
        gpu_range: Some(vec![1]),
        ..scripted::task(&format!("t{index}"), 100, &format!("model-{index}"))
    };
    let tasks: Vec<TaskSpec> = (0..8).map(task).collect();
    let mut config = scripted::config();
    config.techniques.truncate(1);
    let mut script = Script::of(config, &[Node::new("n0", 2, "cpu")], &tasks);
    script.some_trials(4);
    let left = [5.0, 5.3, 5.6].map(|now_s| {
        let line = counter(&script.state, &script.history, now_s).unwrap();
        let (_, rest) = line.split_once("trials about ").unwrap();
        rest.split_once(" more").unwrap().0.to_owned()
    });
    assert_eq!(left, ["3.6 s", "3.3 s", "3.0 s"]);
}

#[test]
fn while_tasks_train() {
    let script = training();
    insta::assert_snapshot!(shown(&script, 30.0, 110, 20));
    insta::assert_snapshot!("on_a_narrow_terminal", shown(&script, 30.0, 80, 20));
    let line = counter(&script.state, &script.history, 30.0).unwrap();
    insta::assert_snapshot!("training_counter", line);
}

#[test]
fn while_tasks_stop() {
    let mut script = training();
    script.ask_to_stop();
    insta::assert_snapshot!(shown(&script, 30.2, 110, 20));
}

#[test]
fn nothing_wraps_and_nothing_scrolls_away() {
    for (columns, rows) in [(30, 3), (50, 4), (80, 24), (1, 1)] {
        let lines = {
            let script = training();
            region(&script.state, &script.history, 30.0, (columns, rows), Paint::COLOUR)
        };
        assert!(lines.len() <= rows.max(3), "{} of {rows}", lines.len());
        assert!(lines.iter().all(|line| saturn_view::text::width(line) < columns.max(2)));
    }
}
