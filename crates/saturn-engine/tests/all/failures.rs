//! How often attempts fail is learnt from what has failed, and tells how often to save.

use std::sync::Arc;

use saturn_core::{Knobs, Node, Placement, PlanStatus, Strategy};
use saturn_engine::{
    AttemptEnd, AttemptId, DeviceKind, FailureKind, Mode, NodeId, Place, PlanSource, Policy,
    Purpose, RankFailure, Record, RunConfig, RunPlan, State, TaskId, TaskSpec,
};

use crate::specs::spec;

const DAY_S: f64 = 86_400.0;

/// A run with a task, one attempt of which ends so each day.
fn run_of(ends: impl IntoIterator<Item = AttemptEnd>) -> State {
    let mut state = State::new(RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: Vec::new(),
        policy: Policy::default(),
    });
    let spec = TaskSpec { steps: Some(100), ..spec("a") };
    let (node, task) = (NodeId(0), TaskId(0));
    state.apply(
        &Record::NodeJoined { node, spec: Node::new("n", 1, "cpu"), host_memory_bytes: None },
        0.0,
    );
    state.apply(&Record::TaskAdded { task, spec }, 0.0);
    for (attempt, (end, day)) in (1..).map(AttemptId).zip(ends.into_iter().zip(1_u32..)) {
        let launched = Record::Launched {
            attempt,
            task,
            purpose: Purpose::Train,
            strategy: Strategy { technique: "ddp".to_owned(), gpus: 1, knobs: Knobs::new() },
            gang: vec![Placement { node: 0, devices: vec![0] }],
            until_step: None,
        };
        let now_s = f64::from(day) * DAY_S;
        state.apply(&launched, now_s);
        state.apply(&Record::Ended { attempt, end, step: 0, step_s: None }, now_s);
    }
    state
}

fn failed(kind: FailureKind) -> AttemptEnd {
    let (error, traceback) = ("x".to_owned(), String::new());
    AttemptEnd::Failed { failure: RankFailure { rank: 0, kind, error, traceback } }
}

/// Whether failures come as often as that.
fn is(state: &State, every_s: f64) -> bool {
    (state.failure_every_s() - every_s).abs() < 1e-6
}

#[test]
fn failures_are_as_frequent_as_they_were_and_once_a_day_before_any() {
    assert!(is(&run_of([]), DAY_S));
    let well = || [AttemptEnd::Finished, AttemptEnd::Stopped, AttemptEnd::Killed];
    assert!(is(&run_of(well()), 4.0 * DAY_S), "three days without a failure");
    let ends = [failed(FailureKind::Died), AttemptEnd::Lost, failed(FailureKind::Stalled)];
    assert!(is(&run_of(ends), DAY_S), "one on each of three days");
}

#[test]
fn what_is_the_tasks_own_fault_no_checkpoint_helps_against() {
    let ends = [FailureKind::OutOfMemory, FailureKind::Task].map(failed);
    assert!(is(&run_of(ends), 3.0 * DAY_S));
}

/// A task is in the second place of a planned switch, and loads a checkpoint from before the switch.
#[test]
fn places_before_a_damaged_checkpoint_are_planned_anew() {
    let mut state = run_of([]);
    let (task, strategy) =
        (TaskId(0), Strategy { technique: "ddp".to_owned(), gpus: 1, knobs: Knobs::new() });
    let place = |until_step, start_s| Place {
        task,
        strategy: Arc::new(strategy.clone()),
        gang: vec![Placement { node: 0, devices: vec![0] }].into(),
        share: 0.5,
        until_step,
        is_estimate: false,
        start_s,
        end_s: start_s + 50.0,
    };
    let plan = RunPlan {
        at_s: 0.0,
        source: PlanSource::Solver,
        status: PlanStatus::Feasible,
        makespan_s: 100.0,
        lower_bound_s: 0.0,
        solve_s: 0.0,
        current_practice_s: None,
        practice_is_estimate: false,
        instead_of_s: None,
        places: vec![place(Some(50), 0.0), place(None, 50.0)],
    };
    state.apply(&Record::Planned { plan: Arc::new(plan) }, 0.0);
    let launched = |attempt, until_step| Record::Launched {
        attempt,
        task,
        purpose: Purpose::Train,
        strategy: strategy.clone(),
        gang: vec![Placement { node: 0, devices: vec![0] }],
        until_step,
    };
    let first = AttemptId(1);
    state.apply(&launched(first, Some(50)), 0.0);
    let (end, step_s) = (AttemptEnd::Stopped, None);
    state.apply(&Record::Ended { attempt: first, end, step: 50, step_s }, 50.0);
    assert_eq!(state.open_places().count(), 1);
    for (attempt, step, num_open) in [(2, 50, 1), (3, 40, 0)] {
        let attempt = AttemptId(attempt);
        state.apply(&launched(attempt, None), 60.0);
        state.apply(&Record::Started { attempt, step, setup_s: 1.0 }, 61.0);
        assert_eq!(state.open_places().count(), num_open, "from step {step}");
        if num_open > 0 {
            // Its places stay open while it waits for the next launch.
            continue;
        }
        assert_eq!(state.task(task).checkpoint_step, 40);
    }
}
