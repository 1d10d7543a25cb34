//! A run that goes on where its tasks have too few devices ends, and goes on where they have them.

use saturn_core::{Cluster, Node};
use saturn_engine::{
    Command, DeviceKind, Event, FailureKind, Level, Mode, NewTask, Policy, Purpose, RankReport,
    Record, RunConfig, RunEnd, TechniqueRef, TrialBudget,
};

use crate::run::{Run, inspection};
use crate::specs::spec;

fn machine(devices: u32) -> Cluster {
    Cluster { nodes: vec![Node::new("n0", devices, "a")] }
}

/// A task that was measured on all devices of a machine of four, and is allowed no other number.
fn measured() -> Run {
    let mut run = Run::on((&[4], 4), Mode::Orchestrate, DeviceKind::Cuda, 10, &[("wide", 1)], 48);
    let trial = run.live(Purpose::Trial)[0];
    run.measured(trial, 1);
    run.tell(Event::Command { command: Command::Close });
    assert_eq!(run.engine.state().ended, None);
    run
}

#[test]
fn on_one_machine_the_run_ends_says_why_and_goes_on_where_there_are_more() {
    let mut run = measured();
    run.resume_on(machine(2), |machines| machines.pool_may_grow = false);
    assert_eq!(run.engine.state().ended, Some(RunEnd::Interrupted));
    let Some(Record::Noted { task: Some(_), text }) = run.records.iter().rev().nth(1) else {
        panic!("it says nothing: {:?}", run.records)
    };
    assert_eq!(
        text,
        "needs more devices than the pool has (4 of type a): resume the run on a larger pool"
    );
    run.resume_on(machine(4), |machines| machines.pool_may_grow = false);
    assert_eq!((run.engine.state().ended, run.end_of(0)), (None, None));
}

#[test]
fn on_a_cluster_it_waits_for_a_node() {
    let mut run = measured();
    run.resume_on(machine(2), |_| {});
    assert_eq!(run.engine.state().ended, None);
    run.tell(Event::NodeJoined { spec: Node::new("n1", 4, "a"), host_memory_bytes: None });
    assert_eq!((run.engine.state().ended, run.end_of(0)), (None, None));
}

#[test]
fn while_more_tasks_may_come_it_goes_on() {
    let mut run = Run::on((&[4], 4), Mode::Orchestrate, DeviceKind::Cuda, 10, &[("wide", 1)], 48);
    let trial = run.live(Purpose::Trial)[0];
    run.measured(trial, 1);
    run.resume_on(machine(2), |machines| machines.pool_may_grow = false);
    assert_eq!(run.engine.state().ended, None);
}

/// As `measured`, but its only trial is still to come.
fn unmeasured() -> Run {
    let mut run = Run::on((&[4], 4), Mode::Orchestrate, DeviceKind::Cuda, 10, &[("wide", 1)], 48);
    run.tell(Event::Command { command: Command::Close });
    run
}

#[test]
fn a_task_that_is_not_measured_yet_waits_as_well() {
    let mut run = unmeasured();
    run.resume_on(machine(2), |machines| machines.pool_may_grow = false);
    assert_eq!((run.engine.state().ended, run.end_of(0)), (Some(RunEnd::Interrupted), None));
    run.resume_on(machine(4), |machines| machines.pool_may_grow = false);
    assert_eq!((run.engine.state().ended, run.end_of(0)), (None, None));
    assert_eq!(run.live(Purpose::Trial).len(), 1);
    // On a cluster a node may come.
    let mut run = unmeasured();
    run.resume_on(machine(2), |_| {});
    assert_eq!((run.engine.state().ended, run.end_of(0)), (None, None));
    run.tell(Event::NodeJoined { spec: Node::new("n1", 4, "a"), host_memory_bytes: None });
    assert_eq!(run.live(Purpose::Trial).len(), 1);
}

#[test]
fn a_narrower_machine_tries_what_a_wider_machine_would_have_left_out() {
    let technique =
        TechniqueRef { name: "ddp".to_owned(), level: Level::Managed, import: None, pickle: None };
    let policy = Policy { trial_budget: TrialBudget::Worthwhile, ..Policy::default() };
    let config = RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cuda,
        device_memory_bytes: None,
        techniques: vec![technique],
        policy,
    };
    let mut run = Run::begin(config, &[4]);
    let tasks = vec![NewTask { spec: spec("large"), after: Vec::new() }];
    run.tell(Event::Command { command: Command::Submit { tasks } });
    run.tell(Event::Command { command: Command::Close });
    let inspection = Box::new(inspection(1, 1));
    let id = run.live(Purpose::Inspection)[0];
    run.say(id, RankReport::Inspected { inspection });
    run.gone(id, 0);
    let id = run.live(Purpose::Trial)[0];
    assert_eq!(run.engine.state().attempts[&id].strategy.gpus, 1);
    let (error, traceback) = ("too large".to_owned(), String::new());
    run.say(id, RankReport::Failed { kind: FailureKind::OutOfMemory, error, traceback });
    run.gone(id, 1);
    run.resume_on(machine(2), |machines| machines.pool_may_grow = false);
    assert_eq!(run.end_of(0), None);
    let id = run.live(Purpose::Trial)[0];
    assert_eq!(run.engine.state().attempts[&id].strategy.gpus, 2);
}
