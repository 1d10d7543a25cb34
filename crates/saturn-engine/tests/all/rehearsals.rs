//! What a submission would do, tried on a copy of a run.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{Assignment, Cluster, Node, Placement, Plan, PlanStatus, WHOLE};
use saturn_engine::{
    Action, Command, Decision, Engine, Event, NewTask, RefusalCode, Rehearsal, SolveAnswer,
    SolveOrder, TaskId, forecast,
};

use crate::idle::{config, order, submit_long};

const LONG: TaskId = TaskId(0);
const SHORT: TaskId = TaskId(1);

/// On one device `long` trains for 1000 s, and `short` waits, which takes 50 s.
fn run() -> Engine {
    let mut engine = Engine::new(config());
    engine
        .handle(Event::Begin { cluster: Cluster { nodes: vec![Node::new("n0", 1, "cpu")] } }, 0.0);
    let mut solved = Vec::new();
    for (name, steps) in [("long", 1000), ("short", 50)] {
        let decision = engine.handle(submit_long(name, steps, 0.0, 1, None), 0.0);
        solved.extend(order(&decision));
    }
    for answer in solved {
        let Decision { actions, .. } = engine.handle(answer, 0.0);
        drop(actions);
    }
    engine
}

/// A task of 200 s, due after so many seconds.
fn new(name: &str, deadline_s: Option<f64>) -> Vec<NewTask> {
    let Event::Command { command: Command::Submit { mut tasks } } =
        submit_long(name, 200, 0.0, 1, None)
    else {
        return Vec::new();
    };
    tasks[0].spec.wishes.deadline_s = deadline_s;
    tasks
}

/// The tasks one after the other on the one device.
fn in_order(order: &SolveOrder, names: &[&str]) -> SolveAnswer {
    let mut start_s = 0.0;
    let assignments = names.iter().map(|name| {
        let tasks = &order.problem.tasks;
        let task = tasks.iter().position(|task| task.name == *name).expect("it is asked");
        let end_s = start_s + tasks[task].strategies[0].runtime_s;
        let gang = vec![Placement { node: 0, devices: vec![0] }];
        let place = Assignment { task, strategy: 0, gang, share: WHOLE, start_s, end_s };
        start_s = end_s;
        place
    });
    let plan = Plan::of(&order.problem, order.objective, assignments.collect());
    let plan = Plan { status: PlanStatus::Feasible, ..plan };
    let (current_practice_s, practice_is_estimate, optimistic) = (None, false, None);
    SolveAnswer { plan, current_practice_s, practice_is_estimate, optimistic }
}

/// When tasks end by the plan in force, rounded seconds.
fn ends(state: &saturn_engine::State) -> Vec<i64> {
    let found = forecast(state, 1.0).tasks;
    #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
    found.values().map(|(_, end_s)| end_s.round() as i64).collect()
}

#[test]
fn a_copy_takes_the_tasks_in_and_the_run_stays_as_it_is() {
    let engine = run();
    let before = ends(engine.state());
    let mut rehearsal = Rehearsal::of(engine.state(), new("late", None), 1.0).expect("taken");
    let order = rehearsal.ask().expect("it is measured");
    assert!(rehearsal.solved(&in_order(&order, &["long", "short", "late"])));
    let after = ends(rehearsal.state());
    assert_eq!(after.len(), 3);
    assert_eq!(after[..2], before[..2]);
    assert_eq!(after[2] - after[1], 200);
    assert_eq!(rehearsal.new_tasks(), [TaskId(2)]);
    assert_eq!((engine.state().tasks.len(), ends(engine.state())), (2, before));
}

/// The plan that keeps the deadline has later ends, and no earlier makespan.
#[test]
fn a_plan_that_keeps_a_deadline_is_adopted_before_one_with_earlier_ends() {
    let engine = run();
    let before = ends(engine.state());
    let long_s = forecast(engine.state(), 1.0).tasks[&LONG].1;
    let due = new("due", Some(long_s + 210.0));
    let mut rehearsal = Rehearsal::of(engine.state(), due, 1.0).expect("taken");
    let order = rehearsal.ask().expect("it is measured");
    assert!(order.problem.tasks.iter().any(|task| task.deadline_s.is_some()));
    assert!(rehearsal.solved(&in_order(&order, &["long", "due", "short"])));
    let after = ends(rehearsal.state());
    assert_eq!(after[2] - after[LONG.0], 200, "{after:?}");
    assert_eq!(after[SHORT.0] - before[SHORT.0], 200, "{after:?}");
    // Without deadlines, the plan with the earlier ends stays.
    rehearsal = Rehearsal::of(engine.state(), new("due", None), 1.0).expect("taken");
    let order = rehearsal.ask().expect("it is measured");
    assert!(rehearsal.solved(&in_order(&order, &["long", "due", "short"])));
    assert_eq!(ends(rehearsal.state())[..2], before[..2]);
}

