//! Tests of a run's report: as a file, and as a page.

use saturn_core::{Node, TrialOutcome};
use saturn_engine::{NodeId, PlanSource, Purpose, Record, TaskId, Wishes};
use saturn_view::{
    Code, LossPoint, Paint, Report, Results, TaskMetrics, outcome, render_html, summary,
};
use serde_json::Value;

use crate::charts::charts;
use crate::open_world::{GPT, LATE, VIT, on, place, plan};
use crate::scripted::{self, Script};

/// Losses that fall from `high` to `low` over `steps`, with noise like that of batches.
pub(crate) fn losses(steps: u64, high: f64, low: f64) -> Vec<LossPoint> {
    (1..=steps)
        .map(|step| {
            let share = step as f64 / steps as f64;
            let noise = ((step * 7919 % 101) as f64 / 101.0 - 0.5) * 0.08;
            (step, (low + (high - low) * (-5.0 * share).exp()) * (1.0 + noise))
        })
        .collect()
}

pub(crate) fn whole_run() -> Report {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    script.rest();
    let losses = vec![
        losses(400, 5.6, 2.1),
        losses(400, 5.6, 1.9),
        losses(300, 2.3, 0.05),
        losses(150, 2.3, 0.14),
        Vec::new(),
    ];
    let metrics = losses.into_iter().map(TaskMetrics::from).collect();
    Report::build(&script.state, &script.history, "sweep <i>&</i>", metrics)
}

/// Deadlines of the first four tasks, which end at 38.1, 42.0, 51.4 and 47.4 s. The fifth has failed
/// by then, and does not count.
#[test]
fn how_late_tasks_were_is_told_in_report_page_and_summary() {
    let mut script = Script::new();
    for (task, due_s) in [40.0, 41.5, 31.4, 46.4, 1.0].into_iter().enumerate() {
        let wishes = Wishes { deadline_s: Some(due_s), ..Wishes::default() };
        script.tell(0.5, Record::Wished { task: TaskId(task), wishes });
    }
    script.trials();
    script.plan();
    script.first_training();
    // Nothing has ended, and one deadline has passed.
    let so_far = outcome::lateness(&script.state, &script.history);
    assert_eq!(so_far, None, "no deadline has passed");
    script.rest();
    let report = Report::build(&script.state, &script.history, "sweep", Vec::new());
    let lateness = report.totals.lateness.unwrap();
    assert_eq!((lateness.num_due, lateness.num_late), (4, 3));
    let expected =
        [(lateness.mean_s, 21.5 / 4.0), (lateness.p90_s, 20.0), (lateness.worst_s, 20.0)];
    assert!(expected.iter().all(|(found, known)| (found - known).abs() < 1e-9), "{lateness:?}");
    assert!(report.to_json().contains("\"num_late\": 3"));
    let page = render_html(&report);
    assert!(page.contains("Deadlines kept") && page.contains("1 of 4"), "{page}");
    let lines = summary(&script.state, &script.history, &Results::default(), Paint::PLAIN);
    let line = lines.iter().find(|line| line.starts_with("lateness")).unwrap();
    insta::assert_snapshot!(
        line,
        @"lateness 3 of 4 deadlines missed: 5.4 s late on average over all 4, 20 s at the 90th percentile, 20 s at worst"
    );
    assert!(whole_run().totals.lateness.is_none(), "without deadlines nothing is told");
}

#[test]
fn the_use_of_devices_counts_each_device_as_long_as_it_is_usable() {
    // One device of two trains for 20 s after the plan; the pool changes meanwhile, and at the end.
    let device_use = |changes: &[(f64, Record)]| {
        let mut script = Script::new();
        script.trials();
        script
            .tell(18.0, plan(18.0, PlanSource::Solver, vec![place(GPT, on(0, &[0]), 18.0, 38.0)]));
        let attempt = script.launch(18.0, 0, Purpose::Train, scripted::strategy("ddp", 1), &[0]);
        let (before, after): (Vec<_>, Vec<_>) = changes.iter().partition(|(at_s, _)| *at_s < 38.0);
        for (at_s, record) in before {
            script.tell(*at_s, record.clone());
        }
        script.end(attempt, 400, 2.1, 38.0);
        for (at_s, record) in after {
            script.tell(*at_s, record.clone());
        }
        Report::build(&script.state, &script.history, "it", Vec::new()).totals.device_use.unwrap()
    };
    let set_aside = |devices: Vec<u32>| Record::SetAside {
        node: NodeId(0),
        devices,
        reason: "it fails".to_owned(),
        absolved: Vec::new(),
    };
    let left = Record::NodeLeft { node: NodeId(0), reason: "it is lost".to_owned() };
    let resumed =
        Record::Resumed { device_memory_bytes: None, machines: None, adopted: Vec::new() };
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    close(device_use(&[]), 20.0 / 40.0);
    close(device_use(&[(28.0, set_aside(vec![1]))]), 20.0 / 30.0);
    close(device_use(&[(28.0, set_aside(vec![1])), (33.0, resumed)]), 20.0 / 35.0);
    close(device_use(&[(39.0, set_aside(vec![1]))]), 20.0 / 40.0);
    close(device_use(&[(39.0, left)]), 20.0 / 40.0);
}

