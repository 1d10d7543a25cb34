//! Tests of the status of runs, as text at 80 columns and as data.

use std::collections::BTreeMap;

use saturn_core::{Gang, Node};
use saturn_engine::{
    AttemptEnd, FailureKind, Judgement, NodeId, PlanSource, Purpose, RankFailure, Record, Ruling,
    Stage, TaskEnd, TaskId, TaskSpec, Wishes,
};
use saturn_view::RunStatus;
use saturn_view::text::width;
use saturn_view::{Code, Paint, Report, Status, explain, status, status_text, without_driver};
use serde_json::Value;

use crate::explained::{at as explained_at, of_people, with_quota};
use crate::open_world::{self, on, place, plan};
use crate::scripted::{self, Script, strategy};

fn at(script: &Script, now_s: f64) -> Status {
    status(&script.state, &script.history, now_s)
}

fn text(script: &Script, now_s: f64, columns: usize) -> String {
    let text = status_text(&at(script, now_s), columns, Paint::PLAIN);
    for line in text.lines() {
        assert!(width(line) <= columns, "{line}");
    }
    text
}

/// A hundred tasks on 8 devices: twenty are done, eight train, one failed, one is paused, one comes
/// after another, ten are being measured, and the others wait.
fn hundred() -> Script {
    let nodes = [Node::new("n0", 8, "A100")];
    let name = |index: usize| match index {
        40 => "a-name-that-somebody-made-of-all-of-its-hyperparameters-lr3e-4-b64-wd0.1".to_owned(),
        _ => format!("sweep-{index:03}"),
    };
    let tasks: Vec<_> = (0..90).map(|index| scripted::task(&name(index), 1000, "gpt")).collect();
    let mut config = scripted::config();
    config.techniques.truncate(1);
    let mut script = Script::of(config, &nodes, &tasks);
    script.some_trials(usize::MAX);
    let places = (0..90)
        .map(|index| {
            let (device, turn) = (u32::try_from(index % 8).unwrap(), (index / 8) as f64);
            place(TaskId(index), on(0, &[device]), 10.0 + turn * 51.0, 10.0 + (turn + 1.0) * 51.0)
        })
        .collect();
    script.tell(10.0, plan(10.0, PlanSource::Solver, places));
    for index in 0..28 {
        let device = u32::try_from(index % 8).unwrap();
        let from_s = 10.0 + (index / 8) as f64 * 54.0 + f64::from(device) * 0.5;
        let attempt = script.launch(from_s, index, Purpose::Train, strategy("ddp", 1), &[device]);
        script.tell(from_s + 0.5, Record::Started { attempt, step: 0, setup_s: 0.5 });
        if index < 20 {
            let slow = 49.0 + (index % 5) as f64 * 2.0;
            script.end(attempt, 1000, 2.0 + index as f64 / 100.0, from_s + slow);
        } else {
            script.report(attempt, 300 + index as u64, 2.5, 0.05, from_s + 17.0);
        }
    }
    let end = TaskEnd::Failed { error: "ValueError: nan".to_owned(), traceback: String::new() };
    script.tell(150.0, Record::TaskEnded { task: TaskId(50), end });
    script.tell(150.0, Record::Paused { task: TaskId(51) });
    for index in 90..100 {
        script.add(180.0, scripted::task(&name(index), 1000, "other"));
    }
    script
}

#[test]
fn three_tasks() {
    let mut script = open_world::training();
    script.add(19.0, scripted::task("new one", 100, "new"));
    insta::assert_snapshot!(text(&script, 20.0, 80));
}

#[test]
fn devices_and_steps_where_there_is_room() {
    insta::assert_snapshot!(text(&open_world::training(), 20.0, 130));
}

#[test]
fn a_task_that_continues_another_stands_where_that_ended_before_it_is_launched() {
    let mut script = open_world::training();
    let spec = TaskSpec { start_step: 250, ..scripted::task("longer", 1000, "gpt") };
    let task = script.add(19.0, spec);
    assert_eq!(at(&script, 20.0).tasks[task.0].step, 250);
    let text = text(&script, 20.0, 130);
    let line = text.lines().find(|line| line.contains("longer")).unwrap();
    assert!(line.contains("waiting 25%") && line.contains("250/1000"), "{text}");
}

