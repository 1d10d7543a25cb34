//! What holds a task up: another task that it comes after, and the wait after its own failures.

use saturn_engine::{
    Command, DeviceKind, Event, FailureKind, Mode, NewTask, Purpose, RankReport, TaskId,
};

use crate::run::{Run, task};

/// A run on two devices, in which all tasks are measured, each after `asked` was said.
fn measured(tasks: &[(&str, u64)], asked: Option<Command>) -> Run {
    let mut run = Run::on((&[2], 1), Mode::Orchestrate, DeviceKind::Cuda, 100, tasks, 1);
    if let Some(command) = asked {
        run.tell(Event::Command { command });
    }
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run
}

#[test]
fn a_task_starts_once_the_task_that_it_comes_after_is_done() {
    let wish = Command::Wish {
        task: "b".to_owned(),
        priority: None,
        deadline_s: None,
        no_deadline: false,
        release_s: None,
        after: Some(vec!["a".to_owned()]),
    };
    let mut run = measured(&[("a", 1), ("b", 1)], Some(wish));
    run.plan(&[("a", 0)]);
    assert_eq!(run.training(), ["a"], "b's device is free, and b waits");
    run.finish("a");
    assert_eq!(run.training(), ["b"]);
}

#[test]
fn a_task_may_come_after_tasks_that_are_added_with_it() {
    let mut run = measured(&[("a", 1), ("b", 1)], None);
    let first = task("first", 1);
    let second = task("second", 1);
    let third = NewTask { after: vec!["b".to_owned(), "second".to_owned()], ..task("third", 1) };
    let tasks = vec![first, second, third];
    run.tell(Event::Command { command: Command::Submit { tasks } });
    assert_eq!(run.engine.state().task(TaskId(4)).spec.wishes.after, [TaskId(1), TaskId(3)]);
}

#[test]
fn freed_space_ends_no_wait_after_a_failure_of_another_kind() {
    let mut run = measured(&[("a", 1)], None);
    run.plan(&[("a", 0)]);
    for _ in 0..2 {
        let attempt = run.live(Purpose::Train)[0];
        let (error, traceback) = ("it broke".to_owned(), String::new());
        run.say(attempt, RankReport::Failed { kind: FailureKind::Error, error, traceback });
        run.gone(attempt, 1);
        if run.engine.state().tasks[0].failures == 1 {
            // The first wait is a second long.
            run.tell(Event::Tick);
        }
    }
    assert!(run.training().is_empty());
    run.tell(Event::SpaceFreed);
    assert!(run.training().is_empty(), "the second wait is two seconds long");
    run.tell(Event::Tick);
    assert_eq!(run.training(), ["a"]);
}

#[test]
fn devices_of_a_task_that_ends_unplanned_are_planned_again_at_once() {
    let tasks = [("long-a", 1), ("long-b", 1), ("long-c", 1)];
    let mut run = measured(&tasks, None);
    // The first plan is asked for before all are measured.
    run.plan(&[("long-a", 0)]);
    while !run.is_asked() {
        run.tell(Event::Tick);
    }
    run.plan(&[("long-a", 0), ("long-b", 1), ("long-c", 1)]);
    assert!(!run.is_asked() && run.training() == ["long-a", "long-b"]);
    let id = run.live(Purpose::Train)[0];
    run.cancel("long-a");
    run.gone(id, -9);
    assert!(run.is_asked(), "`long-c` waits for the other device");
}
