//! A model is inspected once for all tasks that have it, and before any of them is tried.

use saturn_core::{Node, TrialOutcome};
use saturn_engine::{
    Action, AttemptEnd, AttemptId, Command, DeviceKind, Event, FailureKind, LaunchOrder, Level,
    Mode, Policy, Purpose, RankReport, Record, RefusalCode, RunConfig, RunEnd, Stage, State,
    TaskEnd, TaskId, TaskStatus, Work,
};

use crate::inspected::{BOTH, DEVICES, Run, config, outcome, task, technique};
use crate::specs::measured;

#[test]
fn trials_come_after_the_look_and_what_can_not_run_is_never_launched() {
    let tasks = vec![task("a", "one"), task("b", "one")];
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), tasks);
    let look = run.only(Purpose::Inspection);
    assert!(run.live(Purpose::Trial).is_empty());
    assert_eq!(run.state().stage(TaskId(1)), Stage::Inspecting);
    let held = |state: &State| state.nodes[0].devices.iter().any(|one| one.held_by.is_some());
    assert!(!held(run.state()), "an inspection holds no device");

    run.find(look);
    assert_eq!(run.state().stage(TaskId(0)), Stage::Measuring);
    assert!(matches!(
        outcome(run.state(), "fsdp", 1),
        Some(TrialOutcome::NotApplicable { reason }) if reason == "nothing to split"
    ));
    assert!(matches!(outcome(run.state(), "fsdp", 2), Some(TrialOutcome::OutOfMemory { .. })));
    let key = |technique: &str, gpus| {
        let trials = run.state().groups[0].trials.keys();
        let mut found =
            trials.filter(|key| key.strategy.technique == technique && key.strategy.gpus == gpus);
        found.next().unwrap().clone()
    };
    assert!(run.state().groups[0].is_ruled_out(&key("fsdp", 1)));
    assert!(!run.state().groups[0].is_ruled_out(&key("ddp", 1)));
    let tried: Vec<&str> = run
        .journal
        .iter()
        .filter_map(|(record, _)| match record {
            Record::Launched { purpose: Purpose::Trial, strategy, .. } => {
                Some(strategy.technique.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!(tried, ["ddp"], "the wide one first, and it holds both devices");
    assert_eq!(run.state().num_open_trials(), 1);
}

#[test]
fn only_so_many_models_are_looked_at_together() {
    let tasks = (0..9).map(|number| task(&format!("t{number}"), &format!("k{number}"))).collect();
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), tasks);
    assert_eq!(run.live(Purpose::Inspection).len(), 2);
    assert_eq!(run.state().stage(TaskId(8)), Stage::Unmeasured);
    let first = run.live(Purpose::Inspection)[0];
    run.find(first);
    assert_eq!(run.live(Purpose::Inspection).len(), 2);
    assert_eq!(run.state().num_to_inspect(), 6);
}

/// A run of two models, one of which is known; the other's inspection is at work.
fn half_known(device_kind: DeviceKind) -> (Run, AttemptId) {
    let tasks = vec![task("a", "one"), task("b", "other")];
    let config = RunConfig { device_kind, ..config(Mode::Orchestrate, BOTH) };
    let mut run = Run::new(config, tasks);
    let [first, second] = run.live(Purpose::Inspection)[..] else { panic!("two at once") };
    run.find(first);
    (run, second)
}

#[test]
fn on_cpu_slots_trials_wait_for_inspections_but_not_for_long() {
    let (mut run, look) = half_known(DeviceKind::Cpu);
    assert_eq!(run.live(Purpose::Trial), []);
    assert!(run.state().num_open_trials() > 0);
    run.find(look);
    assert_eq!(run.live(Purpose::Trial).len(), 1, "the widest first, and it holds both devices");
    // One that fetches its first batch for minutes holds nobody up.
    let (mut run, _) = half_known(DeviceKind::Cpu);
    let old_s = run.engine.next_tick_s().expect("it is looked at again");
    assert!((run.now_s..run.now_s + 10.0).contains(&old_s), "{old_s}");
    run.now_s = old_s;
    run.tell(Event::Tick);
    assert_eq!(run.live(Purpose::Trial).len(), 1);
    // On GPUs an inspection is nobody's load.
    let (run, _) = half_known(DeviceKind::Cuda);
    assert_eq!(run.live(Purpose::Trial).len(), 1);
}

#[test]
fn on_cpu_slots_an_inspection_waits_for_young_trials_and_goes_before_the_next() {
    let mut run = Run::open(config(Mode::Orchestrate, BOTH));
    run.tell(Event::Command { command: Command::Submit { tasks: vec![task("a", "one")] } });
    run.find(run.only(Purpose::Inspection));
    let trial = run.only(Purpose::Trial);
    let tasks = vec![task("b", "two"), task("c", "three"), task("d", "four")];
    run.tell(Event::Command { command: Command::Submit { tasks } });
    assert_eq!(run.live(Purpose::Inspection), []);
    run.fail(trial, FailureKind::Machine);
    assert_eq!(run.live(Purpose::Inspection).len(), 2);
    assert_eq!(run.live(Purpose::Trial), [], "its second go waits for them");
}

#[test]
fn a_crash_is_tried_once_more_and_then_trials_tell() {
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), vec![task("a", "one")]);
    let first = run.only(Purpose::Inspection);
    run.gone(first, -11);
    let second = run.only(Purpose::Inspection);
    assert_ne!(first, second);
    run.fail(second, FailureKind::Error);
    assert!(run.live(Purpose::Inspection).is_empty());
    assert!(run.errors().is_empty());
    assert_eq!(run.live(Purpose::Trial).len(), 1);
    assert_eq!(run.state().num_open_trials(), 3, "nothing was ruled out");
}

