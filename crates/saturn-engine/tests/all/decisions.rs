//! Small decisions about attempts, devices and host memory, each seen in what follows from it.

use saturn_core::{Knobs, TrialOutcome};
use saturn_engine::{
    AttemptEnd, Command, DeviceKind, Event, FailureKind, Mode, Purpose, RankReport, Record, Ruling,
    TaskEnd, TaskId,
};

use crate::run::{Run, inspection, task};

const GB: u64 = 1_000_000_000;

/// A run of measured tasks that are held, on the GPUs of one node. Each has the GB that it takes of
/// 10 GB.
fn held(gpus: u32, tasks: &[(&str, u64)]) -> Run {
    let mut run = Run::on((&[gpus], 1), Mode::Orchestrate, DeviceKind::Cuda, 10, tasks, 48);
    run.judge(tasks, Ruling::Hold);
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run
}

/// The same of tasks that may train. One plan is asked for, of all tasks.
fn measured(gpus: u32, tasks: &[(&str, u64)]) -> Run {
    let mut run = held(gpus, tasks);
    run.judge(tasks, Ruling::GoOn);
    run
}

/// The one attempt of a task that trains.
fn training() -> (Run, saturn_engine::AttemptId) {
    let mut run = measured(1, &[("a", 1)]);
    run.plan(&[("a", 0)]);
    let attempt = run.live(Purpose::Train)[0];
    (run, attempt)
}

fn fails(run: &mut Run, kind: FailureKind) {
    let attempt = run.live(Purpose::Train)[0];
    let (error, traceback) = ("x".to_owned(), String::new());
    run.say(attempt, RankReport::Failed { kind, error, traceback });
    if run.engine.state().attempts.contains_key(&attempt) {
        run.gone(attempt, 1);
    }
}

/// How long the task waits from now on, as was recorded last.
fn wait_s(run: &Run) -> f64 {
    let waits = run.records.iter().rev().find_map(|record| match record {
        Record::Retrying { not_before_s, .. } => Some(not_before_s - run.now_s),
        _ => None,
    });
    waits.unwrap_or(f64::NAN)
}

fn is(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-9
}

#[test]
fn each_failure_in_a_row_doubles_the_wait_before_the_next_try() {
    let (mut run, _) = training();
    let backoff_s = run.engine.state().config.policy.backoff_s;
    fails(&mut run, FailureKind::Error);
    assert!(is(wait_s(&run), backoff_s), "{} s", wait_s(&run));
    run.now_s += backoff_s;
    run.tell(Event::Tick);
    fails(&mut run, FailureKind::Error);
    assert!(is(wait_s(&run), 2.0 * backoff_s), "{} s", wait_s(&run));
}

#[test]
fn a_task_that_met_a_full_disk_is_tried_again_after_a_minute() {
    let (mut run, _) = training();
    fails(&mut run, FailureKind::NoSpace);
    assert!(is(wait_s(&run), 60.0), "{} s", wait_s(&run));
}

#[test]
fn an_echo_waits_two_seconds_for_its_cause() {
    let (mut run, attempt) = training();
    run.now_s = 1000.0;
    let (error, traceback) = ("a peer is gone".to_owned(), String::new());
    run.say(attempt, RankReport::Failed { kind: FailureKind::PeerLost, error, traceback });
    assert_eq!(run.engine.next_tick_s(), Some(run.now_s + 2.0));
}

#[test]
fn an_attempt_that_ends_as_it_was_asked_to_has_stopped() {
    let (mut run, attempt) = training();
    run.tell(Event::Command { command: Command::Pause { task: "a".to_owned() } });
    run.say(attempt, RankReport::Stopped { step: 7 });
    run.gone(attempt, 0);
    let Some(Record::Ended { end, .. }) =
        run.records.iter().rev().find(|one| matches!(one, Record::Ended { .. }))
    else {
        panic!("it has not ended")
    };
    assert_eq!(*end, AttemptEnd::Stopped);
}

#[test]
fn a_save_in_the_background_says_nothing_of_what_a_save_costs() {
    let (mut run, attempt) = training();
    let mut saved = |step, save_s, blocked_s| {
        run.say(attempt, RankReport::Checkpoint { step, save_s, blocked_s, loss: None });
        run.engine.state().task(TaskId(0)).save_s
    };
    assert_eq!(saved(5, 3.0, 3.0), Some(3.0));
    assert_eq!(saved(6, 8.0, 1.0), Some(3.0));
}

#[test]
fn slots_hold_what_a_trial_has_measured() {
    let tasks = [("a", 1), ("b", 1)];
    for (peak_gb, training) in [(4, &["a", "b"][..]), (9, &["a"])] {
        let mut run = Run::on((&[2], 1), Mode::Orchestrate, DeviceKind::Cpu, 15, &tasks, 4);
        run.judge(&tasks, Ruling::Hold);
        while let Some(trial) = run.live(Purpose::Trial).first().copied() {
            run.measured(trial, peak_gb * GB);
        }
        run.judge(&tasks, Ruling::GoOn);
        run.plan(&[("a", 0), ("b", 1)]);
        assert_eq!(run.training(), training, "{peak_gb} GB each");
    }
}

#[test]
fn a_task_that_may_not_start_yet_keeps_no_host_memory() {
    let mut run = measured(3, &[("a", 5), ("b", 6), ("long", 5)]);
    run.plan(&[("a", 0), ("b", 1), ("long", 2)]);
    assert_eq!(run.training(), ["a"]);
    let later = Command::Wish {
        task: "b".to_owned(),
        priority: None,
        deadline_s: None,
        no_deadline: false,
        release_s: Some(1e6),
        after: None,
    };
    run.tell(Event::Command { command: later });
    assert_eq!(run.training(), ["a", "long"]);
}