/// A task of 200 s with a soft deadline after so many seconds.
fn soft(name: &str, deadline_s: f64, price: f64, most_late_s: Option<f64>) -> Vec<NewTask> {
    let mut tasks = new(name, Some(deadline_s));
    let wishes = &mut tasks[0].spec.wishes;
    (wishes.late_price, wishes.most_late_s) = (Some(price), most_late_s);
    tasks
}

/// `cheap` and `dear` want to end 210 s after `long`; only one of them can.
#[test]
fn of_two_soft_deadlines_the_plan_that_keeps_the_dearer_is_adopted() {
    let engine = run();
    let long_s = forecast(engine.state(), 1.0).tasks[&LONG].1;
    let tasks = |most_late_s| {
        let due_s = long_s + 210.0;
        [soft("cheap", due_s, 1.0, most_late_s), soft("dear", due_s, 3.0, None)].concat()
    };
    let ask = |tasks| {
        let mut rehearsal = Rehearsal::of(engine.state(), tasks, 1.0).expect("taken");
        let order = rehearsal.ask().expect("it is measured");
        let task = order.problem.tasks.iter().find(|task| task.name == "cheap");
        let asked = task.map(|task| (task.late_price, task.most_late_s));
        (rehearsal, order, asked)
    };
    let (mut rehearsal, order, asked) = ask(tasks(None));
    assert_eq!(asked, Some((Some(1.0), None)));
    assert!(rehearsal.solved(&in_order(&order, &["long", "dear", "cheap", "short"])));
    let after = ends(rehearsal.state());
    assert_eq!(after[3] - after[LONG.0], 200, "the dear task is first: {after:?}");
    // But a ceiling is kept at any price.
    let (mut rehearsal, order, asked) = ask(tasks(Some(20.0)));
    assert_eq!(asked, Some((Some(1.0), Some(20.0))));
    assert!(rehearsal.solved(&in_order(&order, &["long", "cheap", "dear", "short"])));
    let after = ends(rehearsal.state());
    assert_eq!(after[2] - after[LONG.0], 200, "the ceiling of the cheap task is kept: {after:?}");
}

/// A soft deadline that has passed costs as much a second as before; a hard one counts no more.
#[test]
fn a_soft_deadline_that_has_passed_still_counts() {
    let engine = run();
    let tasks = [soft("passed", 0.5, 2.0, Some(0.25)), new("gone", Some(0.5))].concat();
    let mut rehearsal = Rehearsal::of(engine.state(), tasks, 1.0).expect("taken");
    let order = rehearsal.ask().expect("it is measured");
    let of = |name: &str| order.problem.tasks.iter().find(|task| task.name == name).cloned();
    let (passed, gone) = (of("passed").expect("asked"), of("gone").expect("asked"));
    assert!(passed.deadline_s.is_some_and(|due_s| due_s < 0.01), "{passed:?}");
    assert_eq!((passed.late_price, passed.most_late_s), (Some(2.0), None));
    assert_eq!((gone.deadline_s, gone.late_price), (None, None));
    assert!(order.problem.validate().is_ok());
}

/// With priorities the objective is a sum of weighted ends, in which an hour of lateness is little.
#[test]
fn lateness_is_compared_in_seconds_also_beside_priorities() {
    let mut engine = run();
    let wish = Command::Wish {
        task: "long".to_owned(),
        priority: Some(5),
        deadline_s: None,
        no_deadline: false,
        release_s: None,
        after: None,
    };
    engine.handle(Event::Command { command: wish }, 1.0);
    let long_s = forecast(engine.state(), 1.0).tasks[&LONG].1;
    let due = new("due", Some(long_s + 210.0));
    let mut rehearsal = Rehearsal::of(engine.state(), due, 1.0).expect("taken");
    let order = rehearsal.ask().expect("it is measured");
    assert!(rehearsal.solved(&in_order(&order, &["long", "due", "short"])));
    let after = ends(rehearsal.state());
    assert_eq!(after[2] - after[LONG.0], 200, "{after:?}");
}