#[test]
fn wishes_are_shown_where_there_are_any() {
    let mut script = open_world::training();
    for columns in [80, 130] {
        let text = text(&script, 20.0, columns);
        assert!(!text.contains("priority") && !text.contains("deadline"), "{text}");
        assert!(text.contains("band"), "{text}");
    }
    let wishes = Wishes { priority: -2, ..Wishes::default() };
    script.tell(20.0, Record::Wished { task: open_world::GPT, wishes });
    let wishes = Wishes { deadline_s: Some(75.0), ..Wishes::default() };
    script.tell(20.0, Record::Wished { task: open_world::VIT, wishes });
    insta::assert_snapshot!(text(&script, 20.0, 80));
    insta::assert_snapshot!(text(&script, 20.0, 130));
}

#[test]
fn a_task_says_whether_it_is_expected_to_keep_its_deadline() {
    let mut script = open_world::training();
    let task = open_world::VIT;
    let end_s = at(&script, 20.0).tasks[task.0].expected_end_s.unwrap();
    for (deadline_s, is_late) in
        [(None, None), (Some(end_s + 1.0), Some(false)), (Some(end_s - 1.0), Some(true))]
    {
        let wishes = Wishes { deadline_s, ..Wishes::default() };
        script.tell(20.0, Record::Wished { task, wishes });
        assert_eq!(at(&script, 20.0).tasks[task.0].is_late, is_late);
        assert_eq!(text(&script, 20.0, 130).contains(" late"), is_late == Some(true));
        let explanation = explained_at(&script, task, 20.0);
        assert_eq!((explanation.deadline_s, explanation.is_late), (deadline_s, is_late));
        let words = explanation.text(100, Paint::PLAIN);
        assert_eq!(words.contains("it is expected to end in time"), is_late == Some(false));
        assert_eq!(words.contains("it is expected to end 1.0 s late"), is_late == Some(true));
    }
}

#[test]
fn a_dozen_tasks() {
    let tasks: Vec<_> =
        (0..12).map(|index| scripted::task(&format!("模型-{index}"), 500, "gpt")).collect();
    let mut script = Script::of(scripted::config(), &[Node::new("n0", 2, "cpu")], &tasks);
    script.some_trials(3);
    script.launch(5.0, 0, Purpose::Train, strategy("ddp", 1), &[1]);
    let reason = "`a` and `b` failed here in a row: the process died of signal 7".to_owned();
    let absolved = Vec::new();
    script.tell(6.0, Record::SetAside { node: NodeId(0), devices: vec![0], reason, absolved });
    insta::assert_snapshot!(text(&script, 6.5, 80));
}

/// A hundred nodes of 8 devices: one gang takes sixteen nodes, one takes a node and a half, and
/// others take some devices of one node.
fn hundred_nodes() -> Script {
    let nodes: Vec<Node> = (0..100).map(|node| Node::new(format!("n{node}"), 8, "A100")).collect();
    let name = |index: usize| format!("task-{index}");
    let tasks: Vec<_> = (0..90).map(|index| scripted::task(&name(index), 1000, "gpt")).collect();
    let mut config = scripted::config();
    config.techniques.truncate(1);
    config.policy.max_nodes = 16;
    let mut script = Script::of(config, &nodes, &tasks);
    let part = |node: usize, count: u32| on(node, &(0..count).collect::<Vec<u32>>()).remove(0);
    let whole: Gang = (0..16).map(|node| part(node, 8)).collect();
    let half: Gang = vec![part(16, 8), part(17, 4)];
    let mut train = |task: usize, gpus: u32, gang: Gang| {
        let attempt = script.launch_on(10.0, task, Purpose::Train, strategy("ddp", gpus), gang);
        script.tell(11.0, Record::Started { attempt, step: 0, setup_s: 1.0 });
        script.report(attempt, 300, 2.5, 0.05, 20.0);
    };
    train(0, 128, whole);
    train(1, 12, half);
    for task in 2..80 {
        let gpus = if task % 10 == 0 { 5 } else { 8 };
        train(task, gpus, vec![part(task + 16, gpus)]);
    }
    script
}

