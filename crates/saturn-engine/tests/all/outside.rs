//! Devices that programs other than Saturn use are left alone until the others have gone.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use saturn_core::{Knobs, TrialOutcome};
use saturn_engine::{
    AttemptEnd, AttemptId, Command, DeviceId, DeviceKind, Event, FailureKind, Machines, Mode,
    NodeId, Purpose, RankReport, Record, RunEnd, TaskEnd,
};

use crate::run::Run;

fn device(device: u32) -> DeviceId {
    DeviceId { node: NodeId(0), device }
}

/// The others use these devices now, and no others.
fn used(run: &mut Run, devices: &[u32]) {
    let user = "tomas (python, 31 GB)".to_owned();
    let devices = devices.iter().map(|number| (device(*number), user.clone()));
    run.tell(Event::UsedOutside { devices: devices.collect::<BTreeMap<_, _>>() });
}

fn is_usable(run: &Run, number: u32) -> bool {
    run.engine.state().is_usable(device(number))
}

/// Two tasks that were measured, on a node of two devices.
fn measured(gpus: u32) -> Run {
    measured_all(gpus, &["a", "b"])
}

/// The same with these tasks.
fn measured_all(gpus: u32, names: &[&str]) -> Run {
    let tasks: Vec<(&str, u64)> = names.iter().map(|name| (*name, 1)).collect();
    let mut run = Run::on((&[2], gpus), Mode::Orchestrate, DeviceKind::Cuda, 100, &tasks, 1);
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run.tell(Event::Command { command: Command::Close });
    run
}

#[test]
fn a_device_is_set_aside_while_others_use_it_and_says_who() {
    let mut run = measured(1);
    used(&mut run, &[1]);
    assert!(is_usable(&run, 0) && !is_usable(&run, 1));
    let why = run.engine.state().device(device(1)).and_then(|one| one.set_aside.clone());
    assert_eq!(why.as_deref(), Some("outside Saturn, tomas (python, 31 GB) uses it"));
    assert!(run.is_asked(), "a plan without the device is asked for");
    let before = run.records.len();
    used(&mut run, &[1]);
    assert_eq!(run.records.len(), before, "the same look changes nothing");
    used(&mut run, &[]);
    assert!(is_usable(&run, 1));
    let back = |one: &Record| matches!(one, Record::TakenBack { reason, .. } if reason == "no other program uses it");
    assert!(run.records.iter().any(back));
}

#[test]
fn who_trains_keeps_the_device_and_then_it_is_left_to_the_others() {
    let mut run = measured(1);
    while run.is_asked() {
        run.plan_asked(&[("a", 0), ("b", 1)]);
    }
    assert_eq!(run.training(), ["a", "b"]);
    used(&mut run, &[0]);
    assert!(is_usable(&run, 0), "an attempt holds it");
    assert_eq!(run.training(), ["a", "b"]);
    run.finish("a");
    used(&mut run, &[0]);
    assert!(!is_usable(&run, 0));
    assert!(matches!(run.end_of(0), Some(TaskEnd::Done { .. })));
}

#[test]
fn a_task_that_needs_the_device_waits_and_the_run_does_not_end() {
    let mut run = measured(2);
    run.restore();
    let cluster = run.engine.state().cluster.clone();
    let machines = Machines { pool_may_grow: false, ..run.engine.state().config.machines() };
    let living = Vec::new();
    run.tell(Event::Resume { cluster, device_memory_bytes: None, machines, living });
    used(&mut run, &[1]);
    run.tell(Event::Tick);
    assert_eq!((run.engine.state().ended, run.end_of(0)), (None, None));
    assert!(run.training().is_empty());
    used(&mut run, &[]);
    assert!(run.is_asked() && is_usable(&run, 1));
}

#[test]
fn a_person_who_takes_it_back_shares_it_until_the_others_have_gone() {
    let mut run = measured(1);
    used(&mut run, &[1]);
    run.tell(Event::Command {
        command: Command::TakeBack { node: "n0".to_owned(), devices: vec![1] },
    });
    used(&mut run, &[1]);
    assert!(is_usable(&run, 1), "the person said so");
    used(&mut run, &[]);
    used(&mut run, &[1]);
    assert!(!is_usable(&run, 1), "they came again");
}

/// A person wants a device used again.
fn take_back(run: &mut Run, number: u32) {
    let command = Command::TakeBack { node: "n0".to_owned(), devices: vec![number] };
    run.tell(Event::Command { command });
}

