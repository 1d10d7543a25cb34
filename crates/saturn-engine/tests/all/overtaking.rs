//! A task that waits for host memory is not overtaken for ever by others that need less of it. A
//! run that goes on elsewhere has the host memory of the machine there.

use std::collections::BTreeMap;

use saturn_core::Node;
use saturn_engine::{
    Command, DeviceKind, Event, MachineMemory, Mode, Purpose, RankReport, Record, Ruling, TaskEnd,
};

use crate::run::{GB, Run, inspection, task};

/// A run of measured tasks, each with the GB that it takes of 10 GB, on three GPUs, planned so.
fn planned(tasks: &[(&str, u64)], places: &[(&str, u32)]) -> Run {
    planned_on(3, tasks, places)
}

/// The same on so many GPUs.
fn planned_on(gpus: u32, tasks: &[(&str, u64)], places: &[(&str, u32)]) -> Run {
    let mut run = Run::on((&[gpus], 1), Mode::Orchestrate, DeviceKind::Cuda, 10, tasks, 48);
    // So one plan is asked for, of all tasks.
    run.judge(tasks, Ruling::Hold);
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run.judge(tasks, Ruling::GoOn);
    run.plan(places);
    run
}

#[test]
fn the_task_that_waited_longest_for_host_memory_is_next() {
    let tasks = [("a", 6), ("b", 6), ("c", 3), ("d", 3), ("e", 3)];
    let places = [("a", 0), ("c", 1), ("b", 2), ("d", 0), ("e", 1)];
    let mut run = planned(&tasks, &places);
    assert_eq!(run.training(), ["a", "c"], "b needs 6 GB, and there is 1 GB");
    // The devices of d and e are looked at before that of b.
    run.finish("a");
    assert_eq!(run.training(), ["c", "b"], "beside b there is no room for d");
    run.finish("c");
    assert_eq!(run.training(), ["b", "d"], "1 GB is left");
    run.finish("b");
    assert_eq!(run.training(), ["d", "e"]);
}

#[test]
fn a_task_may_overtake_where_that_delays_nobody() {
    let tasks = [("long", 5), ("b", 6), ("c", 5), ("long2", 5)];
    let places = [("long", 0), ("b", 2), ("c", 1), ("long2", 1)];
    let mut run = planned(&tasks, &places);
    assert_eq!(run.training(), ["long", "c"], "c ends before b could start");
    run.finish("c");
    assert_eq!(run.training(), ["long"], "b would have to wait for long2");
    run.finish("long");
    assert_eq!(run.training(), ["b"]);
    run.finish("b");
    assert_eq!(run.training(), ["long2"]);
}

#[test]
fn of_those_who_may_overtake_the_one_that_has_waited_longer_is_next() {
    let tasks = [("a", 4), ("long", 5), ("d", 1), ("x", 6), ("early", 3), ("later", 3)];
    // In the plan `later` comes before `early`.
    let places = [("a", 0), ("long", 1), ("d", 4), ("x", 2), ("later", 4), ("early", 3)];
    let mut run = planned_on(5, &tasks, &places);
    assert_eq!(run.training(), ["a", "long", "d"], "x and early wait for host memory");
    run.finish("d");
    assert_eq!(run.training(), ["a", "long"], "so does later, whose device was taken till now");
    run.finish("a");
    assert_eq!(run.training(), ["long", "early"], "both end before x could start");
    run.finish("early");
    assert_eq!(run.training(), ["long", "later"]);
}

#[test]
fn what_waits_no_more_keeps_no_host_memory() {
    let tasks = [("a", 5), ("b", 6), ("long", 5)];
    let mut run = planned(&tasks, &[("a", 0), ("b", 1), ("long", 2)]);
    assert_eq!(run.training(), ["a"]);
    run.cancel("b");
    assert_eq!(run.training(), ["a", "long"]);
}