/// The report without its curves, which would only make the snapshot long.
fn without_curves(mut report: Report) -> Report {
    for task in &mut report.tasks {
        task.losses.truncate(2);
    }
    report
}

#[test]
fn a_report_as_a_file() {
    insta::assert_snapshot!(without_curves(whole_run()).to_json());
}

#[test]
fn a_report_file_reads_back() {
    let report = whole_run();
    assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
}

#[test]
fn a_report_as_a_page() {
    let page = render_html(&without_curves(whole_run()));
    let from = page.find("<header>").unwrap();
    let to = page.find("<div id=\"tip\"").unwrap();
    // Each element gets a line, so that a change of the snapshot is readable.
    insta::assert_snapshot!(page[from..to].replace("><", ">\n<"));
}

#[test]
fn a_page_fetches_nothing_and_obeys_no_name() {
    let page = render_html(&whole_run());
    for fetch in ["http:", "https:", "src=", "@import", "<link", "<iframe"] {
        assert!(!page.contains(fetch), "{fetch}");
    }
    // URLs only name patterns of the page itself.
    assert!(page.split("url(").skip(1).all(|url| url.starts_with('#')));
    assert!(page.contains("default-src 'none'"));
    assert!(!page.contains("script-src 'unsafe-inline'") && !page.contains(" onclick="));
    // Only one script runs. The others are data, and no name in them can end them.
    assert_eq!(page.matches("<script>").count(), 1);
    let data = page.matches("<script type=\"application/json\">").count();
    assert_eq!(page.matches("<script").count(), 1 + data);
    assert_eq!(page.matches("</script").count(), 1 + data);
    assert!(page.contains("\\u003cb64>") && data > 2);
    assert!(page.contains("sweep &lt;i&gt;&amp;&lt;/i&gt;"));
    assert!(!page.contains("<b64>") && !page.contains("<data>"));
    assert!(!page.contains('\u{1b}'));
}

/// A page of ten thousand devices and tasks must stay small enough for browsers.
#[test]
fn a_large_run_has_a_page_of_bearable_size() {
    let nodes: Vec<Node> = (0..1250).map(|node| Node::new(format!("n{node}"), 8, "cpu")).collect();
    let tasks: Vec<_> =
        (0..10_000).map(|task| scripted::task(&format!("task-{task}"), 100, "alike")).collect();
    let mut script = Script::of(scripted::config(), &nodes, &tasks);
    for task in 0..10_000 {
        let (node, device) = (task / 8, u32::try_from(task % 8).unwrap());
        let gang = crate::open_world::on(node, &[device]);
        let one = scripted::strategy("ddp", 1);
        let attempt = script.launch_on(1.0, task, Purpose::Train, one, gang);
        script.tell(2.0, Record::Started { attempt, step: 0, setup_s: 1.0 });
    }
    let curves = vec![losses(400, 5.0, 1.0).into(); 10_000];
    let report = Report::build(&script.state, &script.history, "large", curves);
    let page = render_html(&report);
    assert!(page.len() < 8_000_000, "{}", page.len());
    assert!(page.contains("and 9000 more tasks"), "the rest is counted");
    let text = saturn_view::summary(
        &script.state,
        &script.history,
        &saturn_view::Results::default(),
        saturn_view::Paint::PLAIN,
    );
    assert!(text.len() < 40);
}

/// A task that waits for another trial has a place, then none, then one again.
#[test]
fn a_plan_that_leaves_a_task_out_is_not_what_the_run_is_judged_by() {
    let mut script = crate::open_world::training();
    script.add(20.0, scripted::task("late", 500, "gpt"));
    let gpt = place(GPT, on(1, &[0, 1]), 9.5, 31.2);
    let vit = place(VIT, on(0, &[0]), 9.5, 28.4);
    let late = place(LATE, on(0, &[1]), 20.0, 45.5);
    let extended = || PlanSource::Extended { reason: None };
    script.tell(20.0, plan(20.0, extended(), vec![gpt.clone(), late.clone()]));
    let judged_from = |script: &Script| {
        let report = Report::build(&script.state, &script.history, "late", Vec::new());
        (report.totals.reference_plan.unwrap(), report.plans.len() - 1)
    };
    let (first, last) = judged_from(&script);
    assert_eq!(first, last, "no plan covers all yet");
    script.tell(21.0, plan(21.0, extended(), vec![gpt.clone(), vit, late.clone()]));
    assert_eq!(judged_from(&script), (first + 1, first + 1));
    script.tell(22.0, plan(22.0, extended(), vec![gpt, late]));
    assert_eq!(judged_from(&script), (first + 1, first + 2));
}