/// Whatever trains on a device by this plan fails as a broken machine lets it fail; the other tasks
/// train on.
fn fails_on(run: &mut Run, number: u32, plan: &[(&str, u32)]) {
    while run.is_asked() {
        run.plan_asked(plan);
    }
    let attempts = run.engine.state().attempts.iter();
    let mut on_it = attempts.filter(|(_, one)| one.devices().any(|held| held == device(number)));
    let Some(attempt) = on_it.next().map(|(id, _)| *id) else {
        run.now_s += 100.0;
        run.tell(Event::Tick);
        return;
    };
    let (kind, error, traceback) = (FailureKind::Machine, "a fault".to_owned(), String::new());
    run.say(attempt, RankReport::Failed { kind, error, traceback });
    run.gone(attempt, 1);
}

#[test]
fn a_device_that_was_taken_back_is_left_to_others_although_its_accuser_fails_elsewhere() {
    let mut run = measured(1);
    while is_usable(&run, 1) {
        fails_on(&mut run, 1, &[("a", 0), ("b", 1)]);
    }
    run.tell(Event::Command { command: Command::Pause { task: "b".to_owned() } });
    take_back(&mut run, 1);
    used(&mut run, &[1]);
    assert!(!is_usable(&run, 1));
    run.tell(Event::Command { command: Command::Unpause { task: "b".to_owned() } });
    run.tell(Event::Command { command: Command::Cancel { task: "a".to_owned(), by: None } });
    for attempt in run.live(Purpose::Train) {
        run.gone(attempt, 1);
    }
    let failed = |run: &Run| {
        let is_it =
            |one: &&Record| matches!(one, Record::Ended { end: AttemptEnd::Failed { .. }, .. });
        run.records.iter().filter(is_it).count()
    };
    let before = failed(&run);
    while failed(&run) == before {
        fails_on(&mut run, 0, &[("b", 0)]);
    }
    assert!(!is_usable(&run, 1), "the others use it still");
}

#[test]
fn a_device_that_has_failed_since_does_not_come_back_when_the_others_leave_it() {
    let mut run = measured(1);
    used(&mut run, &[1]);
    take_back(&mut run, 1);
    while run.end_of(0).is_none() && is_usable(&run, 1) {
        fails_on(&mut run, 1, &[("a", 0), ("b", 1)]);
    }
    assert!(!is_usable(&run, 1), "two failures there");
    used(&mut run, &[]);
    assert!(!is_usable(&run, 1), "they were no outsiders' fault");
}

#[test]
fn another_driver_looks_for_itself() {
    let mut run = measured(1);
    used(&mut run, &[1]);
    run.resume(|_| {});
    assert!(is_usable(&run, 1));
    used(&mut run, &[1]);
    assert!(!is_usable(&run, 1));
}

/// The attempt on a device.
fn on(run: &Run, number: u32) -> AttemptId {
    let mut attempts = run.engine.state().attempts.iter();
    let on_it = attempts.find(|(_, one)| one.devices().any(|held| held == device(number)));
    *on_it.expect("an attempt holds it").0
}

/// The attempt on a device runs out of memory.
fn runs_out_of_memory(run: &mut Run, number: u32) {
    let attempt = on(run, number);
    let (kind, error) = (FailureKind::OutOfMemory, "CUDA out of memory".to_owned());
    run.say(attempt, RankReport::Failed { kind, error, traceback: String::new() });
    run.gone(attempt, 1);
}

fn is_excluded(run: &Run) -> bool {
    run.records.iter().any(|one| matches!(one, Record::Excluded { .. }))
}

/// How the last attempt that failed is told.
fn last_error(run: &Run) -> &str {
    let mut failed = run.records.iter().rev().filter_map(|one| match one {
        Record::Ended { end: AttemptEnd::Failed { failure }, .. } => Some(failure),
        _ => None,
    });
    failed.next().map_or("", |failure| failure.error.as_str())
}

#[test]
fn a_device_to_which_others_come_while_it_is_held_is_left_to_them_before_the_next_task_starts() {
    let mut run = measured_all(1, &["a", "b", "c"]);
    while run.is_asked() {
        run.plan_asked(&[("a", 0), ("b", 1), ("c", 0)]);
    }
    assert_eq!(run.training(), ["a", "b"]);
    used(&mut run, &[0]);
    runs_out_of_memory(&mut run, 0);
    assert!(!is_usable(&run, 0), "they are there already");
    assert_eq!(run.training(), ["b"], "nobody starts beside them");
    assert!(!is_excluded(&run), "the memory was theirs");
    let user = "outside Saturn, tomas (python, 31 GB) uses the device too";
    assert_eq!(last_error(&run), format!("CUDA out of memory ({user})"));
    let again = |one: &Record| matches!(one, Record::Retrying { counts: false, .. });
    assert!(run.records.iter().any(again), "no failure of the task's");
    used(&mut run, &[]);
    assert!(is_usable(&run, 0));
}

