//! A task that can't resume from a checkpoint trains where it began, even if another place is better.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{
    Assignment, Cluster, Knobs, Node, Origin, Placement, Plan, PlanStatus, Strategy, Trial,
    TrialOutcome, WHOLE,
};
use saturn_engine::{
    Action, Allowed, AttemptId, Command, Decision, DeviceKind, Engine, Event, FailureKind, Level,
    Mode, NewTask, Policy, RankReport, Record, RunConfig, SolveAnswer, SolveOrder, StopReason,
    TaskEnd, TaskSpec, TechniqueRef, outlook,
};

use crate::specs::spec;

pub(crate) fn config() -> RunConfig {
    let level = Level::BlackBox;
    let technique = TechniqueRef { name: "script".into(), level, import: None, pickle: None };
    RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: vec![technique],
        policy: Policy { interval_s: 50.0, ..Policy::default() },
    }
}

/// A script of 1000 s on one device, half of that on two.
pub(crate) fn script(name: &str, can_resume: bool, is_measured: bool) -> NewTask {
    let trial = |gpus: u32| Trial {
        task: name.to_owned(),
        profile_key: None,
        gpu_type: None,
        device_memory_bytes: None,
        strategy: Strategy { technique: "script".into(), gpus, knobs: Knobs::new() },
        outcome: Some(TrialOutcome::Measured {
            step_s: 1.0 / f64::from(gpus),
            setup_s: 0.0,
            checkpoint_s: Some(0.0),
            peak_memory_bytes: 1,
            timed_steps: 3,
            relative_error: None,
            warmup_s: None,
            variation: None,
            batches_per_epoch: None,
            evaluation_s: None,
        }),
        trained: None,
        origin: Origin::default(),
    };
    let spec = TaskSpec {
        can_resume,
        gpu_range: Some(vec![1, 2]),
        allowed: Allowed { techniques: Some(vec!["script".into()]), ..Allowed::default() },
        measured: if is_measured { vec![trial(1), trial(2)] } else { Vec::new() },
        ..spec(name)
    };
    NewTask { spec, after: Vec::new() }
}

pub(crate) fn submit(tasks: Vec<NewTask>) -> Event {
    Event::Command { command: Command::Submit { tasks } }
}

/// All tasks of the problem side by side from now on, each by its strategy on so many devices.
fn side_by_side(order: &SolveOrder, gpus: u32) -> SolveAnswer {
    let tasks = (0..).zip(order.problem.tasks.iter().enumerate());
    let assignments = tasks.map(|(place, (task, of_task))| {
        let at = of_task.strategies.iter().position(|one| one.gpus == gpus);
        let strategy = at.expect("it was measured");
        let gang =
            vec![Placement { node: 0, devices: (place * gpus..(place + 1) * gpus).collect() }];
        let end_s = of_task.strategies[strategy].runtime_s;
        Assignment { task, strategy, gang, share: WHOLE, start_s: 0.0, end_s }
    });
    let plan = Plan::of(&order.problem, order.objective, assignments.collect());
    let plan = Plan { status: PlanStatus::Feasible, ..plan };
    SolveAnswer { plan, current_practice_s: None, practice_is_estimate: false, optimistic: None }
}

pub(crate) fn asked(decision: &Decision) -> Option<(u64, SolveOrder)> {
    decision.actions.iter().find_map(|action| match action {
        Action::Solve { request, order } => Some((*request, SolveOrder::clone(order))),
        _ => None,
    })
}

fn launched(decision: &Decision) -> Option<AttemptId> {
    decision.actions.iter().find_map(|action| match action {
        Action::Launch { attempt, .. } => Some(*attempt),
        _ => None,
    })
}

/// A script trains on one device of four when another comes; the best is then to give each of them
/// two. What becomes of that.
fn offered_more(can_resume: bool) -> (SolveOrder, Decision) {
    let mut engine = Engine::new(config());
    engine.handle(Event::Begin { cluster: Cluster { nodes: vec![Node::new("n", 4, "cpu")] } }, 0.0);
    let decision = engine.handle(submit(vec![script("a", can_resume, true)]), 0.0);
    let (request, order) = asked(&decision).expect("a plan is asked for");
    let answer = Ok(side_by_side(&order, 1));
    let attempt = launched(&engine.handle(Event::Solved { request, answer }, 0.0));
    let attempt = attempt.expect("it starts");
    let report = |report| Event::Reported { attempt, rank: 0, report };
    engine.handle(report(RankReport::Started { step: 0, setup_s: 0.0 }), 1.0);
    let progress = RankReport::Progress { step: 9, loss: None, step_s: Some(1.0) };
    engine.handle(report(progress), 10.0);
    let mut decision = engine.handle(submit(vec![script("b", true, true)]), 100.0);
    for tick in 0..100 {
        if let Some((request, order)) = asked(&decision) {
            let answer = Ok(side_by_side(&order, 2));
            return (
                order,
                engine.handle(Event::Solved { request, answer }, 101.0 + f64::from(tick)),
            );
        }
        decision = engine.handle(Event::Tick, 101.0 + f64::from(tick));
    }
    panic!("a plan is asked for with the new task");
}

