//! Attempts that went on training without a driver go on under the next one.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{Cluster, Node};
use saturn_engine::{
    Action, AttemptEnd, AttemptId, Command, DeviceKind, Event, Mode, Purpose, RankReport, Record,
    TaskEnd,
};

use crate::run::Run;

const PLACES: [(&str, u32); 3] = [("one", 0), ("two", 1), ("three", 0)];

/// Two of three tasks train, on two devices.
fn run() -> (Run, [AttemptId; 2]) {
    let tasks = [("one", 1), ("two", 1), ("three", 1)];
    let mut run = Run::on((&[2], 1), Mode::Orchestrate, DeviceKind::Cuda, 100, &tasks, 1);
    loop {
        if let Some(id) = run.live(Purpose::Trial).first().copied() {
            run.measured(id, 1);
        } else if run.is_asked() {
            run.plan_asked(&PLACES);
        } else {
            break;
        }
    }
    let training = run.live(Purpose::Train);
    for id in &training {
        run.say(*id, RankReport::Started { step: 0, setup_s: 1.0 });
    }
    let training = training.try_into().expect("two train");
    (run, training)
}

/// The driver dies, and the next finds these attempts alive.
fn resume(run: &mut Run, living: &[AttemptId]) {
    let cluster = run.engine.state().cluster.clone();
    run.restore();
    run.resume_with(cluster, living.to_vec(), |_| {});
}

fn is_lost(run: &Run, id: AttemptId) -> bool {
    let is = |one: &Record| matches!(one, Record::Ended { attempt, end: AttemptEnd::Lost, .. } if *attempt == id);
    run.records.iter().any(is)
}

#[test]
fn what_trains_goes_on_to_its_end_in_the_same_attempt() {
    let (mut run, [first, second]) = run();
    let (num_before, cluster) = (run.records.len(), run.engine.state().cluster.clone());
    run.restore();
    assert_eq!(run.engine.adoptable(&cluster), [first, second]);
    run.resume_with(cluster, vec![first], |_| {});
    let resumed = run.records[num_before..].iter().find_map(|one| match one {
        Record::Resumed { adopted, .. } => Some(adopted.clone()),
        _ => None,
    });
    assert_eq!(resumed, Some(vec![first]));
    assert!(is_lost(&run, second) && !is_lost(&run, first));
    // Its device is taken: no other task starts there.
    let launched = |run: &Run| {
        let new = run.records[num_before..].iter();
        let launched = new.filter(|one| matches!(one, Record::Launched { .. }));
        launched.count()
    };
    if run.is_asked() {
        run.plan_asked(&PLACES);
    }
    assert_eq!(launched(&run), 1, "the lost task alone");
    run.say(first, RankReport::Checkpoint { step: 60, save_s: 1.0, blocked_s: 1.0, loss: None });
    run.say(first, RankReport::Finished { step: 100, loss: Some(0.5) });
    run.gone(first, 0);
    assert!(matches!(run.end_of(0), Some(TaskEnd::Done { .. })));
    assert_eq!(run.engine.state().task(saturn_engine::TaskId(0)).num_attempts, 1);
}

#[test]
fn what_the_last_driver_wanted_is_told_again() {
    let (mut run, [first, second]) = run();
    run.tell(Event::Command { command: Command::Pause { task: "one".to_owned() } });
    run.actions.clear();
    resume(&mut run, &[first, second]);
    let asked = |id: AttemptId| {
        let all = run.actions.iter();
        let stops = all.clone().any(|one| *one == Action::Stop { attempt: id });
        let until =
            all.clone().any(|one| matches!(one, Action::Until { attempt, .. } if *attempt == id));
        (stops, until)
    };
    assert_eq!(asked(first), (true, true));
    assert_eq!(asked(second), (false, true));
    run.say(first, RankReport::Stopped { step: 7 });
    run.gone(first, 0);
    assert_eq!(run.training(), ["two", "three"]);
}

#[test]
fn what_had_begun_to_stop_before_a_driver_came_goes_on_from_its_checkpoint() {
    let (mut run, [first, second]) = run();
    resume(&mut run, &[first, second]);
    // Its agent had waited long enough for a driver.
    let saved = RankReport::Checkpoint { step: 7, save_s: 1.0, blocked_s: 1.0, loss: None };
    run.say(first, saved);
    run.say(first, RankReport::Stopped { step: 7 });
    run.gone(first, 0);
    assert!(run.end_of(0).is_none(), "it is not trained");
    if run.is_asked() {
        run.plan_asked(&PLACES);
    }
    let again = run.live(Purpose::Train).into_iter().filter(|id| *id != second);
    let again: Vec<_> = again.map(|id| run.engine.state().attempts[&id].task.0).collect();
    assert_eq!(again, [0]);
    assert_eq!(run.engine.state().task(saturn_engine::TaskId(0)).checkpoint_step, 7);
}

#[test]
fn only_what_is_to_train_here_is_adopted() {
    let (mut run, [first, second]) = run();
    let cluster = run.engine.state().cluster.clone();
    let other = Cluster { nodes: vec![Node::new("n0", 1, "a")] };
    assert_eq!(run.engine.adoptable(&other), [], "it has other devices");
    run.cancel("one");
    assert_eq!(run.engine.adoptable(&cluster), [second], "the other is not wanted any more");
    // The engine trusts nobody: what it would not adopt is lost.
    resume(&mut run, &[first, second]);
    assert!(is_lost(&run, first) && !is_lost(&run, second));
    run.tell(Event::Interrupt);
    run.restore();
    assert_eq!(run.engine.adoptable(&cluster), [], "all were to stop");

    let tasks = [("one", 1)];
    let run = Run::on((&[1], 1), Mode::Orchestrate, DeviceKind::Cuda, 100, &tasks, 1);
    assert_eq!(run.live(Purpose::Trial).len(), 1);
    assert_eq!(run.engine.adoptable(&run.engine.state().cluster), [], "a trial is repeated");
}

#[test]
fn the_time_without_a_driver_counts_neither_as_silence_nor_as_steps() {
    let (mut run, [first, second]) = run();
    run.say(first, RankReport::Progress { step: 5, loss: None, step_s: Some(1.0) });
    run.now_s += 500.0;
    run.say(first, RankReport::Progress { step: 6, loss: None, step_s: Some(1.0) });
    run.now_s += 500.0;
    resume(&mut run, &[first, second]);
    let is_dying =
        |run: &Run| [first, second].map(|id| run.engine.state().attempts[&id].is_dying());
    assert_eq!(is_dying(&run), [false, false], "none could be heard");
    run.now_s += 10.0;
    run.say(first, RankReport::Progress { step: 50, loss: None, step_s: Some(1.0) });
    run.now_s += 20.0;
    run.say(first, RankReport::Progress { step: 70, loss: None, step_s: Some(1.0) });
    let clocked = run.records.iter().rev().find_map(|one| match one {
        Record::Clocked { trained, .. } => Some(trained.step_s),
        _ => None,
    });
    assert!(clocked.is_none_or(|step_s| (0.5..2.0).contains(&step_s)), "{clocked:?}");
    // From here on silence counts.
    run.now_s += 595.0;
    run.tell(Event::Tick);
    assert_eq!(is_dying(&run), [false, true]);
}
