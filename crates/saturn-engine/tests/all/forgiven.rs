//! A failure of Saturn's own processes is no failure of the task under which they fail, nor of its
//! device. A search does not wait for devices that it has lost.

use saturn_engine::{
    AttemptEnd, AttemptId, Command, DeviceKind, Event, FailureKind, Mode, Purpose, RankReport,
    Record, RunEnd, TaskEnd, TaskId,
};

use crate::run::{Run, inspection, task};

fn launch_fails(run: &mut Run, purpose: Purpose) -> Option<AttemptId> {
    let attempt = run.live(purpose).first().copied()?;
    let error = "the parent died".to_owned();
    run.tell(Event::LaunchFailed { attempt, kind: FailureKind::Saturn, error });
    // Beyond any wait before the next.
    run.now_s += 1000.0;
    run.tell(Event::Tick);
    Some(attempt)
}

#[test]
fn a_task_is_forgiven_the_failures_of_saturns_own_processes() {
    let tasks = [("a", 1)];
    let mut run = Run::on((&[2], 1), Mode::Orchestrate, DeviceKind::Cuda, 10, &tasks, 48);
    let trial = run.live(Purpose::Trial)[0];
    run.measured(trial, 1);
    run.plan(&[("a", 0)]);
    for _ in 0..10 {
        assert!(launch_fails(&mut run, Purpose::Train).is_some(), "it is launched again");
        let state = run.engine.state();
        assert_eq!((state.task(TaskId(0)).failures, state.num_devices()), (0, 2));
    }
    launch_fails(&mut run, Purpose::Train);
    let Some(TaskEnd::Failed { error, .. }) = run.end_of(0) else { panic!("it may be the cause") };
    assert_eq!(error, "the parent died (11 times in a row, under this task)");
    let kinds: Vec<FailureKind> = run.records.iter().filter_map(failure_kind).collect();
    assert_eq!(kinds, [vec![FailureKind::Saturn; 10], vec![FailureKind::SaturnRepeated]].concat());
}

fn failure_kind(record: &Record) -> Option<FailureKind> {
    match record {
        Record::Ended { end: AttemptEnd::Failed { failure }, .. } => Some(failure.kind),
        _ => None,
    }
}

#[test]
fn a_trial_is_forgiven_them_too() {
    let tasks = [("a", 1)];
    let mut run = Run::on((&[2], 1), Mode::Search, DeviceKind::Cuda, 10, &tasks, 48);
    for _ in 0..10 {
        assert!(launch_fails(&mut run, Purpose::Trial).is_some(), "it is tried again");
    }
    launch_fails(&mut run, Purpose::Trial);
    assert_eq!(run.live(Purpose::Trial), []);
}

#[test]
fn a_search_ends_where_no_device_is_left_for_its_trials() {
    let mut run = Run::on((&[2], 2), Mode::Search, DeviceKind::Cuda, 10, &[("a", 1)], 48);
    run.tell(Event::Command { command: Command::Close });
    let trial = run.live(Purpose::Trial)[0];
    let (kind, error, traceback) = (FailureKind::Machine, "a fault".to_owned(), String::new());
    run.say(trial, RankReport::Failed { kind, error, traceback });
    // Its processes outlive their kill.
    run.now_s += 60.0;
    run.tell(Event::Tick);
    assert_eq!(run.engine.state().num_devices(), 0);
    assert_eq!(run.engine.state().ended, Some(RunEnd::Complete));
    let says_so = |record: &Record| matches!(record, Record::Noted { text, .. } if text == "not tried, since too few devices can be used: ddp×2");
    assert!(run.records.iter().any(says_so));
}

#[test]
fn a_device_that_failures_have_set_aside_is_taken_back_for_a_task_that_needs_it() {
    let mut run = Run::on((&[2], 1), Mode::Orchestrate, DeviceKind::Cuda, 100, &[("a", 1)], 1);
    let trial = run.live(Purpose::Trial)[0];
    run.measured(trial, 1);
    run.plan(&[("a", 1)]);
    let fail = |run: &mut Run| {
        let attempt = run.live(Purpose::Train)[0];
        let (kind, error, traceback) = (FailureKind::Machine, "a fault".to_owned(), String::new());
        run.say(attempt, RankReport::Failed { kind, error, traceback });
        run.gone(attempt, 1);
        run.now_s += 100.0;
        run.tell(Event::Tick);
    };
    fail(&mut run);
    fail(&mut run);
    assert_eq!(run.engine.state().num_devices(), 1, "two failures there");
    run.tell(Event::Command { command: Command::Submit { tasks: vec![task("b", 2)] } });
    let look = run.live(Purpose::Inspection)[0];
    let inspection = Box::new(inspection(1_000_000_000, 1_000_000_000));
    run.say(look, RankReport::Inspected { inspection });
    run.gone(look, 0);
    assert_eq!(run.engine.state().num_devices(), 2);
    let says_so = |record: &Record| matches!(record, Record::TakenBack { reason, .. } if reason == "`b` can run on no others");
    assert!(run.records.iter().any(says_so));
    // Whose failures had it set aside is not believed again: it would come and go for ever.
    run.cancel("b");
    while run.end_of(0).is_none() {
        if run.live(Purpose::Train).is_empty() {
            run.plan(&[("a", 1)]);
        }
        fail(&mut run);
        assert_eq!(run.engine.state().num_devices(), 2);
    }
}
