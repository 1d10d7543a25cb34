//! What running tasks show of their strategies, and what plans make of it.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::num::NonZeroU64;

use saturn_core::{
    Assignment, Cluster, Knobs, Node, Origin, Placement, Plan, PlanStatus, Strategy, Trial,
    TrialOutcome, WHOLE,
};
use saturn_engine::{
    Action, Allowed, AttemptId, Command, Decision, DeviceKind, Engine, Event, Level, Mode, NewTask,
    Policy, RankReport, Record, RunConfig, SolveAnswer, SolveOrder, TaskId, TaskSpec, TechniqueRef,
    Wishes,
};

const STEPS: u64 = 1000;
const INTERVAL_S: f64 = 100.0;
/// Launch, and what the first step takes beyond the others, by the trials.
const SETUP_S: f64 = 2.0;
const WARMUP_S: f64 = 6.0;
/// Seconds a step by the trials, on one device.
const TRIED: [(&str, f64); 2] = [("ddp", 1.0), ("offload", 3.0)];

fn trial((technique, step_s): (&str, f64), variation: f64) -> Trial {
    Trial {
        task: "t".to_owned(),
        profile_key: None,
        gpu_type: None,
        device_memory_bytes: None,
        strategy: Strategy { technique: technique.to_owned(), gpus: 1, knobs: Knobs::new() },
        outcome: TrialOutcome::Measured {
            step_s,
            setup_s: SETUP_S,
            checkpoint_s: Some(0.0),
            peak_memory_bytes: 1,
            timed_steps: 9,
            relative_error: Some(0.03),
            warmup_s: Some(WARMUP_S),
            variation: Some(variation),
            batches_per_epoch: None,
            evaluation_s: None,
        },
        origin: Origin::default(),
    }
}

fn task(name: &str, variation: f64) -> NewTask {
    let spec = TaskSpec {
        name: name.to_owned(),
        dir: format!("tasks/{name}"),
        steps: Some(STEPS),
        epochs: None,
        batches_a_step: NonZeroU64::MIN,
        can_resume: true,
        gpu_range: Some(vec![1]),
        profile_key: "k".to_owned(),
        measured: TRIED.map(|one| trial(one, variation)).to_vec(),
        wishes: Wishes::default(),
        evaluation: None,
        allowed: Allowed::default(),
        parameters: saturn_core::Knobs::new(),
        goal: None,
    };
    NewTask { spec, after: Vec::new() }
}

fn order(decision: &Decision) -> Option<(u64, &SolveOrder)> {
    decision.actions.iter().find_map(|action| match action {
        Action::Solve { request, order } => Some((*request, &**order)),
        _ => None,
    })
}

/// Seconds of a task by a technique, in the problem that was asked about.
fn runtime_s(order: &SolveOrder, task: usize, technique: &str) -> f64 {
    let mut all = order.problem.tasks[task].strategies.iter();
    all.find(|one| *one.technique == *technique).expect("it was measured").runtime_s
}

/// One after another on the only device, by the first technique.
fn answer((request, order): (u64, &SolveOrder)) -> Event {
    let mut now_s = 0.0;
    let tasks = order.problem.tasks.iter().enumerate();
    let assignments = tasks.map(|(task, spec)| {
        let start_s = now_s;
        now_s += spec.strategies[0].runtime_s;
        let gang = vec![Placement { node: 0, devices: vec![0] }];
        Assignment { task, strategy: 0, gang, share: WHOLE, start_s, end_s: now_s }
    });
    let plan = Plan::of(&order.problem, order.objective, assignments.collect());
    let plan = Plan { status: PlanStatus::Feasible, ..plan };
    let answer = SolveAnswer { plan, current_practice_s: None, optimistic: None };
    Event::Solved { request, answer: Ok(answer) }
}

