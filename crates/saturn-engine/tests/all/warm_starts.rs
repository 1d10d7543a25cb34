//! The plan in force as the solver gets it: what trains as planned stays, and all else comes later.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use saturn_core::{Assignment, Cluster, Node, Placement, Plan, PlanStatus, WHOLE};
use saturn_engine::{Action, Decision, Engine, Event, RankReport, SolveAnswer, SolveOrder};

use crate::staying::{asked, config, script, submit};

/// The first task on the second of two nodes, which are of the types `a` and `b`. The others are on
/// the first node, one after the other.
fn apart(order: &SolveOrder) -> SolveAnswer {
    let mut ends_s = [0.0; 2];
    let assignments = order.problem.tasks.iter().enumerate().map(|(task, of_task)| {
        let (node, gpu_type) = if task == 0 { (1, "b") } else { (0, "a") };
        let is_there = |at: &usize| {
            let one = &of_task.strategies[*at];
            one.gpus == 1 && one.gpu_type.as_deref() == Some(gpu_type)
        };
        let strategy = (0..of_task.strategies.len()).find(is_there).expect("it was measured");
        let start_s = ends_s[node];
        ends_s[node] += of_task.strategies[strategy].runtime_s;
        let gang = vec![Placement { node, devices: vec![0] }];
        Assignment { task, strategy, gang, share: WHOLE, start_s, end_s: ends_s[node] }
    });
    let plan = Plan::of(&order.problem, order.objective, assignments.collect());
    let plan = Plan { status: PlanStatus::Feasible, ..plan };
    SolveAnswer { plan, current_practice_s: None, practice_is_estimate: false, optimistic: None }
}

/// The next question to the solver, at `now_s` or up to 100 s later.
fn next_order(engine: &mut Engine, mut decision: Decision, now_s: f64) -> (u64, SolveOrder) {
    for tick in 0..100 {
        if let Some(asked) = asked(&decision) {
            return asked;
        }
        decision = engine.handle(Event::Tick, now_s + f64::from(tick));
    }
    panic!("a plan is asked for");
}

/// What the solver is asked when a fourth task comes at 200 s. Two tasks train then, for 1,000 s in
/// all, and the third is behind the second.
fn asked_of_four() -> SolveOrder {
    let mut engine = Engine::new(config());
    let nodes = vec![Node::new("n", 1, "a"), Node::new("m", 1, "b")];
    engine.handle(Event::Begin { cluster: Cluster { nodes } }, 0.0);
    let began_s = 7.0;
    let tasks = ["a", "b", "c"].map(|name| script(name, true, true));
    let decision = engine.handle(submit(tasks.to_vec()), began_s);
    let (request, order) = next_order(&mut engine, decision, began_s);
    let answer = Ok(apart(&order));
    let decision = engine.handle(Event::Solved { request, answer }, began_s);
    let launches = decision.actions.iter().filter_map(|action| match action {
        Action::Launch { attempt, .. } => Some(*attempt),
        _ => None,
    });
    for attempt in launches {
        let report = |report| Event::Reported { attempt, rank: 0, report };
        engine.handle(report(RankReport::Started { step: 0, setup_s: 0.0 }), began_s);
        let progress = RankReport::Progress { step: 9, loss: None, step_s: Some(1.0) };
        engine.handle(report(progress), began_s + 9.0);
    }
    let decision = engine.handle(submit(vec![script("d", true, true)]), 200.0);
    next_order(&mut engine, decision, 200.0).1
}

#[test]
fn what_trains_as_planned_starts_at_once_and_all_else_later() {
    let order = asked_of_four();
    let plan = order.warm_start.expect("a plan is in force");
    let mut starts_s = [f64::NAN; 4];
    for one in &plan.assignments {
        assert!(one.end_s > one.start_s, "{one:?}");
        starts_s[one.task] = one.start_s;
    }
    assert_eq!(starts_s[..2], [0.0, 0.0], "they train");
    assert!(starts_s[2] > 0.0, "{starts_s:?}");
}

#[test]
fn a_place_is_the_candidate_of_its_own_type() {
    let order = asked_of_four();
    let plan = order.warm_start.expect("a plan is in force");
    let mut nodes = BTreeSet::new();
    for one in &plan.assignments {
        let candidate = &order.problem.tasks[one.task].strategies[one.strategy];
        let node = one.gang[0].node;
        assert_eq!(candidate.gpu_type.as_deref(), Some(["a", "b"][node]), "{one:?}");
        nodes.insert(node);
    }
    assert_eq!(nodes.len(), 2, "both types are used");
}
