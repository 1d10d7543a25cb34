//! Switches in mid-run that make no task faster, but move it to another device.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_core::{Assignment, Cluster, Node, Placement, Plan, PlanStatus, WHOLE};
use saturn_engine::{
    Command, Decision, Engine, Event, NewTask, Policy, Record, RunConfig, SolveAnswer, SolveOrder,
};

use crate::idle::{config, submit_long};
use crate::staying::{asked, submit};

const INTERVAL_S: f64 = 1.0;

/// A place of a plan: the task, its device, its start in seconds, and its share of the task.
type Part = (&'static str, u32, f64, f64);

fn answered((request, order): (u64, SolveOrder), parts: &[Part]) -> Event {
    let assignments = parts.iter().map(|(name, device, start_s, share)| {
        let tasks = &order.problem.tasks;
        let task = tasks.iter().position(|task| task.name == *name).expect("it is asked");
        let end_s = start_s + share * tasks[task].strategies[0].runtime_s;
        let gang = vec![Placement { node: 0, devices: vec![*device] }];
        Assignment { task, strategy: 0, gang, share: *share, start_s: *start_s, end_s }
    });
    let plan = Plan::of(&order.problem, order.objective, assignments.collect());
    let plan = Plan { status: PlanStatus::Feasible, ..plan };
    let (current_practice_s, practice_is_estimate, optimistic) = (None, false, None);
    let answer = SolveAnswer { plan, current_practice_s, practice_is_estimate, optimistic };
    Event::Solved { request, answer: Ok(answer) }
}

fn task(name: &str, steps: u64) -> Vec<NewTask> {
    match submit_long(name, steps, 0.0, 1, None) {
        Event::Command { command: Command::Submit { tasks } } => tasks,
        _ => Vec::new(),
    }
}

/// Whether a plan is adopted that has `cut` train its first `steps` on device 1. By the plan in force,
/// `cut` trains on device 0, which ends after 400 s, and device 1 ends after `end_s`.
fn is_adopted(end_s: u16, steps: f64) -> bool {
    let policy = Policy { interval_s: INTERVAL_S, ..Policy::default() };
    let mut engine = Engine::new(RunConfig { policy, ..config() });
    let cluster = Cluster { nodes: vec![Node::new("n", 2, "cpu")] };
    engine.handle(Event::Begin { cluster }, 0.0);
    let last = u64::from(end_s) - 200;
    let tasks = [task("long", 300), task("first", 200), task("cut", 100), task("last", last)];
    let decision = engine.handle(submit(tasks.concat()), 0.0);
    let first = asked(&decision).expect("all is measured");
    let whole = [("long", 0, 0.0, WHOLE), ("first", 1, 0.0, WHOLE)];
    let in_force = [&whole[..], &[("last", 1, 200.0, WHOLE), ("cut", 0, 300.0, WHOLE)]].concat();
    engine.handle(answered(first, &in_force), 0.0);
    let decision = engine.handle(Event::Tick, 2.0 * INTERVAL_S);
    let again = asked(&decision).expect("the interval is over");
    let share = steps / 100.0;
    let cut = [("cut", 1, 200.0, share), ("last", 1, 200.0 + steps, WHOLE)];
    let rest = [("cut", 0, 300.0, WHOLE - share)];
    let parts = [&whole[..], &cut, &rest].concat();
    let Decision { records, .. } = engine.handle(answered(again, &parts), 2.0 * INTERVAL_S);
    records.iter().any(|record| matches!(record, Record::Planned { .. }))
}

#[test]
fn such_a_switch_must_gain_as_many_seconds_as_a_move() {
    assert!(!is_adopted(392, 4.0), "1% and 4 s are gained, and min_gain_s is 5 s");
    assert!(is_adopted(380, 10.0), "10 s are gained");
}
