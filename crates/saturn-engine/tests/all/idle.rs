//! What could train on an idle device does not wait for a solve that takes longer than a wrong
//! start costs.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{
    Assignment, Cluster, Knobs, Node, Origin, Placement, Plan, PlanStatus, Reason, SolveEnd,
    Strategy, Trial, TrialOutcome, WHOLE,
};
use saturn_engine::{
    Action, Command, Decision, DeviceKind, Engine, Event, Level, Mode, NewTask, PlanSource, Policy,
    Record, RunConfig, SolveAnswer, SolveOrder, TaskId, TaskSpec, TechniqueRef,
};

use crate::specs::spec;

/// Seconds that each solve takes, and rests after it.
const SOLVE_S: f64 = 5.0;
const REST_S: f64 = 10.0 * SOLVE_S;

pub(crate) fn config() -> RunConfig {
    let technique =
        TechniqueRef { name: "ddp".into(), level: Level::Managed, import: None, pickle: None };
    RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: vec![technique],
        policy: Policy { max_nodes: 3, ..Policy::default() },
    }
}

/// A task that is measured already: an hour on one device, and `setup_s` to launch.
fn submit(name: &str, setup_s: f64) -> Event {
    submit_wide(name, setup_s, 1, None)
}

/// The same on `gpus` devices, measured where the largest node had `node_gpus` and could not hold
/// them.
fn submit_wide(name: &str, setup_s: f64, gpus: u32, node_gpus: Option<u32>) -> Event {
    submit_long(name, 3600, setup_s, gpus, node_gpus)
}

/// The same of so many seconds.
pub(crate) fn submit_long(
    name: &str,
    steps: u64,
    setup_s: f64,
    gpus: u32,
    node_gpus: Option<u32>,
) -> Event {
    let outcome = TrialOutcome::Measured {
        step_s: 1.0,
        setup_s,
        checkpoint_s: Some(0.0),
        peak_memory_bytes: 1,
        timed_steps: 3,
        relative_error: None,
        warmup_s: None,
        variation: None,
        batches_per_epoch: None,
        evaluation_s: None,
    };
    let strategy = Strategy { technique: "ddp".into(), gpus, knobs: Knobs::new() };
    let trial = Trial {
        task: name.to_owned(),
        profile_key: None,
        gpu_type: None,
        device_memory_bytes: None,
        strategy,
        outcome: Some(outcome),
        trained: None,
        origin: Origin { node_gpus, ..Origin::default() },
    };
    let spec = TaskSpec {
        steps: Some(steps),
        gpu_range: Some(vec![gpus]),
        measured: vec![trial],
        ..spec(name)
    };
    let tasks = vec![NewTask { spec, after: Vec::new() }];
    Event::Command { command: Command::Submit { tasks } }
}

/// Each task on a device of its own, from now on.
fn answer(request: u64, order: &SolveOrder) -> Event {
    let tasks = order.problem.tasks.iter().enumerate();
    let assignments = tasks.map(|(task, spec)| Assignment {
        task,
        strategy: 0,
        gang: vec![Placement { node: 0, devices: vec![u32::try_from(task).expect("few")] }],
        share: WHOLE,
        start_s: 0.0,
        end_s: spec.strategies[0].runtime_s,
    });
    let plan = Plan::of(&order.problem, order.objective, assignments.collect());
    let plan = Plan { status: PlanStatus::Feasible, solve_s: SOLVE_S, ..plan };
    let answer = SolveAnswer {
        plan,
        current_practice_s: None,
        practice_is_estimate: false,
        optimistic: None,
    };
    Event::Solved { request, answer: Ok(answer) }
}

pub(crate) fn order(decision: &Decision) -> Option<Event> {
    decision.actions.iter().find_map(|action| match action {
        Action::Solve { request, order } => Some(answer(*request, order)),
        _ => None,
    })
}

fn launched(decision: &Decision) -> Vec<TaskId> {
    let launch = |action: &Action| match action {
        Action::Launch { task, .. } => Some(*task),
        _ => None,
    };
    decision.actions.iter().filter_map(launch).collect()
}

