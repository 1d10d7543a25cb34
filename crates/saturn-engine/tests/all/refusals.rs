//! The codes with which commands are refused.

use std::collections::BTreeSet;

use saturn_engine::{Command, DeviceKind, Event, Mode, NewTask, RefusalCode};

use crate::run::{Run, task};

/// A run of tasks `a` and `b` on one node of two devices.
fn run() -> Run {
    Run::on((&[2], 1), Mode::Orchestrate, DeviceKind::Cuda, 10, &[("a", 1), ("b", 1)], 48)
}

/// The code with which the run refuses a command; `None` if it accepts the command.
fn code_of(run: &mut Run, command: Command) -> Option<RefusalCode> {
    let refusal = run.engine.handle(Event::Command { command }, run.now_s).refusal;
    refusal.map(|refusal| refusal.code)
}

fn submit(tasks: Vec<NewTask>) -> Command {
    Command::Submit { tasks }
}

fn after(task: &str, before: &str) -> Command {
    Command::Wish {
        task: task.to_owned(),
        priority: None,
        deadline_s: None,
        no_deadline: false,
        release_s: None,
        after: Some(vec![before.to_owned()]),
    }
}

#[test]
fn each_refusal_has_its_code() {
    let mut run = run();
    let a = || "a".to_owned();
    let unpause = Command::Unpause { task: a() };
    let mut late = task("late", 1);
    late.spec.wishes.deadline_s = Some(-1.0);
    let mut free = task("free", 1);
    free.spec.wishes.late_price = Some(0.0);
    let mut bound = task("bound", 1);
    bound.spec.wishes.most_late_s = Some(5.0);
    let mut wide = task("wide", 1);
    wide.spec.gpu_range = Some(vec![64]);
    let device =
        |node: &str, device| Command::TakeBack { node: node.to_owned(), devices: vec![device] };
    let node = run.engine.state().cluster.nodes[0].name.clone();
    for (command, code) in [
        (submit(vec![task("a", 1)]), Some(RefusalCode::NameTaken)),
        (submit(vec![task("c", 1), task("c", 1)]), Some(RefusalCode::NameTaken)),
        (submit(vec![late]), Some(RefusalCode::BadValue)),
        (submit(vec![free]), Some(RefusalCode::BadValue)),
        (submit(vec![bound]), Some(RefusalCode::BadValue)),
        (Command::Cancel { task: "c".to_owned(), by: None }, Some(RefusalCode::UnknownTask)),
        (unpause, Some(RefusalCode::NotPaused)),
        (after("a", "a"), Some(RefusalCode::BadOrder)),
        (after("a", "c"), Some(RefusalCode::UnknownTask)),
        (device("nowhere", 0), Some(RefusalCode::NoSuchDevice)),
        (device(&node, 7), Some(RefusalCode::NoSuchDevice)),
        (Command::Cancel { task: a(), by: None }, None),
        (Command::Cancel { task: a(), by: None }, Some(RefusalCode::TaskEnded)),
        (after("b", "a"), Some(RefusalCode::BadOrder)),
        (Command::Close, None),
        (submit(vec![wide]), Some(RefusalCode::OutOfRange)),
    ] {
        let words = format!("{command:?}");
        assert_eq!(code_of(&mut run, command), code, "{words}");
    }
}

#[test]
fn every_code_has_its_row_in_the_reference() {
    let reference = include_str!("../../../../docs/reference.md");
    for (code, meaning) in RefusalCode::ALL {
        let row = format!("| `{code}` | {meaning} |");
        assert!(reference.contains(&row), "missing in docs/reference.md: {row}");
    }
    let codes: BTreeSet<&str> = RefusalCode::ALL.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes.len(), RefusalCode::ALL.len());
}

#[test]
fn an_empty_run_says_that_it_has_no_tasks() {
    let mut run = Run::on((&[2], 1), Mode::Orchestrate, DeviceKind::Cuda, 10, &[], 48);
    let command = Command::Cancel { task: "x".to_owned(), by: None };
    let refusal = run.engine.handle(Event::Command { command }, run.now_s).refusal;
    let expected = "there is no task `x`; the run has no tasks yet";
    assert_eq!(refusal, Some(RefusalCode::UnknownTask.because(expected)));
}

#[test]
fn a_run_without_nodes_says_so() {
    let mut run = Run::on((&[], 1), Mode::Orchestrate, DeviceKind::Cuda, 10, &[("a", 1)], 48);
    let command = Command::TakeBack { node: "n0".to_owned(), devices: Vec::new() };
    let refusal = run.engine.handle(Event::Command { command }, run.now_s).refusal;
    let expected = "there is no node `n0`; the run has no nodes now";
    assert_eq!(refusal, Some(RefusalCode::NoSuchDevice.because(expected)));
}
