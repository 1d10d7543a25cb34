//! What runs together fits the machine's own memory, and running out of it is not a device's fault.

use std::collections::BTreeMap;

use saturn_core::{Knobs, Node, Strategy, TrialOutcome};
use saturn_engine::{
    Command, DeviceKind, Event, FailureKind, MachineMemory, Mode, Purpose, RankReport, Ruling,
    TaskEnd, TaskId,
};

use crate::run::{DEVICES, GB, Run, inspection, task};

#[test]
fn trials_wait_until_there_is_host_memory_for_them() {
    // Each device holds all of a training state: in host memory there are the weights alone.
    let mut run = Run::new(DeviceKind::Cuda, 10, &[("a", 6), ("b", 6), ("c", 3)], 24);
    assert_eq!(run.trials(), [(0, 1), (2, 1)], "b waits, though it came before c");
    let [first, second] = run.live(Purpose::Trial)[..] else { panic!("two run") };
    run.measured(second, 1);
    assert_eq!(run.trials(), [(0, 1)], "a device is free, and still no memory");
    run.measured(first, 1);
    assert_eq!(run.trials(), [(1, 1)]);
}

#[test]
fn what_devices_do_not_hold_lies_in_host_memory() {
    // 4 times the weights train; each device has 1 GB of that.
    let run = Run::new(DeviceKind::Cuda, 20, &[("a", 4), ("b", 4)], 1);
    assert_eq!(run.trials(), [(0, 1)], "15 GB each");
    let run = Run::new(DeviceKind::Cuda, 30, &[("a", 4), ("b", 4)], 1);
    assert_eq!(run.trials(), [(0, 1), (1, 1)]);
}

#[test]
fn slots_hold_the_training_state_in_host_memory() {
    let run = Run::new(DeviceKind::Cpu, 20, &[("a", 3), ("b", 3)], 12);
    assert_eq!(run.trials(), [(0, 1)]);
    let run = Run::new(DeviceKind::Cpu, 24, &[("a", 3), ("b", 3)], 12);
    assert_eq!(run.trials(), [(0, 1), (1, 1)]);
}

#[test]
fn each_node_has_host_memory_of_its_own() {
    let tasks = [("a", 6), ("b", 6), ("c", 3)];
    let run = |nodes: &[u32]| Run::on((nodes, 1), Mode::Search, DeviceKind::Cuda, 10, &tasks, 24);
    assert_eq!(run(&[3]).trials(), [(0, 1), (2, 1)]);
    assert_eq!(run(&[1, 1]).trials(), [(0, 1), (1, 1)]);
    assert_eq!(run(&[2, 1]).trials(), [(0, 1), (1, 1), (2, 1)], "c beside a or b");
    assert_eq!(run(&[2, 2]).trials(), [(0, 1), (1, 1), (2, 1)]);
}

#[test]
fn a_gang_on_two_nodes_takes_host_memory_of_both() {
    let run = |host_gb, nodes: &[u32]| {
        let slots = DeviceKind::Cpu;
        Run::on((nodes, 2), Mode::Orchestrate, slots, host_gb, &[("a", 3), ("b", 3)], 12)
    };
    assert_eq!(run(12, &[1, 1]).trials(), [(0, 2)], "12 GB on each");
    assert!(run(11, &[1, 1]).end_of(0).is_some());
    assert!(run(23, &[2]).end_of(0).is_some(), "24 GB on one");
    assert_eq!(run(24, &[2]).trials(), [(0, 2)]);
    assert_eq!(run(24, &[2, 2]).trials(), [(0, 2), (1, 2)]);
}

#[test]
fn a_model_keeps_its_size_when_a_wider_node_puts_its_inspection_in_doubt() {
    let tasks = [("a", 6), ("b", 6)];
    let mut run = Run::of(Mode::Orchestrate, DeviceKind::Cuda, 10, &tasks, 24);
    run.judge(&tasks, Ruling::Hold);
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run.judge(&tasks, Ruling::GoOn);
    run.plan(&[("a", 0), ("b", 1)]);
    assert_eq!(run.training(), ["a"]);
    run.tell(Event::NodeJoined {
        spec: Node::new("wide", DEVICES + 2, "a"),
        host_memory_bytes: None,
    });
    assert_eq!(
        run.training(),
        ["a"],
        "b still waits: its node has no more host memory than before"
    );
}