fn source(decision: &Decision) -> Option<&PlanSource> {
    decision.records.iter().find_map(|record| match record {
        Record::Planned { plan } => Some(&plan.source),
        _ => None,
    })
}

/// One of two devices is busy from `SOLVE_S` on.
fn half_busy(setup_s: f64) -> Engine {
    busy_on(vec![Node::new("n0", 2, "cpu")], setup_s)
}

/// A device of the first of these nodes is busy from `SOLVE_S` on.
fn busy_on(nodes: Vec<Node>, setup_s: f64) -> Engine {
    let mut engine = Engine::new(config());
    let cluster = Cluster { nodes };
    engine.handle(Event::Begin { cluster }, 0.0);
    let first = engine.handle(submit("t0", setup_s), 0.0);
    let solved = order(&first).expect("a plan is asked for");
    assert_eq!(launched(&first), [], "the first plan is worth waiting for");
    let planned = engine.handle(solved, SOLVE_S);
    assert_eq!(launched(&planned), [TaskId(0)]);
    engine
}

/// A run of one task of so many seconds, and the time limit of its first solve.
fn first_solve(seconds: u64) -> (Engine, f64) {
    let mut engine = Engine::new(config());
    engine
        .handle(Event::Begin { cluster: Cluster { nodes: vec![Node::new("n0", 2, "cpu")] } }, 0.0);
    let decision = engine.handle(submit_long("t0", seconds, 1.0, 1, None), 0.0);
    assert_eq!(launched(&decision), [], "the first plan is waited for");
    let limit_s = decision.actions.iter().find_map(|action| match action {
        Action::Solve { order, .. } => Some(order.time_limit_s),
        _ => None,
    });
    (engine, limit_s.expect("a plan is asked for"))
}

#[test]
fn a_solve_may_take_a_hundredth_of_what_remains() {
    let most_s = Policy::default().solver_time_limit_s;
    assert!((first_solve(3600).1 - most_s).abs() < 1e-9);
    let of_a_minute_s = first_solve(60).1;
    assert!((0.6..0.7).contains(&of_a_minute_s), "{of_a_minute_s}");
    let of_a_second_s = first_solve(1).1;
    assert!((0.1..0.2).contains(&of_a_second_s), "a plan takes a moment: {of_a_second_s}");
}

#[test]
fn the_first_answer_is_waited_for_no_longer_than_the_solver_was_given() {
    let (mut engine, limit_s) = first_solve(60);
    let mut now_s = 0.0;
    while engine.state().running().next().is_none() {
        now_s = engine.next_tick_s().expect("something is waited for");
        assert!(now_s < 60.0, "it starts");
        engine.handle(Event::Tick, now_s);
    }
    // The plan, the hopeful plan, and as long as a wrong start costs.
    assert!((now_s - (2.0 * limit_s + 1.0)).abs() < 1e-6, "{now_s}");
}

#[test]
fn a_task_starts_at_once_while_the_solver_rests() {
    let mut engine = half_busy(1.0);
    let decision = engine.handle(submit("t1", 1.0), 20.0);
    assert_eq!(order(&decision), None, "the solver rests");
    assert_eq!(launched(&decision), [TaskId(1)]);
    assert_eq!(source(&decision), Some(&PlanSource::Extended { reason: None }));
    let places = &engine.state().plan.as_ref().expect("it was adopted").places;
    assert_eq!(places.iter().map(|place| place.task).collect::<Vec<_>>(), [TaskId(0), TaskId(1)]);
    // The solver may better it later.
    let later = engine.handle(Event::Tick, SOLVE_S + REST_S);
    assert!(order(&later).is_some());
}