#[test]
fn tasks_that_may_go_on_together_start_at_once() {
    let mut run = held(3, &[("a", 1), ("b", 1), ("c", 1)]);
    run.judge(&[("a", 1)], Ruling::GoOn);
    run.plan(&[("a", 0)]);
    assert_eq!(run.training(), ["a"]);
    run.judge(&[("b", 1), ("c", 1)], Ruling::GoOn);
    assert_eq!(run.training(), ["a", "b", "c"], "no solver was asked");
}

#[test]
fn who_overtakes_ends_before_the_first_memory_that_is_enough_is_free() {
    let mut run = held(4, &[("x", 3), ("long", 3), ("b", 6), ("c", 2)]);
    run.judge(&[("x", 3), ("long", 3), ("b", 6)], Ruling::GoOn);
    run.plan(&[("x", 0), ("long", 1), ("b", 2)]);
    assert_eq!(run.training(), ["x", "long"], "b needs 6 GB, and there are 4 GB");
    let x = run.live(Purpose::Train)[0];
    run.say(x, RankReport::Started { step: 0, setup_s: 1.0 });
    run.say(x, RankReport::Progress { step: 95, loss: None, step_s: Some(1.0) });
    run.judge(&[("c", 2)], Ruling::GoOn);
    assert_eq!(run.training(), ["x", "long"], "b can start once x is done, long before c would be");
    run.finish("x");
    assert_eq!(run.training(), ["long", "b"]);
}

#[test]
fn a_task_that_waits_for_one_node_keeps_no_host_memory_of_another() {
    let tasks = [("a", 6), ("b", 6), ("c", 8)];
    let mut run = Run::on((&[2, 1], 1), Mode::Orchestrate, DeviceKind::Cuda, 10, &tasks, 48);
    run.judge(&tasks, Ruling::Hold);
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run.judge(&tasks, Ruling::GoOn);
    run.plan_on(&[("a", 0, 0), ("b", 0, 1), ("c", 1, 0)]);
    assert_eq!(run.training(), ["a", "c"]);
}

#[test]
fn devices_that_a_waiting_task_can_not_do_without_stay() {
    for wide_waits in [false, true] {
        let mut run = Run::on((&[2], 1), Mode::Orchestrate, DeviceKind::Cuda, 100, &[("a", 1)], 1);
        if wide_waits {
            let tasks = vec![task("wide", 2)];
            run.tell(Event::Command { command: Command::Submit { tasks } });
            let look = run.live(Purpose::Inspection)[0];
            let found = Box::new(inspection(GB, GB));
            run.say(look, RankReport::Inspected { inspection: found });
            run.gone(look, 0);
        }
        let tasks: &[(&str, u64)] = if wide_waits { &[("a", 1), ("wide", 1)] } else { &[("a", 1)] };
        run.judge(tasks, Ruling::Hold);
        while let Some(trial) = run.live(Purpose::Trial).first().copied() {
            run.measured(trial, 1);
        }
        run.judge(&[("a", 1)], Ruling::GoOn);
        run.plan(&[("a", 0)]);
        for _ in 0..2 {
            fails(&mut run, FailureKind::Died);
            run.now_s += 1000.0;
            run.tell(Event::Tick);
        }
        let is_set_aside = run.records.iter().any(|one| matches!(one, Record::SetAside { .. }));
        assert_eq!(is_set_aside, !wide_waits);
    }
}

#[test]
fn a_task_whose_number_of_steps_nobody_knows_is_told_so() {
    let mut run = Run::on((&[1], 1), Mode::Orchestrate, DeviceKind::Cuda, 100, &[], 1);
    let mut endless = task("a", 1);
    endless.spec.steps = None;
    run.tell(Event::Command { command: Command::Submit { tasks: vec![endless] } });
    let look = run.live(Purpose::Inspection)[0];
    run.say(look, RankReport::Inspected { inspection: Box::new(inspection(GB, GB)) });
    run.gone(look, 0);
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    let Some(TaskEnd::Failed { error, .. }) = run.end_of(0) else { panic!("it can't be planned") };
    assert_eq!(
        error,
        "the number of its steps is unknown: give `steps`, since its loader has no length"
    );
}

/// Strategies that can't run it are not what keeps it from training.
#[test]
fn a_task_of_unknown_length_is_told_so_also_where_some_strategies_cannot_run_it() {
    let mut run = Run::on((&[2], 1), Mode::Orchestrate, DeviceKind::Cuda, 100, &[], 1);
    let mut endless = task("a", 1);
    (endless.spec.steps, endless.spec.gpu_range) = (None, Some(vec![1, 2]));
    run.tell(Event::Command { command: Command::Submit { tasks: vec![endless] } });
    let look = run.live(Purpose::Inspection)[0];
    run.say(look, RankReport::Inspected { inspection: Box::new(inspection(GB, GB)) });
    run.gone(look, 0);
    let mut num_short = 0;
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        if run.engine.state().attempts[&trial].strategy.gpus == 1 {
            num_short += 1;
            let outcome = TrialOutcome::OutOfMemory { detail: "full".to_owned() };
            let knobs = Knobs::new();
            run.say(trial, RankReport::Trial { knobs, outcome, step: None });
            run.gone(trial, 0);
        } else {
            run.measured(trial, 1);
        }
    }
    let Some(TaskEnd::Failed { error, .. }) = run.end_of(0) else { panic!("it can't be planned") };
    assert_eq!(num_short, 1);
    assert_eq!(
        error,
        "the number of its steps is unknown: give `steps`, since its loader has no length"
    );
}