#[test]
fn the_limit_of_a_node_is_its_own_unless_the_user_gives_one() {
    let tasks = [("a", 6), ("b", 6), ("c", 6), ("d", 6)];
    let mut run = Run::of(Mode::Orchestrate, DeviceKind::Cuda, 10, &tasks, 24);
    run.judge(&tasks, Ruling::Hold);
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run.judge(&tasks, Ruling::GoOn);
    run.resume(|machines| {
        machines.host_memory_bytes = None;
        machines.host_memory_by_node = BTreeMap::from([("n0".to_owned(), (48 * GB).into())]);
    });
    let small = || Event::NodeJoined {
        spec: Node::new("n1", 2, "a"),
        host_memory_bytes: Some((8 * GB).into()),
    };
    run.tell(small());
    let places = [("a", 0, 0), ("b", 0, 1), ("c", 1, 0), ("d", 1, 1)];
    run.plan_on(&places);
    assert_eq!(run.training(), ["a", "b", "c"], "12 of 48 GB, and 6 of 8");
    // The user's limit replaces the limit of each node.
    run.resume(|machines| machines.host_memory_bytes = Some(10 * GB));
    run.plan_on(&places);
    assert_eq!(run.training(), ["a", "c"]);
}

#[test]
fn nodes_of_one_machine_share_the_users_limit() {
    let tasks = [("a", 3), ("b", 3), ("c", 3), ("d", 3)];
    let mut run = Run::on((&[2, 4], 1), Mode::Orchestrate, DeviceKind::Cuda, 12, &tasks, 24);
    run.judge(&tasks, Ruling::Hold);
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run.judge(&tasks, Ruling::GoOn);
    run.resume(|machines| {
        let share = |devices| MachineMemory::from(100 * GB).shared(devices, 6);
        let each = [("n0".to_owned(), share(2)), ("n1".to_owned(), share(4))];
        machines.host_memory_by_node = BTreeMap::from(each);
    });
    run.plan_on(&[("a", 0, 0), ("b", 0, 1), ("c", 1, 0), ("d", 1, 1)]);
    assert_eq!(run.training(), ["a", "c", "d"], "4 GB of 12 GB are n0's");
    // What only the whole machine has room for is not ruled out.
    run.resume(|machines| machines.host_memory_bytes = Some(6 * GB));
    assert_eq!(run.end_of(0), None);
    run.resume(|machines| machines.host_memory_bytes = Some(2 * GB));
    assert!(run.end_of(0).is_some());
}

#[test]
fn a_strategy_that_no_node_was_large_enough_for_is_tried_when_a_larger_node_joins() {
    let slots = DeviceKind::Cpu;
    let mut run = Run::on((&[2, 2, 2], 1), Mode::Search, slots, 15, &[("other", 1)], 1);
    run.resume(|machines| {
        machines.host_memory_bytes = None;
        let each = (0..3).map(|node| (format!("n{node}"), (15 * GB).into()));
        machines.host_memory_by_node = each.collect();
    });
    let [trial] = run.live(Purpose::Trial)[..] else { panic!("one runs") };
    run.measured(trial, 1); // on slots, an inspection waits for trials
    let mut new = task("wide", 1);
    new.spec.gpu_range = Some(vec![1, 2]);
    run.tell(Event::Command { command: Command::Submit { tasks: vec![new] } });
    let looked = |run: &Run| run.live(Purpose::Inspection).first().copied();
    while let Some(attempt) = looked(&run) {
        let inspection = Box::new(inspection(3 * GB, 12 * GB));
        run.say(attempt, RankReport::Inspected { inspection });
        run.gone(attempt, 0);
    }
    let wide = |run: &Run| run.trials().contains(&(1, 2));
    assert!(!wide(&run), "two ranks of a node hold 24 GB: {:?}", run.trials());
    let spec = Node::new("n3", 2, "a");
    run.tell(Event::NodeJoined { spec, host_memory_bytes: Some((48 * GB).into()) });
    assert!(wide(&run), "{:?}", run.trials());
}