#[test]
fn a_task_starts_at_its_release_while_the_solver_rests() {
    let mut engine = half_busy(1.0);
    let mut later = submit("t1", 1.0);
    let Event::Command { command: Command::Submit { tasks } } = &mut later else {
        panic!("it is a submission")
    };
    tasks[0].spec.wishes.release_s = 30.0;
    assert_eq!(launched(&engine.handle(later, 20.0)), []);
    let mut now_s = 20.0;
    while now_s < 30.0 {
        now_s = engine.next_tick_s().expect("its release is waited for").max(now_s);
        let decision = engine.handle(Event::Tick, now_s);
        let expected: &[TaskId] = if now_s < 30.0 { &[] } else { &[TaskId(1)] };
        assert_eq!(launched(&decision), expected, "at {now_s} s");
    }
    assert!(now_s < 30.1, "{now_s}");
}

#[test]
fn a_task_starts_at_once_where_a_solve_takes_longer_than_a_wrong_start_costs() {
    let mut engine = half_busy(1.0);
    let decision = engine.handle(submit("t1", 1.0), 100.0);
    assert!(order(&decision).is_some());
    assert_eq!(launched(&decision), [TaskId(1)]);
}

#[test]
fn each_answer_is_on_record_with_the_time_of_its_question() {
    let mut engine = half_busy(1.0);
    let solved = |decision: &Decision| match decision.records.first() {
        Some(Record::Solved { asked_s, solve_s }) => Some((*asked_s, *solve_s)),
        _ => None,
    };
    let asked = engine.handle(submit("t1", 1.0), 100.0);
    let answered = engine.handle(order(&asked).expect("a plan is asked for"), 107.0);
    assert_eq!(solved(&answered), Some((100.0, Some(SOLVE_S))));
    // The next fails.
    let asked = engine.handle(submit("t2", 1.0), 1000.0);
    let Some(Event::Solved { request, .. }) = order(&asked) else { panic!("a plan is asked for") };
    let failed = Event::Solved { request, answer: Err("it panicked".to_owned()) };
    let answered = engine.handle(failed, 1003.0);
    assert_eq!(solved(&answered), Some((1000.0, None)));
}

#[test]
fn a_solver_without_a_plan_is_quoted_on_how_sure_it_is_that_there_is_none() {
    let told = |status: PlanStatus, ended: SolveEnd, reasons: &[&str]| {
        let mut engine = half_busy(1.0);
        let asked = engine.handle(submit("t1", 1.0), 100.0);
        let Some(Event::Solved { request, answer: Ok(answer) }) = order(&asked) else {
            panic!("a plan is asked for")
        };
        let reasons = reasons.iter().map(|reason| Reason::unproven(None, *reason)).collect();
        let none = Plan { status, ended, reasons, ..Plan::none(answer.plan.objective) };
        let answer = Ok(SolveAnswer { plan: none, ..answer });
        let answered = engine.handle(Event::Solved { request, answer }, 105.0);
        let reason = |record: &Record| match record {
            Record::NotSolved { reason } => Some(reason.clone()),
            _ => None,
        };
        answered.records.iter().find_map(reason).expect("it is on record")
    };
    let why = ["it is late", "so is another"];
    assert_eq!(
        told(PlanStatus::Infeasible, SolveEnd::Complete, &why),
        "there is no plan: it is late; so is another"
    );
    assert_eq!(
        told(PlanStatus::TimedOut, SolveEnd::Complete, &why),
        "the solver found no plan: it is late; so is another"
    );
    assert_eq!(told(PlanStatus::TimedOut, SolveEnd::Complete, &[]), "the solver found no plan");
    assert_eq!(
        told(PlanStatus::TimedOut, SolveEnd::Limit, &why),
        "the solver ran out of time before it found a plan"
    );
}

#[test]
fn a_short_solve_is_waited_for_and_no_longer_than_a_wrong_start_costs() {
    let mut engine = half_busy(60.0);
    let decision = engine.handle(submit("t1", 60.0), 100.0);
    let solved = order(&decision).expect("a plan is asked for");
    assert_eq!(launched(&decision), []);
    let planned = engine.handle(solved, 100.0 + SOLVE_S);
    assert_eq!(launched(&planned), [TaskId(1)]);

    let mut engine = half_busy(60.0);
    engine.handle(submit("t1", 60.0), 100.0);
    let tick_s = engine.next_tick_s().expect("it waits");
    assert!(tick_s <= 160.0, "{tick_s}");
    assert_eq!(launched(&engine.handle(Event::Tick, 159.0)), []);
    assert_eq!(launched(&engine.handle(Event::Tick, 160.0)), [TaskId(1)]);
}