#[test]
fn one_that_hangs_is_killed_and_done_without() {
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), vec![task("a", "one")]);
    for _ in 0..2 {
        let look = run.only(Purpose::Inspection);
        run.now_s += Policy::default().stall_s;
        let actions = run.tell(Event::Tick);
        assert!(actions.contains(&Action::Kill { attempt: look }), "{actions:?}");
        // Its process can't be killed either: it holds no device, so nothing is set aside.
        run.now_s += Policy::default().kill_grace_s;
        run.tell(Event::Tick);
    }
    assert_eq!(run.state().num_devices(), DEVICES as usize);
    assert_eq!(run.live(Purpose::Trial).len(), 1);
}

#[test]
fn black_boxes_are_tried_without_a_look() {
    let only = [("box", Level::BlackBox)];
    let run = Run::new(config(Mode::Orchestrate, &only), vec![task("a", "one")]);
    assert!(run.live(Purpose::Inspection).is_empty());
    assert_eq!(run.live(Purpose::Trial).len(), 1);

    let both = [("ddp", Level::Managed), ("box", Level::BlackBox)];
    let mut run = Run::open(config(Mode::Orchestrate, &both));
    let command = Command::Submit { tasks: vec![task("a", "one")] };
    let actions = run.tell(Event::Command { command });
    let order = LaunchOrder::of(run.state(), &actions[0]).unwrap().unwrap();
    let Work::Inspect { techniques, widths } = order.work else { panic!("it looks first") };
    assert_eq!(techniques, [technique("ddp", Level::Managed)]);
    assert_eq!((widths[0].gpu_type.as_str(), &widths[0].gpus[..]), ("cpu", &[1, 2][..]));
    assert_eq!((order.num_ranks, order.parts.len()), (1, 0));
    let look = run.only(Purpose::Inspection);
    run.find(look);
    let is_open = |technique: &str| {
        let open = run.state().open_trials();
        let tried = run.state().attempts.values().map(|one| one.strategy.technique.clone());
        open.map(|(_, key)| key.strategy.technique).chain(tried).any(|one| one == technique)
    };
    assert!(is_open("box"), "of which the look says nothing");
}

#[test]
fn a_resumed_run_asks_again_where_devices_hold_otherwise() {
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), vec![task("a", "one")]);
    let look = run.only(Purpose::Inspection);
    run.find(look);
    run.resume(None);
    assert!(run.live(Purpose::Inspection).is_empty(), "what was found holds");
    assert_eq!(run.live(Purpose::Trial).len(), 1);
    run.resume(Some(1 << 30));
    assert_eq!(run.live(Purpose::Inspection).len(), 1);
    assert_eq!(outcome(run.state(), "fsdp", 1), None);
    let look = run.only(Purpose::Inspection);
    run.find(look);
    assert!(outcome(run.state(), "fsdp", 1).is_some());
}

#[test]
fn a_look_that_was_under_way_is_taken_again_by_the_next_driver() {
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), vec![task("a", "one")]);
    let first = run.only(Purpose::Inspection);
    run.resume(None);
    let lost = run.journal.iter().any(|(record, _)| {
        matches!(record, Record::Ended { attempt, end: AttemptEnd::Lost, .. } if *attempt == first)
    });
    assert!(lost);
    assert_ne!(run.only(Purpose::Inspection), first);
}

#[test]
fn a_group_that_has_been_measured_survives_a_look_that_raises() {
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), vec![task("a", "one")]);
    let look = run.only(Purpose::Inspection);
    run.find(look);
    let trial = run.only(Purpose::Trial);
    let knobs = saturn_core::Knobs::new();
    run.say(trial, RankReport::Trial { knobs, outcome: measured(0.1), step: None });
    run.gone(trial, 0);
    run.resume(Some(1 << 30));
    for _ in 0..2 {
        let look = run.only(Purpose::Inspection);
        run.fail(look, FailureKind::Task);
    }
    assert!(!run.state().has_ended(TaskId(0)));
    assert!(!run.live(Purpose::Trial).is_empty());
}

#[test]
fn a_task_in_epochs_knows_its_steps_before_any_trial_has_ended() {
    let mut epochs = task("a", "one");
    (epochs.spec.steps, epochs.spec.epochs) = (None, Some(3));
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), vec![epochs]);
    let look = run.only(Purpose::Inspection);
    run.find(look);
    assert_eq!(run.state().task(TaskId(0)).steps, Some(21));
}