#[test]
fn a_hundred_nodes() {
    let text = text(&hundred_nodes(), 21.0, 130);
    let shown: Vec<&str> = text.lines().take(12).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_hundred_tasks() {
    insta::assert_snapshot!(text(&hundred(), 185.0, 80));
}

#[test]
fn the_rest_of_a_script_is_marked_in_the_data_and_no_other_task() {
    let mut script = Script::new();
    script.add(0.0, TaskSpec { is_rest: true, ..scripted::task("rest", 1, "rest") });
    let data = serde_json::to_value(status(&script.state, &script.history, 0.0)).unwrap();
    let tasks = data["tasks"].as_array().unwrap();
    let marked: Vec<_> = tasks.iter().filter(|task| task.get("is_rest").is_some()).collect();
    assert_eq!(marked.len(), 1);
    assert_eq!((&marked[0]["name"], &marked[0]["is_rest"]), (&"rest".into(), &true.into()));
}

#[test]
fn the_data_says_where_a_task_began_and_whether_it_is_held_although_it_is_paused() {
    let mut script = Script::new();
    script.add(0.0, TaskSpec { start_step: 100, ..scripted::task("longer", 200, "longer") });
    let task = TaskId(script.state.tasks.len() - 1);
    let judgement = Judgement {
        step: 120,
        values: BTreeMap::new(),
        ruling: Some(Ruling::Hold),
        reason: "it is not among the best".to_owned(),
    };
    script.tell(1.0, Record::Judged { task, judgement });
    script.tell(2.0, Record::Paused { task });
    let data = serde_json::to_value(status(&script.state, &script.history, 3.0)).unwrap();
    let tasks = data["tasks"].as_array().unwrap();
    let longer = tasks.last().unwrap();
    assert_eq!((&longer["stage"], &longer["is_held"]), (&"paused".into(), &true.into()));
    assert_eq!((&longer["step"], &longer["start_step"]), (&100.into(), &100.into()));
    let others = &tasks[..tasks.len() - 1];
    let is_marked = |one: &Value| one.get("is_held").or(one.get("start_step")).is_some();
    assert!(!others.is_empty() && !others.iter().any(is_marked));
}

#[test]
fn ended_runs_have_a_status_too() {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    let mut interrupted = script.state.clone();
    script.rest();
    insta::assert_snapshot!(text(&script, 51.4, 80));
    let end = saturn_engine::RunEnd::Interrupted;
    interrupted.apply(&Record::RunEnded { end }, 30.0);
    let status = status(&interrupted, &script.history, 30.0);
    assert_eq!(status.expected_end_s, None);
    assert!(status_text(&status, 80, Paint::PLAIN).starts_with("interrupted at 0:30"));
}

#[test]
fn a_run_whose_driver_died_expects_nothing_and_holds_nothing() {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    assert_ne!(at(&script, 30.0).counts.running, 0);
    let (state, history) = without_driver(script.state, script.history);
    let status = status(&state, &history, state.now_s);
    assert_eq!((status.counts.running, status.pool.busy, status.expected_end_s), (0, 0, None));
    assert!(status_text(&status, 80, Paint::PLAIN).starts_with("died at"));
    let why = |task| explain(&state, &history, task, state.now_s);
    assert_eq!(why(None).code(), Code::RunDied);
    assert!(why(None).text(80, Paint::PLAIN).starts_with("The run died:"));
    assert!(why(Some(TaskId(0))).text(80, Paint::PLAIN).contains("the run died; the task goes"));
    assert_eq!(Report::build(&state, &history, "run", Vec::new()).status, RunStatus::Died);
}

#[test]
fn a_task_whose_trial_met_a_full_disk_is_named() {
    let mut script = Script::new();
    script.inspections();
    let trial = script.launch(1.0, 2, Purpose::Trial, strategy("ddp", 1), &[0]);
    let (kind, error) = (FailureKind::NoSpace, "the checkpoint needs 5 MB".to_owned());
    let failure = RankFailure { rank: 0, kind, error, traceback: String::new() };
    let end = AttemptEnd::Failed { failure };
    script.tell(2.0, Record::Ended { attempt: trial, end, step: 0, step_s: None });
    let text = text(&script, 2.0, 100);
    let line = "waiting for space on the disk: vit-b32: the checkpoint needs 5 MB";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_search_and_an_empty_run() {
    let mut script = Script::new();
    script.some_trials(4);
    script.state.config.mode = saturn_engine::Mode::Search;
    insta::assert_snapshot!(text(&script, 6.0, 80));
    let script = Script::of(scripted::config(), &[], &[]);
    insta::assert_snapshot!(text(&script, 0.0, 80));
}

#[test]
fn a_status_as_data() {
    let status = at(&open_world::training(), 20.0);
    insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap());
}

#[test]
fn a_run_s_own_errors_narrow_its_bands() {
    let before = at(&open_world::training(), 20.0);
    assert_eq!((before.band.attempts, before.band.earlier), (0, 0));
    let after = at(&hundred(), 185.0);
    assert!(after.band.attempts >= 20, "{:?}", after.band);
    // The tasks were forecast to take 50.9 s and took 49 to 57 s.
    assert!(after.band.low > before.band.low && after.band.high < before.band.high);
    for task in after.tasks.iter().filter(|task| task.stage == Stage::Running) {
        let (early_s, late_s) = task.expected_end_band_s.unwrap();
        let end_s = task.expected_end_s.unwrap();
        assert!(185.0 <= early_s && early_s <= end_s && end_s <= late_s, "{task:?}");
    }
}

#[test]
fn thousands_of_tasks_are_cut() {
    let tasks: Vec<_> =
        (0..3000).map(|index| scripted::task(&format!("t{index}"), 10, "t")).collect();
    let script = Script::of(scripted::config(), &[Node::new("n0", 2, "cpu")], &tasks);
    let text = text(&script, 1.0, 80);
    assert!(text.lines().count() < 220);
    assert!(text.contains("and 2800 more tasks"), "{text}");
}

#[test]
fn worker_and_user_text_is_escaped() {
    let name = "a\u{1b}[31m\u{202e}b";
    let mut script = Script::of(
        scripted::config(),
        &[Node::new("n0", 2, "cpu")],
        &[scripted::task(name, 1, "k")],
    );
    let end = TaskEnd::Failed { error: "\u{1b}[2J".to_owned(), traceback: String::new() };
    script.tell(1.0, Record::TaskEnded { task: TaskId(0), end });
    let text = status_text(&at(&script, 1.0), 80, Paint::COLOUR);
    assert!(!text.contains("[31m\u{202e}") && !text.contains('\u{202e}'));
}

#[test]
fn how_many_devices_a_person_may_hold_is_told_beside_those_that_train() {
    let mut script = open_world::training();
    script.tell(20.0, Record::Shared { sharing: with_quota(2) });
    let told = at(&script, 20.0);
    assert_eq!(told.people[0].quota, Some(2));
    let text = text(&script, 20.0, 80);
    let of_lena = text.lines().find(|line| line.trim_start().starts_with("lena")).unwrap();
    assert!(of_lena.contains(&format!("{} of 2", told.people[0].devices)), "{of_lena}");
}

#[test]
fn people_who_share_a_run_are_listed() {
    let mut script = of_people();
    let text = text(&script, 3.0, 80);
    insta::assert_snapshot!(text);
    let told = at(&script, 3.0);
    let names: Vec<&str> = told.people.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["lena", "tomas"]);
    assert!(told.people.iter().all(|one| one.share == Some(0.5) && one.tasks == 1));
    assert_eq!(told.tasks[0].guaranteed_s, told.people[0].guaranteed_s);
    let end = TaskEnd::Cancelled { reason: "enough".to_owned() };
    script.tell(4.0, Record::TaskEnded { task: TaskId(1), end });
    let told = at(&script, 5.0);
    assert_eq!(told.people[0].share, Some(1.0), "nobody else has tasks");
    assert_eq!(told.people[1].share, None);
}