fn none(order: &SolveOrder) -> SolveAnswer {
    let plan = Plan { status: PlanStatus::Infeasible, ..Plan::none(order.objective) };
    let (current_practice_s, practice_is_estimate, optimistic) = (None, false, None);
    SolveAnswer { plan, current_practice_s, practice_is_estimate, optimistic }
}

/// The tasks of a problem that have deadlines.
fn due(order: &SolveOrder) -> Vec<&str> {
    let due = order.problem.tasks.iter().filter(|task| task.deadline_s.is_some());
    due.map(|task| task.name.as_str()).collect()
}

#[test]
fn a_deadline_that_can_not_be_kept_leaves_the_others_in_force() {
    let engine = run();
    let long_s = forecast(engine.state(), 1.0).tasks[&LONG].1;
    let tasks = [new("lost", Some(100.0)), new("due", Some(long_s + 210.0))].concat();
    let mut rehearsal = Rehearsal::of(engine.state(), tasks, 1.0).expect("taken");
    let order = rehearsal.ask().expect("it is measured");
    assert_eq!(due(&order), ["lost", "due"]);
    assert!(!rehearsal.solved(&none(&order)), "it is asked again");
    let order = rehearsal.ask().expect("it is measured");
    assert_eq!(due(&order), ["due"]);
    assert!(rehearsal.solved(&in_order(&order, &["long", "due", "short", "lost"])));
    let after = ends(rehearsal.state());
    assert_eq!(after[3] - after[LONG.0], 200, "{after:?}");
}

#[test]
fn a_run_keeps_the_other_deadlines_and_looks_again_once_the_lost_one_has_passed() {
    let mut engine = run();
    let long_s = forecast(engine.state(), 1.0).tasks[&LONG].1;
    let mut asked = Vec::new();
    let mut tell = |engine: &mut Engine, event: Event, now_s: f64| {
        let Decision { actions, .. } = engine.handle(event, now_s);
        for action in actions {
            if let Action::Solve { request, order } = action {
                asked.push((now_s, due(&order).join(" "), request, order));
            }
        }
        asked
            .last()
            .map(|(at_s, due, request, order)| (*at_s, due.clone(), *request, order.clone()))
    };
    let tasks = [new("lost", Some(100.0)), new("due", Some(long_s + 210.0))].concat();
    let submit = Event::Command { command: Command::Submit { tasks } };
    // The solver rests after its last answer.
    tell(&mut engine, submit, 1.0);
    let (_, first, request, order) = tell(&mut engine, Event::Tick, 60.0).expect("it is asked");
    assert_eq!(first, "lost due");
    let answer = Event::Solved { request, answer: Ok(none(&order)) };
    let (_, second, request, order) = tell(&mut engine, answer, 61.0).expect("it is asked");
    assert_eq!(second, "due");
    let plan = in_order(&order, &["long", "due", "short", "lost"]);
    tell(&mut engine, Event::Solved { request, answer: Ok(plan) }, 62.0);
    let (at_s, third, ..) = tell(&mut engine, Event::Tick, 101.0).expect("it is asked");
    assert_eq!((at_s, third.as_str()), (101.0, "due"), "the deadline that has passed is no more");
}

#[test]
fn what_the_run_would_refuse_is_refused() {
    let engine = run();
    let refused = Rehearsal::of(engine.state(), new("short", None), 1.0).map(|_| ());
    assert_eq!(refused.map_err(|refusal| refusal.code), Err(RefusalCode::NameTaken));
}

#[test]
fn a_task_that_is_not_measured_has_no_end() {
    let engine = run();
    let mut tasks = new("fresh", None);
    tasks[0].spec.measured.clear();
    tasks[0].spec.profile_key = "fresh".to_owned();
    let mut rehearsal = Rehearsal::of(engine.state(), tasks, 1.0).expect("taken");
    let order = rehearsal.ask().expect("others are measured");
    assert!(rehearsal.solved(&in_order(&order, &["long", "short"])));
    assert!(!forecast(rehearsal.state(), 1.0).tasks.contains_key(&TaskId(2)));
}
