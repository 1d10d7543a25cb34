//! A task whose functions raise before the tasks that it comes after are done has not failed yet.

use saturn_engine::{
    AttemptId, Command, DeviceKind, Event, FailureKind, Mode, NewTask, Purpose, RankReport,
    TaskEnd, TaskId,
};

use crate::run::{Run, inspection, task};

const LATER: TaskId = TaskId(1);

/// The attempt of the later task.
fn of_later(run: &Run) -> Option<AttemptId> {
    let mut live = run.engine.state().attempts.iter();
    live.find(|(_, one)| one.task == LATER).map(|(id, _)| *id)
}

/// `before` is measured and trains on one of two devices; `later` comes after it.
fn run() -> Run {
    let mut run = Run::on((&[2], 1), Mode::Orchestrate, DeviceKind::Cuda, 100, &[("before", 1)], 1);
    run.measured(run.live(Purpose::Trial)[0], 1);
    run.plan(&[("before", 0)]);
    assert_eq!(run.training(), ["before"]);
    let later = NewTask { after: vec!["before".to_owned()], ..task("later", 1) };
    run.tell(Event::Command { command: Command::Submit { tasks: vec![later] } });
    run
}

fn raise(run: &mut Run, id: AttemptId, kind: FailureKind) {
    let (error, traceback) = ("no such file".to_owned(), String::new());
    run.say(id, RankReport::Failed { kind, error, traceback });
    run.gone(id, 1);
}

/// Nothing of the later task is launched until the task before it is done.
fn waits_and_is_measured(mut run: Run, purpose: Purpose) {
    for _ in 0..20 {
        run.tell(Event::Tick);
    }
    assert_eq!((run.end_of(LATER.0), of_later(&run)), (None, None));
    run.finish("before");
    let again = of_later(&run).map(|id| run.engine.state().attempts[&id].purpose);
    assert_eq!(again, Some(purpose));
    assert_eq!(run.end_of(LATER.0), None);
}

#[test]
fn a_model_that_can_not_be_made_yet_is_inspected_again_later() {
    for kind in [FailureKind::Task, FailureKind::Certain] {
        let mut run = run();
        let id = of_later(&run).unwrap_or_else(|| panic!("it is inspected at once"));
        raise(&mut run, id, kind);
        waits_and_is_measured(run, Purpose::Inspection);
    }
}

#[test]
fn a_trial_that_raises_too_early_is_repeated_also_by_another_driver() {
    for resumes in [false, true] {
        let mut run = run();
        let id = of_later(&run).unwrap_or_else(|| panic!("it is inspected at once"));
        let inspection = Box::new(inspection(1, 1));
        run.say(id, RankReport::Inspected { inspection });
        run.gone(id, 0);
        let id = of_later(&run).unwrap_or_else(|| panic!("it is tried at once"));
        raise(&mut run, id, FailureKind::Task);
        if resumes {
            run.resume(|_| {});
            assert!(run.engine.state().is_measured_later(LATER));
        } else {
            waits_and_is_measured(run, Purpose::Trial);
        }
    }
}

#[test]
fn trials_that_raised_too_early_keep_no_room_from_the_trials_of_others() {
    let mut run = run();
    let also = NewTask { after: vec!["before".to_owned()], ..task("also", 1) };
    run.tell(Event::Command { command: Command::Submit { tasks: vec![also] } });
    inspect_all(&mut run);
    for _ in 0..2 {
        let id = run.live(Purpose::Trial)[0];
        raise(&mut run, id, FailureKind::Task);
    }
    assert!(run.live(Purpose::Trial).is_empty());
    // More trials are open than there is room for, and those that are too early come first.
    run.tell(Event::Command { command: Command::Submit { tasks: vec![task("other", 1)] } });
    inspect_all(&mut run);
    let tried =
        run.live(Purpose::Trial).into_iter().map(|id| run.engine.state().attempts[&id].task);
    assert_eq!(tried.collect::<Vec<_>>(), [TaskId(3)]);
}

fn inspect_all(run: &mut Run) {
    for id in run.live(Purpose::Inspection) {
        run.say(id, RankReport::Inspected { inspection: Box::new(inspection(1, 1)) });
        run.gone(id, 0);
    }
}

#[test]
fn once_nothing_is_before_it_the_task_has_failed() {
    let mut run = run();
    let id = of_later(&run).unwrap_or_else(|| panic!("it is inspected at once"));
    raise(&mut run, id, FailureKind::Task);
    run.finish("before");
    let id = of_later(&run).unwrap_or_else(|| panic!("it is inspected again"));
    raise(&mut run, id, FailureKind::Task);
    assert!(matches!(
        run.end_of(LATER.0),
        Some(TaskEnd::Failed { error, .. }) if error.contains("no such file")
    ));
}
