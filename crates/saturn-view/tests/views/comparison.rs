//! Tests of comparisons: as data, and as a page.

use saturn_view::comparison::TaskInRun;
use saturn_view::{Comparison, Report, TaskMetrics, comparison_html};

use crate::charts::charts;
use crate::report::{losses, whole_run};
use crate::scripted::Script;

/// A complete run, and a run that has just begun to train.
fn runs() -> [Report; 2] {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    let metrics = vec![TaskMetrics::from(losses(200, 5.6, 2.4))];
    [whole_run(), Report::build(&script.state, &script.history, "other <b>", metrics)]
}

#[test]
fn runs_are_compared_by_name_of_task() {
    let comparison = Comparison::of(&runs());
    assert_eq!(comparison.runs.len(), 2);
    let best = comparison.runs[0].best.as_ref().unwrap();
    assert_eq!((best.task.as_str(), best.metric.as_str()), ("vit-b32", "loss"));
    assert!((best.value - 0.051).abs() < 1e-9);
    // 20.7 + 6.6 + 13.5 s on one device and 3.5 s on two, then 9.4 and 5.4 s on one.
    let device_s = comparison.runs[0].training_device_s;
    assert!((device_s - (20.7 + 6.6 + 13.5 + 2.0 * 3.5 + 9.4 + 5.4)).abs() < 1e-6, "{device_s}");
    let moved = &comparison.tasks[1];
    assert_eq!(moved.name, "gpt-b8-lr3e-3");
    let [Some(one), Some(other)] = &moved.runs[..] else { panic!("{moved:?}") };
    let way =
        |task: &TaskInRun| (task.technique.clone().unwrap(), task.gpus.unwrap(), task.attempts);
    assert_eq!((way(one), way(other)), (("ddp".to_owned(), 2, 3), ("ddp".to_owned(), 1, 2)));
    let read: Comparison = serde_json::from_str(&comparison.to_json()).unwrap();
    assert_eq!(read, comparison);
}

#[test]
fn tasks_that_only_some_runs_have_are_told_too() {
    let [mut one, mut other] = runs();
    one.tasks.truncate(1);
    other.tasks[0].name = "another".to_owned();
    let comparison = Comparison::of(&[one, other]);
    let has = |name: &str| {
        let task = comparison.tasks.iter().find(|task| task.name == name).unwrap();
        task.runs.iter().map(Option::is_some).collect::<Vec<_>>()
    };
    assert_eq!((has("gpt-b8-lr1e-3"), has("another")), (vec![true, false], vec![false, true]));
}

#[test]
fn a_page_has_all_runs_on_one_axis() {
    let page = comparison_html(&runs());
    for fetch in ["http:", "https:", "src=", "@import", "<link", "<iframe"] {
        assert!(!page.contains(fetch), "{fetch}");
    }
    assert!(page.contains("other &lt;b&gt;") && page.contains("2 runs side by side"));
    // A time has the same position in both charts.
    let [one, other] = &charts(&page, "gantt")[..] else { panic!("two charts") };
    assert!(one["to_s"].as_f64().unwrap() > 10.0);
    assert_eq!(one["to_s"], other["to_s"]);
    assert!(page.contains("gpt-b8-lr1e-3: loss"), "both have losses of that");
    assert!(!page.contains("vit-b32: loss"), "one has");
}

#[test]
fn runs_with_nothing_in_them_are_a_page_too() {
    let script = Script::new();
    let empty = || Report::build(&script.state, &script.history, "empty", Vec::new());
    assert!(comparison_html(&[empty(), empty()]).contains("unfinished"));
}
