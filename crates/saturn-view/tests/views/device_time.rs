//! Tests of where the time of devices went. That all uses together are devices times makespan is a
//! test of the simulator (`saturn-sim`: `simulations/device_time.rs`).

use std::collections::BTreeMap;

use saturn_core::Node;
use saturn_engine::{Judgement, Record, Ruling, TaskId};
use saturn_view::{DeviceUse, Report};

use crate::scripted::{Script, config, task};

/// The uses of the devices so far, each with its device-seconds.
fn uses(script: &Script) -> Vec<(DeviceUse, f64)> {
    let report = Report::build(&script.state, &script.history, "run", Vec::new());
    report.device_time.uses.iter().map(|one| (one.what, one.seconds)).collect()
}

#[test]
fn a_device_that_a_stopper_leaves_idle_is_told_to_be_idle_for_held_tasks() {
    let nodes = [Node::new("n0", 2, "cpu")];
    let tasks = [task("a", 400, "a"), task("b", 400, "a")];
    let mut script = Script::of(config(), &nodes, &tasks);
    assert_eq!(uses(&script), []);
    let held = Judgement {
        step: 0,
        values: BTreeMap::new(),
        ruling: Some(Ruling::Hold),
        reason: "not among the best".to_owned(),
    };
    for one in [TaskId(0), TaskId(1)] {
        script.tell(3.0, Record::Judged { task: one, judgement: held.clone() });
    }
    script.tell(13.0, Record::Paused { task: TaskId(0) });
    script.tell(14.0, Record::Noted { task: None, text: "on".to_owned() });
    // Until 3 s, both waited to be measured, and no trial is wanted before the inspection.
    assert_eq!(uses(&script), [(DeviceUse::Held, 22.0), (DeviceUse::WaitsInspection, 6.0)],);
}

#[test]
fn the_start_of_the_driver_counts_for_each_device() {
    let nodes = [Node::new("n0", 2, "cpu")];
    let mut script = Script::of(config(), &nodes, &[task("a", 400, "a")]);
    script.tell(0.0, Record::DriverStarted { startup_s: 7.0 });
    assert_eq!(uses(&script), [(DeviceUse::StartsUp, 14.0)]);
    let report = Report::build(&script.state, &script.history, "run", Vec::new());
    let late: Vec<_> = report.device_time.late.iter().map(|late| late.trained_s).collect();
    assert_eq!(late, [None, None], "7 s without a step are told");
}