#[test]
fn a_task_that_ends_before_its_first_trial_keeps_no_host_memory_for_it() {
    let tasks = [("a", 4), ("c", 3), ("d", 1), ("long", 5)];
    let mut run = planned(&tasks, &[("a", 0), ("c", 1), ("d", 2), ("long", 1)]);
    run.tell(Event::Command { command: Command::Submit { tasks: vec![task("b", 1)] } });
    let look = run.live(Purpose::Inspection)[0];
    let inspection = Box::new(inspection(6 * GB, 48 * GB));
    run.say(look, RankReport::Inspected { inspection });
    run.gone(look, 0);
    run.finish("c");
    while run.is_asked() {
        run.plan_asked(&[("a", 0), ("d", 2), ("long", 1)]);
    }
    run.tell(Event::Tick);
    let trains = (run.training(), run.trials());
    assert_eq!(trains, (vec!["a", "d"], vec![]), "5 GB are kept for b's trial");
    run.cancel("b");
    assert_eq!(run.training(), ["a", "d", "long"], "nobody waits before it");
}

#[test]
fn a_trial_does_not_overtake_the_first_trial_of_another_group() {
    let tasks = [("x", 5), ("y", 6), ("z", 5)];
    let run = Run::on((&[3], 1), Mode::Orchestrate, DeviceKind::Cuda, 10, &tasks, 48);
    assert_eq!(run.trials(), [(0, 1)], "z's trial would end after that of x, for which y waits");
}

#[test]
fn a_resumed_run_has_the_host_memory_of_the_machine_that_it_is_on() {
    let mut run = planned(&[("large", 8), ("small", 2)], &[("large", 0), ("small", 1)]);
    assert_eq!(run.training(), ["large", "small"]);
    run.resume(|machines| machines.host_memory_bytes = Some(5_000_000_000));
    assert_eq!(run.training(), ["small"], "large needs 8 GB");
    let Some(TaskEnd::Failed { error, .. }) = run.end_of(0) else { panic!("it can't be trained") };
    assert!(
        error.ends_with("8.0 GB of host memory, and a node allows 5.0 GB (host_memory)"),
        "{error}"
    );
}

/// A machine of which others hold most at the moment.
fn busy_machine() -> MachineMemory {
    MachineMemory { available_bytes: 5 * GB, ..(64 * GB).into() }
}

#[test]
fn memory_that_others_hold_when_a_run_is_resumed_fails_no_task() {
    let mut run = planned(&[("large", 8), ("small", 2)], &[("large", 0), ("small", 1)]);
    assert_eq!(run.training(), ["large", "small"]);
    run.resume(|machines| {
        machines.host_memory_bytes = None;
        machines.host_memory_by_node = BTreeMap::from([("n0".to_owned(), busy_machine())]);
    });
    assert_eq!(run.end_of(0), None, "the machine has 64 GB");
    assert_eq!(run.training(), ["large"], "8 GB of 5 GB: alone");
    run.finish("large");
    assert_eq!(run.training(), ["small"]);
}

#[test]
fn memory_that_others_hold_when_a_node_comes_back_fails_no_task() {
    let mut run = planned(&[("large", 8)], &[("large", 0)]);
    run.resume(|machines| {
        machines.host_memory_bytes = None;
        machines.host_memory_by_node = BTreeMap::from([("n0".to_owned(), (64 * GB).into())]);
    });
    run.tell(Event::NodeLeft { name: "n0".to_owned(), reason: "it is rebooted".to_owned() });
    let spec = Node::new("n0", 3, "a");
    run.tell(Event::NodeJoined { spec, host_memory_bytes: Some(busy_machine()) });
    assert_eq!(run.end_of(0), None);
    run.plan(&[("large", 0)]);
    assert_eq!(run.training(), ["large"]);
}

#[test]
fn a_resumed_run_counts_the_host_memory_of_slots_where_it_has_slots() {
    // A GPU holds 48 GB of the training state; a slot holds it in host memory.
    let mut run = planned(&[("a", 1), ("b", 2)], &[("a", 0), ("b", 1)]);
    run.resume(|machines| machines.device_kind = DeviceKind::Cpu);
    assert_eq!(run.training(), <[&str; 0]>::default());
    assert!(run.end_of(0).is_some() && run.end_of(1).is_some());
}

#[test]
fn journals_that_say_nothing_of_machines_keep_those_that_were() {
    let text = r#"{"record": "resumed", "device_memory_bytes": null}"#;
    let record: Record = serde_json::from_str(text).expect("an earlier version wrote it");
    let mut run = planned(&[("a", 1)], &[("a", 0)]);
    let before = run.engine.state().config.machines();
    run.records.push(record);
    run.resume(|_| {});
    assert_eq!(run.engine.state().config.machines(), before);
}