/// Training before the reference plan must appear at its own time, not at a negative one.
#[test]
fn a_page_counts_from_the_run_s_beginning() {
    let mut script = crate::open_world::training();
    script.add(20.0, scripted::task("late", 500, "gpt"));
    let places = vec![
        place(GPT, on(1, &[0, 1]), 9.5, 31.2),
        place(VIT, on(0, &[0]), 9.5, 28.4),
        place(LATE, on(0, &[1]), 20.0, 45.5),
    ];
    script.tell(20.0, plan(20.0, PlanSource::Extended { reason: None }, places));
    let report = Report::build(&script.state, &script.history, "late", Vec::new());
    assert!((report.reference_plan().unwrap().at_s - 20.0).abs() < 1e-9);
    let page = render_html(&report);
    let [planned, realised, ..] = &charts(&page, "gantt")[..] else { panic!("two charts") };
    let starts = |chart: &Value| -> Vec<f64> {
        let bars = chart["bars"].as_array().unwrap();
        bars.iter().map(|bar| bar["start_s"].as_f64().unwrap()).collect()
    };
    assert_eq!(starts(planned), [9.5, 9.5, 20.0]);
    let starts = starts(realised);
    assert!(starts.iter().all(|start_s| *start_s >= 0.0) && starts.contains(&9.5), "{starts:?}");
    assert_eq!(planned["to_s"], realised["to_s"]);
    let begun = page.matches("<td class=\"n\">0:10</td>").count();
    assert_eq!(begun, 3, "two tasks and the first plan, at 9.5 s");
    assert!(!page.contains("−0:"));
}

#[test]
fn a_run_without_a_plan_has_a_page_too() {
    let mut script = Script::new();
    let page =
        render_html(&Report::build(&script.state, &script.history, "just begun", Vec::new()));
    assert!(page.contains("unfinished"));
    script.trials();
    let page =
        render_html(&Report::build(&script.state, &script.history, "trials only", Vec::new()));
    assert!(page.contains("out of memory"));
}

#[test]
fn a_run_resumed_on_fewer_devices_shows_those_it_had() {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    let (node, spec) = (NodeId(0), Node::new("n0", 1, "cpu"));
    script.tell(
        40.0,
        Record::Resumed { device_memory_bytes: None, machines: None, adopted: Vec::new() },
    );
    script.tell(40.0, Record::NodeLeft { node, reason: "it has other devices now".to_owned() });
    script.tell(40.0, Record::NodeJoined { node, spec, host_memory_bytes: None });
    let report = Report::build(&script.state, &script.history, "shrunk", Vec::new());
    assert_eq!(report.devices.len(), 2);
    assert!(report.devices[0].is_there && !report.devices[1].is_there);
    assert!(render_html(&report).contains("gpt-b8-lr3e-3"));
}

#[test]
fn a_report_that_names_unknown_tasks_is_still_a_page() {
    let mut report = whole_run();
    report.tasks.truncate(1);
    assert!(render_html(&report).contains("4 done, 1 failed"));
}

/// A sweep has many models with the same reasons, which must share a line.
#[test]
fn what_cannot_run_is_a_line_for_all_of_which_it_holds() {
    let tasks: Vec<_> = (0..30)
        .map(|task| scripted::task(&format!("task-{task}"), 100, &format!("k{}", task / 3)))
        .collect();
    let mut script = Script::of(scripted::config(), &[Node::new("n0", 2, "cpu")], &tasks);
    for group in 0..10 {
        let strategy = scripted::strategy("fsdp", 2);
        let outcome = TrialOutcome::OutOfMemory { detail: format!("it lacks {group} bytes") };
        let (group, gpu_type) = (format!("k{group}"), "cpu".to_owned());
        script.tell(1.0, Record::Tried { group, gpu_type, strategy, outcome });
    }
    let report = Report::build(&script.state, &script.history, "alike", Vec::new());
    assert_eq!(report.choices.len(), 10, "three tasks of a group have the same choices");
    let page = render_html(&report);
    let folded = page.split("<summary>").skip(1).filter_map(|one| one.split("</summary>").next());
    let lines: Vec<&str> = folded.filter(|line| line.contains("out of memory:")).collect();
    let expected = "<b>task-0, task-1, task-2 and 27 more</b> <span>out of memory: fsdp × 2</span>";
    assert_eq!(lines, [expected]);
    assert!(page.contains("it lacks 7 bytes"));
}

#[test]
fn choices_say_what_each_strategy_takes_and_why_not() {
    let report = whole_run();
    let choice = report.choices.iter().find(|one| one.tasks == [1]).unwrap();
    let chosen = &choice.candidates[0];
    assert_eq!((chosen.technique.as_str(), chosen.gpus, chosen.code), ("ddp", 2, Code::Chosen));
    assert_eq!((chosen.is_estimate, chosen.peak_memory_bytes), (false, Some(412_000_000)));
    let refused =
        choice.candidates.iter().find(|one| one.technique == "fsdp" && one.gpus == 1).unwrap();
    assert_eq!((refused.step_s, refused.code), (None, Code::NotApplicable));
    let page = render_html(&report);
    assert!(page.contains("not applicable: one device leaves nothing to split"));
}