/// A trial's rank says that no knobs fit.
fn says_out_of_memory(run: &mut Run, number: u32) {
    let attempt = on(run, number);
    let outcome = TrialOutcome::OutOfMemory { detail: "CUDA out of memory".to_owned() };
    run.say(attempt, RankReport::Trial { knobs: Knobs::new(), outcome, step: None });
    run.gone(attempt, 0);
}

fn num_tried(run: &Run) -> usize {
    run.records.iter().filter(|one| matches!(one, Record::Tried { .. })).count()
}

#[test]
fn a_trial_that_runs_out_of_memory_beside_others_is_repeated_and_says_nothing() {
    for fails in [runs_out_of_memory, says_out_of_memory] {
        let tasks = [("a", 1), ("b", 1)];
        let (mode, kind) = (Mode::Orchestrate, DeviceKind::Cuda);
        let mut run = Run::on((&[2], 1), mode, kind, 100, &tasks, 1);
        let task = run.engine.state().attempts[&on(&run, 0)].task;
        used(&mut run, &[0]);
        fails(&mut run, 0);
        assert!(!is_usable(&run, 0));
        assert_eq!(num_tried(&run), 0, "nothing to store");
        let other = on(&run, 1);
        run.measured(other, 1);
        assert_eq!(run.trials(), [(task.0, 1)], "it is repeated elsewhere");
        assert_eq!((num_tried(&run), is_excluded(&run)), (1, false));
    }
}

#[test]
fn a_task_that_runs_out_of_memory_on_a_shared_device_is_tried_again_as_after_any_failure() {
    let mut run = measured(1);
    used(&mut run, &[0]);
    take_back(&mut run, 0);
    while run.is_asked() {
        run.plan_asked(&[("a", 0), ("b", 1)]);
    }
    runs_out_of_memory(&mut run, 0);
    assert!(!is_excluded(&run), "others use the memory, too");
    let again = |one: &Record| matches!(one, Record::Retrying { counts: true, .. });
    assert!(run.records.iter().any(again), "a person shares the device, and knows why");
}

#[test]
fn on_a_shared_device_memory_that_others_use_rules_out_no_strategy_for_good() {
    let (mode, kind) = (Mode::Orchestrate, DeviceKind::Cuda);
    let mut run = Run::on((&[1], 1), mode, kind, 100, &[("a", 1)], 1);
    used(&mut run, &[0]);
    let mut num_failed = 0;
    while num_tried(&run) == 0 {
        runs_out_of_memory(&mut run, 0);
        num_failed += 1;
        take_back(&mut run, 0);
        assert!(num_failed < 5, "it is repeated for ever");
    }
    assert_eq!(num_failed, 2, "the second is beside others whom a person has admitted");
    let is_failed =
        |one: &Record| matches!(one, Record::Tried { outcome: TrialOutcome::Failed { .. }, .. });
    assert!(run.records.iter().any(is_failed), "not for want of memory, which would be stored");
}

#[test]
fn a_search_waits_for_devices_that_others_use() {
    let tasks = [("a", 1), ("b", 1)];
    let mut run = Run::on((&[2], 2), Mode::Search, DeviceKind::Cuda, 100, &tasks, 1);
    run.tell(Event::Command { command: Command::Close });
    used(&mut run, &[1]);
    let trial = run.live(Purpose::Trial)[0];
    run.measured(trial, 1);
    assert!(!is_usable(&run, 1) && run.trials().is_empty());
    run.tell(Event::Tick);
    assert_eq!(run.engine.state().ended, None, "b's trial needs both devices");
    used(&mut run, &[]);
    assert_eq!(run.trials(), [(1, 2)]);
    let trial = run.live(Purpose::Trial)[0];
    run.measured(trial, 1);
    assert_eq!(run.engine.state().ended, Some(RunEnd::Complete));
}

#[test]
fn a_search_does_not_wait_for_devices_that_would_not_do() {
    let tasks = [("a", 1)];
    let mut run = Run::on((&[1, 1], 2), Mode::Search, DeviceKind::Cuda, 100, &tasks, 1);
    assert_eq!(run.trials(), [(0, 2)], "it takes both nodes");
    let trial = run.live(Purpose::Trial)[0];
    used(&mut run, &[0]);
    let name = "n1".to_owned();
    run.tell(Event::NodeLeft { name, reason: "it was taken away".to_owned() });
    run.gone(trial, 1);
    run.tell(Event::Command { command: Command::Close });
    assert_eq!(run.engine.state().ended, Some(RunEnd::Complete), "one device is not two");
}
