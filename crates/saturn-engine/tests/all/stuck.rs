//! A run that goes on where its tasks have too few devices ends, and goes on where they have them.

use saturn_core::{Cluster, Node};
use saturn_engine::{Command, DeviceKind, Event, Mode, Purpose, Record, RunEnd};

use crate::host_memory::Run;

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
    run.tell(Event::NodeJoined { spec: Node::new("n1", 4, "a") });
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