#[test]
fn a_task_that_an_idle_device_can_start_does_not_wait_behind_a_wider_task() {
    let mut engine = half_busy(1.0);
    let wide = engine.handle(submit_wide("t1", 1.0, 2, None), 20.0);
    assert_eq!(source(&wide), None, "one device is idle");
    let narrow = engine.handle(submit("t2", 1.0), 21.0);
    assert_eq!(launched(&narrow), [TaskId(2)]);
    let places = &engine.state().plan.as_ref().expect("it was adopted").places;
    let order: Vec<TaskId> = places.iter().map(|place| place.task).collect();
    assert_eq!(order, [TaskId(0), TaskId(2), TaskId(1)], "the wide task has a place, too");
}

#[test]
fn what_no_idle_device_can_start_waits_for_the_solver() {
    let mut engine = half_busy(1.0);
    engine.handle(submit("t1", 1.0), 20.0);
    let decision = engine.handle(submit("t2", 1.0), 30.0);
    assert_eq!(source(&decision), None, "both devices are busy");
}

#[test]
fn a_node_like_an_idle_one_is_no_reason_to_solve_again() {
    let asks = |gpus| {
        let nodes = vec![Node::new("n0", 2, "cpu"), Node::new("n1", 2, "cpu")];
        let mut engine = busy_on(nodes, 1.0);
        engine
            .handle(
                Event::NodeJoined { spec: Node::new("n2", gpus, "cpu"), host_memory_bytes: None },
                100.0,
            )
            .actions
            .len()
    };
    assert_eq!(asks(2), 0, "the solver left one like it idle");
    assert_eq!(asks(4), 1, "it is wider than any");
}

#[test]
fn a_task_that_needs_several_nodes_is_planned_when_one_more_joins_an_idle_one() {
    let nodes = ["n0", "n1", "n2"].map(|name| Node::new(name, 2, "cpu"));
    let mut engine = busy_on(nodes.to_vec(), 1.0);
    let gone = Event::NodeLeft { name: "n2".to_owned(), reason: String::new() };
    engine.handle(gone, 100.0);
    assert_eq!(order(&engine.handle(submit_wide("t1", 1.0, 6, Some(2)), 110.0)), None);
    let back =
        engine.handle(Event::NodeJoined { spec: nodes[2].clone(), host_memory_bytes: None }, 200.0);
    let problem = back.actions.iter().find_map(|action| match action {
        Action::Solve { order, .. } => Some(&order.problem),
        _ => None,
    });
    let names = problem.expect("a plan is asked for").tasks.iter().map(|task| task.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["t0", "t1"], "though n1 is idle and like n2");
}

#[test]
fn only_a_task_that_loses_its_place_is_planned_anew_when_a_node_goes() {
    let nodes = vec![Node::new("n0", 2, "cpu"), Node::new("n1", 2, "cpu")];
    let mut engine = busy_on(nodes, 1.0);
    let gone = |name: &str| Event::NodeLeft { name: name.to_owned(), reason: String::new() };
    assert_eq!(engine.handle(gone("n1"), 100.0).actions, []);
    let open = |engine: &Engine| engine.state().open_places().count();
    assert_eq!(open(&engine), 1);
    let back = engine.handle(
        Event::NodeJoined { spec: Node::new("n1", 2, "cpu"), host_memory_bytes: None },
        200.0,
    );
    engine.handle(order(&back).expect("no node like it is idle"), 200.0 + SOLVE_S);
    let decision = engine.handle(gone("n0"), 300.0);
    assert_eq!(launched(&decision), [TaskId(0)], "it goes on elsewhere at once");
    assert!(order(&decision).is_some());
    assert_eq!(open(&engine), 1);
}