#[test]
fn a_model_too_large_for_the_host_is_told_in_one_line_and_the_others_go_on() {
    let tasks = [("huge", 12), ("small", 2)];
    let mut run = Run::of(Mode::Orchestrate, DeviceKind::Cuda, 10, &tasks, 48);
    assert_eq!(run.trials(), [(1, 1)]);
    let Some(TaskEnd::Failed { error, .. }) = run.end_of(0) else { panic!("it can't be trained") };
    assert_eq!(
        error,
        "no technique can run it; ddp×1: it needs at least 12.0 GB of host memory, and a node allows \
         10.0 GB (host_memory)"
    );
    let trial = run.live(Purpose::Trial)[0];
    run.measured(trial, 1);
    assert_eq!(run.end_of(1), None);
}

#[test]
fn a_trial_that_the_kernel_kills_for_host_memory_is_not_out_of_device_memory() {
    for kind in [FailureKind::HostMemory, FailureKind::Killed] {
        let mut run = Run::new(DeviceKind::Cuda, 10, &[("a", 6)], 24);
        let mut times = 0;
        while let Some(trial) = run.live(Purpose::Trial).first().copied() {
            times += 1;
            let error = "killed".to_owned();
            let traceback = String::new();
            run.say(trial, RankReport::Failed { kind, error, traceback });
            run.gone(trial, -9);
        }
        assert!(times > 1, "once may be a passing shortage");
        let strategy = Strategy { technique: "ddp".to_owned(), gpus: 1, knobs: Knobs::new() };
        let trial = run.engine.state().trial_of(TaskId(0), &strategy, "a").expect("it was tried");
        assert!(matches!(trial.outcome, Some(TrialOutcome::Failed { .. })), "{:?}", trial.outcome);
    }
}

#[test]
fn a_measured_task_does_not_wait_for_a_trial_that_lacks_host_memory_beside_training() {
    let slots = DeviceKind::Cpu;
    let mut run = Run::on((&[4], 1), Mode::Orchestrate, slots, 10, &[("long", 7)], 7);
    let trial = run.live(Purpose::Trial)[0];
    run.measured(trial, 1);
    run.plan(&[("long", 0)]);
    assert_eq!(run.training(), ["long"], "it takes 7 of 10 GB");
    let mut new = task("small", 1);
    new.spec.gpu_range = Some(vec![1, 2]);
    run.tell(Event::Command { command: Command::Submit { tasks: vec![new] } });
    let look = run.live(Purpose::Inspection)[0];
    let inspection = Box::new(inspection(GB, 2 * GB));
    run.say(look, RankReport::Inspected { inspection });
    run.gone(look, 0);
    assert_eq!(run.trials(), [(1, 1)], "two ranks take 4 GB");
    let trial = run.live(Purpose::Trial)[0];
    run.measured(trial, 1);
    while run.is_asked() {
        run.plan_asked(&[("long", 0), ("small", 1)]);
    }
    assert_eq!(run.training(), ["long", "small"]);
}

#[test]
fn a_node_that_joins_is_planned_if_an_idle_node_like_it_has_less_host_memory() {
    let tasks = [("long", 20), ("long too", 20)];
    let mut run = Run::on((&[2, 2], 1), Mode::Orchestrate, DeviceKind::Cuda, 100, &tasks, 80);
    run.judge(&tasks, Ruling::Hold);
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run.judge(&tasks, Ruling::GoOn);
    run.resume(|machines| {
        machines.host_memory_bytes = None;
        let each = [("n0".to_owned(), (24 * GB).into()), ("n1".to_owned(), (8 * GB).into())];
        machines.host_memory_by_node = BTreeMap::from(each);
    });
    run.plan_on(&[("long", 0, 0), ("long too", 0, 1)]);
    assert_eq!(run.training(), ["long"], "both take 40 GB");
    assert!(!run.is_asked());
    let joins = |name: &str, gb: u64| Event::NodeJoined {
        spec: Node::new(name, 2, "a"),
        host_memory_bytes: Some((gb * GB).into()),
    };
    run.tell(joins("small", 8));
    assert!(!run.is_asked(), "n1 is idle, too");
    run.tell(joins("large", 24));
    assert!(run.is_asked());
}