#[test]
fn a_better_plan_moves_what_can_go_on_and_nothing_else() {
    let is_stopped = |decision: &Decision| {
        let stops =
            |one: &Record| matches!(one, Record::Stopping { reason: StopReason::Replan, .. });
        decision.records.iter().any(stops)
    };
    for can_resume in [true, false] {
        let (order, decision) = offered_more(can_resume);
        let running = order.problem.tasks[0].running.as_ref().expect("it trains");
        assert_eq!(running.movable, can_resume);
        assert_eq!(is_stopped(&decision), can_resume);
    }
}

/// Whether a script on one device is stopped for a node with two, on which it would take half as
/// long. It has so many seconds left when that node comes back.
fn is_moved_with_left(left_s: u64) -> bool {
    let mut engine = Engine::new(config());
    let nodes = vec![Node::new("n", 1, "cpu"), Node::new("m", 2, "cpu")];
    engine.handle(Event::Begin { cluster: Cluster { nodes } }, 0.0);
    let decision = engine.handle(submit(vec![script("a", true, true)]), 0.0);
    let (request, order) = asked(&decision).expect("a plan is asked for");
    let answer = Ok(side_by_side(&order, 1));
    let attempt = launched(&engine.handle(Event::Solved { request, answer }, 0.0));
    let attempt = attempt.expect("it starts");
    let (name, reason) = ("m".to_owned(), "it rests".to_owned());
    engine.handle(Event::NodeLeft { name, reason }, 0.0);
    let report = |report| Event::Reported { attempt, rank: 0, report };
    engine.handle(report(RankReport::Started { step: 0, setup_s: 0.0 }), 0.0);
    let step = 1000 - left_s;
    let now_s = step as f64;
    let progress = RankReport::Progress { step, loss: None, step_s: Some(1.0) };
    engine.handle(report(progress), now_s);
    let wider = Event::NodeJoined { spec: Node::new("m", 2, "cpu"), host_memory_bytes: None };
    let mut decision = engine.handle(wider, now_s);
    for tick in 0..100 {
        let now_s = now_s + 0.01 * f64::from(tick);
        if let Some((request, order)) = asked(&decision) {
            let mut answer = side_by_side(&order, 2);
            answer.plan.assignments[0].gang[0].node = 1;
            let answer = Ok(answer);
            decision = engine.handle(Event::Solved { request, answer }, now_s);
            let stops = |one: &Record| matches!(one, Record::Stopping { .. });
            return decision.records.iter().any(stops);
        }
        decision = engine.handle(Event::Tick, now_s);
    }
    panic!("a plan is asked for with the new node");
}

#[test]
fn a_running_task_is_not_stopped_for_a_few_seconds() {
    assert!(is_moved_with_left(100), "50 s are worth it");
    assert!(!is_moved_with_left(8), "4 s are not, although they are half of what is left");
}

#[test]
fn what_would_fail_again_is_not_tried_again() {
    let mut engine = Engine::new(config());
    engine.handle(Event::Begin { cluster: Cluster { nodes: vec![Node::new("n", 1, "cpu")] } }, 0.0);
    let decision = engine.handle(submit(vec![script("a", true, true)]), 0.0);
    let (request, order) = asked(&decision).expect("a plan is asked for");
    let answer = Ok(side_by_side(&order, 1));
    let attempt = launched(&engine.handle(Event::Solved { request, answer }, 0.0));
    let attempt = attempt.expect("it starts");
    let report = |report| Event::Reported { attempt, rank: 0, report };
    engine.handle(report(RankReport::Started { step: 0, setup_s: 0.0 }), 1.0);
    engine.handle(report(RankReport::Progress { step: 9, loss: None, step_s: None }), 10.0);
    let (kind, error) = (FailureKind::Certain, "exited after step 9 of 1000".to_owned());
    let failed = RankReport::Failed { kind, error: error.clone(), traceback: String::new() };
    engine.handle(report(failed), 10.0);
    let last_words = String::new();
    let decision = engine.handle(Event::RankExited { attempt, rank: 0, code: 1, last_words }, 10.0);
    let ends = |record: &Record| match record {
        Record::TaskEnded { end: TaskEnd::Failed { error, .. }, .. } => Some(error.clone()),
        _ => None,
    };
    assert_eq!(decision.records.iter().find_map(ends), Some(error));
}

#[test]
fn an_outlook_has_what_is_measured_and_names_the_rest() {
    let mut engine = Engine::new(config());
    engine.handle(Event::Begin { cluster: Cluster { nodes: vec![Node::new("n", 2, "cpu")] } }, 0.0);
    engine.handle(submit(vec![script("known", true, true)]), 0.0);
    engine.handle(submit(vec![script("unknown", true, false)]), 0.0);
    let found = outlook(engine.state());
    let [task] = found.problem.tasks.as_slice() else { panic!("{found:?}") };
    let times: Vec<f64> = task.strategies.iter().map(|one| one.runtime_s).collect();
    assert_eq!((task.name.as_str(), times), ("known", vec![1000.0, 500.0]));
    let names: Vec<&str> = found.unknown.iter().map(|one| engine.state().name(*one)).collect();
    assert_eq!(names, ["unknown"]);
}