#[test]
fn what_no_task_wants_has_no_outcome_until_one_does() {
    let mut narrow = task("a", "one");
    narrow.spec.gpu_range = Some(vec![1]);
    let mut run = Run::open(config(Mode::Orchestrate, BOTH));
    run.tell(Event::Command { command: Command::Submit { tasks: vec![narrow] } });
    let look = run.only(Purpose::Inspection);
    run.find(look);
    assert!(outcome(run.state(), "fsdp", 1).is_some());
    assert_eq!(outcome(run.state(), "fsdp", 2), None);
    run.tell(Event::Command { command: Command::Submit { tasks: vec![task("b", "one")] } });
    assert!(matches!(outcome(run.state(), "fsdp", 2), Some(TrialOutcome::OutOfMemory { .. })));
    assert!(run.live(Purpose::Inspection).is_empty());
}

#[test]
fn a_search_waits_for_its_looks_and_ends_with_them_where_nothing_can_run() {
    let mut run = Run::new(config(Mode::Search, &[("fsdp", Level::Managed)]), vec![task("a", "k")]);
    assert_eq!(run.state().ended, None);
    let look = run.only(Purpose::Inspection);
    run.find(look);
    assert_eq!(run.state().ended, Some(RunEnd::Complete));
}

#[test]
fn a_task_that_nothing_can_run_is_given_up_with_the_reasons() {
    let only = [("fsdp", Level::Managed)];
    let mut run = Run::new(config(Mode::Orchestrate, &only), vec![task("a", "one")]);
    let look = run.only(Purpose::Inspection);
    run.find(look);
    let TaskStatus::Ended(TaskEnd::Failed { error, .. }) = &run.state().task(TaskId(0)).status
    else {
        panic!("it is given up")
    };
    assert_eq!(error, "no technique can run it; fsdp×2: out of memory; not applicable: fsdp×1");
}

#[test]
fn a_run_in_progress_takes_tasks_also_where_it_is_closed() {
    let mut run = Run::new(config(Mode::Orchestrate, BOTH), vec![task("a", "one")]);
    assert!(run.state().is_closed);
    run.tell(Event::Command { command: Command::Submit { tasks: vec![task("b", "one")] } });
    assert_eq!(run.state().tasks.len(), 2);
    // It would wait for a wider node in vain.
    let mut wide = task("wide", "one");
    wide.spec.gpu_range = Some(vec![64]);
    let command = Command::Submit { tasks: vec![wide] };
    let refusal = run.engine.handle(Event::Command { command }, run.now_s).refusal;
    let refusal = refusal.unwrap();
    assert_eq!(refusal.code, RefusalCode::OutOfRange);
    assert!(refusal.reason.starts_with("task `wide`: its `gpu_range` is 64"));
    // Once it has ended it takes none.
    run.tell(Event::Command { command: Command::Stop { at_once: true } });
    for purpose in [Purpose::Inspection, Purpose::Trial] {
        for attempt in run.live(purpose) {
            run.gone(attempt, -9);
        }
    }
    let command = Command::Submit { tasks: vec![task("c", "one")] };
    let refusal = run.engine.handle(Event::Command { command }, run.now_s).refusal;
    assert_eq!(refusal.unwrap().code, RefusalCode::RunEnded);
}

/// A node may come that is wide enough, as long as the run is open; once it is closed, none is
/// waited for.
#[test]
fn a_task_for_wider_nodes_waits_for_one_until_the_run_is_closed() {
    let wide = || {
        let mut wide = task("wide", "one");
        wide.spec.gpu_range = Some(vec![64]);
        wide
    };
    let why = "its `gpu_range` is 64, but the nodes of this pool allow only 1, 2";
    let waiting = |comes: bool| {
        let mut run = Run::open(config(Mode::Orchestrate, BOTH));
        run.tell(Event::Command { command: Command::Submit { tasks: vec![wide()] } });
        assert!(run.live(Purpose::Inspection).is_empty(), "there is nothing to look for");
        let noted = run.journal.iter().find_map(|(record, _)| match record {
            Record::Noted { task: Some(TaskId(0)), text } => Some(text.clone()),
            _ => None,
        });
        assert_eq!(noted.as_deref(), Some(format!("waits for other devices: {why}").as_str()));
        assert_eq!(run.state().task(TaskId(0)).status, TaskStatus::Waiting);
        if comes {
            run.tell(Event::NodeJoined {
                spec: Node::new("n1", 64, "cpu"),
                host_memory_bytes: None,
            });
            assert_eq!(run.state().out_of_range(&wide().spec), None);
        }
        run.tell(Event::Command { command: Command::Close });
        run.state().task(TaskId(0)).status.clone()
    };
    assert_eq!(waiting(true), TaskStatus::Waiting);
    let TaskStatus::Ended(TaskEnd::Failed { error, .. }) = waiting(false) else {
        panic!("it is given up")
    };
    assert_eq!(error, format!("no strategy fits: {why}"));
}