/// Two tasks of one group, whose steps differ by `variation`; the first trains on the only device,
/// its steps `step_s` each but for the first. What the engine decides at the first interval, and the engine then.
fn at_the_interval(step_s: f64, variation: f64) -> (Decision, Engine) {
    let technique = |name: &str| TechniqueRef {
        name: name.to_owned(),
        level: Level::Managed,
        import: None,
        pickle: None,
    };
    let mut engine = Engine::new(RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: TRIED.iter().map(|(name, _)| technique(name)).collect(),
        policy: Policy { interval_s: INTERVAL_S, ..Policy::default() },
    });
    engine.handle(Event::Begin { cluster: Cluster { nodes: vec![Node::new("n", 1, "cpu")] } }, 0.0);
    let tasks = vec![task("a", variation), task("b", variation)];
    let asked = engine.handle(Event::Command { command: Command::Submit { tasks } }, 0.0);
    let (request, first) = order(&asked).expect("all is measured");
    for (technique, tried_s) in TRIED {
        let expected_s = SETUP_S + WARMUP_S + STEPS as f64 * tried_s;
        assert!((runtime_s(first, 0, technique) - expected_s).abs() < 1e-6, "once a launch");
    }
    let planned = engine.handle(answer((request, first)), 1.0);
    let launch = |action: &Action| match action {
        Action::Launch { attempt, .. } => Some(*attempt),
        _ => None,
    };
    let attempt: AttemptId = planned.actions.iter().find_map(launch).expect("it trains");
    let mut say = |report: RankReport, now_s: f64| {
        engine.handle(Event::Reported { attempt, rank: 0, report }, now_s)
    };
    say(RankReport::Started { step: 0, setup_s: SETUP_S }, 1.0 + SETUP_S);
    // The first step takes six times as long as a trial said of any.
    let warm_s = 1.0 + SETUP_S + 6.0;
    for step in 1..=30 {
        let now_s = warm_s + (step - 1) as f64 * step_s;
        let none = say(RankReport::Progress { step, loss: None, step_s: None }, now_s);
        assert!(none.records.is_empty(), "nothing is noted at every word");
    }
    (engine.handle(Event::Tick, 1.0 + INTERVAL_S), engine)
}

fn noted(decision: &Decision) -> Vec<(String, f64)> {
    let observed = |record: &Record| match record {
        Record::Observed { strategy, step_s, .. } => Some((strategy.technique.clone(), *step_s)),
        _ => None,
    };
    decision.records.iter().filter_map(observed).collect()
}

fn strategy(technique: &str) -> Strategy {
    Strategy { technique: technique.to_owned(), gpus: 1, knobs: Knobs::new() }
}

#[test]
fn what_trains_otherwise_than_planned_is_noted_before_the_next_plan_for_all_of_its_group() {
    let (decision, engine) = at_the_interval(1.5, 0.0);
    let [(technique, step_s)] = &noted(&decision)[..] else {
        panic!("one strategy trains: {:?}", decision.records)
    };
    assert_eq!(technique, "ddp");
    assert!((step_s - 1.5).abs() < 1e-9, "its first step counts as launching: {step_s}");
    let (_, order) = order(&decision).expect("an interval is over");
    let waiting_s = runtime_s(order, 1, "ddp");
    let expected_s = SETUP_S + WARMUP_S + STEPS as f64 * 1.5;
    assert!((waiting_s - expected_s).abs() < 1e-6, "{waiting_s}");
    // What was not seen moves with it, but for what may be a trial's noise.
    let other_s = engine.state().step_s(TaskId(1), &strategy("offload"), "cpu").expect("measured");
    assert!(4.2 < other_s && other_s < 4.5, "{other_s}");
}

#[test]
fn what_trains_as_planned_is_no_news() {
    let (decision, engine) = at_the_interval(1.01, 0.0);
    assert_eq!(noted(&decision), []);
    let other_s = engine.state().step_s(TaskId(1), &strategy("offload"), "cpu");
    assert_eq!(other_s, Some(3.0));
}

#[test]
fn a_departure_within_a_trials_noise_corrects_its_own_strategy_alone() {
    let (decision, engine) = at_the_interval(1.04, 0.0);
    assert_eq!(noted(&decision).len(), 1);
    let step_s = |technique| engine.state().step_s(TaskId(1), &strategy(technique), "cpu");
    assert!((step_s("ddp").expect("measured") - 1.04).abs() < 1e-9);
    assert!((step_s("offload").expect("measured") - 3.0).abs() < 0.03);
}

#[test]
fn few_steps_that_differ_much_from_one_another_are_believed_in_part() {
    let step_s = |variation: f64| {
        let (decision, _) = at_the_interval(1.5, variation);
        noted(&decision)[0].1
    };
    assert!((step_s(0.0) - 1.5).abs() < 1e-9);
    let (alike, unlike) = (step_s(0.1), step_s(1.0));
    assert!(1.45 < alike && alike < 1.5, "{alike}");
    assert!(1.05 < unlike && unlike < 1.2, "{unlike}");
}
