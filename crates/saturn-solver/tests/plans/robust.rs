//! The choice among good plans by drawn runtimes.

use std::collections::BTreeSet;

use proptest::prelude::*;
use saturn_core::{Assignment, Objective, Outcome, Plan, PlanStatus, Problem, SolveEnd, check};
use saturn_solver::{Backend, FrozenClock, Options, SolveError, solve};

use crate::facts::problems::{SMALL, Scale};
use crate::facts::soft::soft_with_memory;
use crate::support::{self, MEDIUM, Sizes, cases};

fn robust(moves: u64) -> Options {
    Options { max_moves: Some(moves), draws: 200, threads: 1, ..Options::default() }
}

fn solved(problem: &Problem, options: &Options) -> Plan {
    let plan = solve(problem, options, &FrozenClock).unwrap();
    assert_eq!(check(problem, &plan), Ok(()));
    plan
}

/// The strategy of each task of a plan, by the task's number.
fn techniques(problem: &Problem, plan: &Plan) -> Vec<String> {
    let mut found = vec![String::new(); problem.tasks.len()];
    for one in &plan.assignments {
        found[one.task] = problem.tasks[one.task].strategies[one.strategy].technique.to_string();
    }
    found
}

/// Two nodes of one GPU. The longest task may run under a quick strategy that nobody is sure of, or
/// under one that takes 1% longer.
const SURE_OR_QUICK: &str = r#"{
  "cluster": {"nodes": [{"gpus": 1}, {"gpus": 1}]},
  "tasks": [
    {"name": "long", "strategies": [
      {"technique": "quick", "gpus": 1, "runtime_s": 100, "relative_error": 0.4},
      {"technique": "sure", "gpus": 1, "runtime_s": 101, "relative_error": 0.01}]},
    {"name": "short", "strategies": [
      {"technique": "sure", "gpus": 1, "runtime_s": 60, "relative_error": 0.01}]}]}"#;

#[test]
fn a_sure_strategy_is_worth_one_percent() {
    let problem = Problem::from_json(SURE_OR_QUICK).unwrap();
    let nominal = solved(&problem, &Options { draws: 0, ..robust(100_000) });
    assert_eq!(techniques(&problem, &nominal), ["quick", "sure"]);
    assert_eq!((nominal.status, nominal.robust.as_ref()), (PlanStatus::Optimal, None));
    let plan = solved(&problem, &robust(100_000));
    assert_eq!(techniques(&problem, &plan), ["sure", "sure"]);
    let said = plan.robust.unwrap();
    assert_eq!((said.draws, said.best_value.to_bits()), (200, nominal.makespan_s.to_bits()));
    assert!(said.plans > 1, "{said:?}");
    // The 80% quantile of a lognormal: 100 · e^(0.84 · 0.4) = 140, and 101.9.
    assert!((125.0..155.0).contains(&said.best_outcome.value), "{said:?}");
    assert!((101.0..103.0).contains(&said.outcome.value), "{said:?}");
    // The best plan was proven; the answer, a percent longer, is not optimal.
    assert_eq!((plan.status, plan.ended), (PlanStatus::Feasible, SolveEnd::Complete));
    assert!((plan.lower_bound_s - 100.0).abs() < 1e-3, "{}", plan.lower_bound_s);
}

/// An unsure task may share its GPU with a sure task before a deadline, or not: as planned, both are
/// as good.
const CHAIN: &str = r#"{
  "cluster": {"nodes": [{"gpus": 1}, {"gpus": 1}]},
  "tasks": [
    {"name": "unsure", "strategies": [
      {"technique": "t", "gpus": 1, "runtime_s": 40, "relative_error": 0.5}]},
    {"name": "behind", "strategies": [{"technique": "t", "gpus": 1, "runtime_s": 60}]},
    {"name": "alone", "strategies": [{"technique": "t", "gpus": 1, "runtime_s": 100}]},
    {"name": "due", "deadline_s": 100, "late_price": 1, "release_s": 30,
     "strategies": [{"technique": "t", "gpus": 1, "runtime_s": 60}]}]}"#;

#[test]
fn a_task_with_a_deadline_does_not_wait_for_an_unsure_task() {
    let problem = Problem::from_json(CHAIN).unwrap();
    let plan = solved(&problem, &robust(200_000));
    let said = plan.robust.as_ref().unwrap();
    assert!(said.outcome.tardiness <= said.best_outcome.tardiness, "{said:?}");
    // Behind `unsure`, the quantile of the end of `due` would be 40 · e^(0.42) + 60 = 121.
    let due = plan.assignments.iter().find(|one| one.task == 3).unwrap();
    let unsure = plan.assignments.iter().find(|one| one.task == 0).unwrap();
    assert!(due.gang != unsure.gang || due.start_s < unsure.start_s, "{plan:?}");
}

#[test]
fn draws_without_errors_are_refused() {
    let problem =
        Problem::from_json(&SURE_OR_QUICK.replace("\"relative_error\"", "\"host_bytes\""));
    let sure = SURE_OR_QUICK.replace(", \"relative_error\": 0.4", "");
    let sure = Problem::from_json(&sure.replace(", \"relative_error\": 0.01", "")).unwrap();
    assert!(problem.is_err());
    let refused = |options: &Options| match solve(&sure, options, &FrozenClock) {
        Err(SolveError::Option { option, .. }) => option,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&robust(1_000)), "draws");
    let problem = Problem::from_json(SURE_OR_QUICK).unwrap();
    let backend = Backend::Max;
    let plan = solve(&problem, &Options { backend, ..robust(1_000) }, &FrozenClock);
    assert!(matches!(plan, Err(SolveError::Option { option: "draws", .. })), "{plan:?}");
}

#[test]
fn few_moves_leave_no_room_for_a_choice() {
    let problem = Problem::from_json(SURE_OR_QUICK).unwrap();
    let said = |moves| solved(&problem, &robust(moves)).robust.map(|one| (one.draws, one.plans));
    // A move counts as a microsecond. A fiftieth of all moves is for following plans, ten gangs in a
    // microsecond: a plan of two gangs takes 200 times 2 gangs.
    assert_eq!(said(1_900), None);
    assert_eq!(said(2_100), Some((200, 1)));
    assert_eq!(said(100_000), Some((200, 2)));
    let fewer = Options { draws: 20, ..robust(1_900) };
    assert_eq!(solved(&problem, &fewer).robust.map(|one| one.draws), Some(20));
}

#[test]
fn running_tasks_may_hold_more_host_memory_than_there_is() {
    let task = |name: &str, device: usize| {
        format!(
            r#"{{"name": "{name}", "strategies": [{{"technique": "t", "gpus": 1, "runtime_s": 10,
                "host_bytes": 6, "relative_error": 0.001}}],
              "running": {{"technique": "t", "gpus": 1,
                "placement": [{{"node": "n", "devices": [{device}]}}]}}}}"#
        )
    };
    let next = r#"{"name": "c", "strategies": [{"technique": "t", "gpus": 1, "runtime_s": 10,
        "host_bytes": 6, "relative_error": 0.001}]}"#;
    let text = format!(
        r#"{{"cluster": {{"nodes": [{{"name": "n", "gpus": 3, "host_memory_bytes": 10}}]}},
            "tasks": [{}, {}, {next}]}}"#,
        task("a", 0),
        task("b", 2)
    );
    let plan = solved(&Problem::from_json(&text).unwrap(), &robust(100_000));
    // The third waits for the bytes of both.
    let value = plan.robust.as_ref().unwrap().outcome.value;
    assert!((19.9..20.1).contains(&value), "{plan:?}");
}

/// Whether an outcome is no worse than another, as the answer compares them.
fn is_no_worse(one: &Outcome, other: &Outcome) -> bool {
    let key = |one: &Outcome| [one.missed_s, one.tardiness, one.value];
    let pairs = key(one).into_iter().zip(key(other));
    for (one, other) in pairs {
        if (one - other).abs() > 1e-9 * (1.0 + other) {
            return one < other;
        }
    }
    true
}

/// The running tasks that a plan leaves as they run.
fn stays(problem: &Problem, plan: &Plan) -> BTreeSet<usize> {
    let is_left = |one: &&Assignment| {
        let task = &problem.tasks[one.task];
        one.start_s == 0.0
            && task.running_strategy() == Some(one.strategy)
            && problem.running_gang(task).is_some_and(|gang| gang == one.gang)
    };
    plan.assignments.iter().filter(is_left).map(|one| one.task).collect()
}

fn with_memory_or_without() -> impl Strategy<Value = Problem> {
    prop_oneof![
        soft_with_memory(Scale { tasks: 2..=8, ..SMALL }),
        support::problems(Sizes { tasks: 2..=8, ..MEDIUM }),
    ]
}

proptest! {
    #![proptest_config(cases(40))]
    #[test]
    fn runtimes_that_hardly_differ_give_what_is_planned(
        problem in with_memory_or_without(),
        objective in prop::sample::select(&[Objective::Makespan, Objective::Completion]),
    ) {
        let mut problem = problem;
        for one in problem.tasks.iter_mut().flat_map(|task| &mut task.strategies) {
            one.relative_error = 1e-12;
        }
        let backend = Backend::Search;
        let plan = solved(&problem, &Options { backend, draws: 20, objective, ..robust(10_000) });
        let Some(said) = &plan.robust else { return Ok(()) };
        // A gang may start earlier than planned if nothing keeps it: the planned start is no order.
        let (said, value) = (said.outcome, plan.value());
        prop_assert!(said.missed_s < 1e-6 * (1.0 + plan.makespan_s), "{:?} {:?}", said, plan);
        prop_assert!(said.tardiness <= plan.tardiness + 1e-6, "{:?} {:?}", said, plan);
        prop_assert!(said.value <= value * (1.0 + 1e-6), "{:?} {:?}", said, plan);
        prop_assert!(said.value >= plan.bound() * (1.0 - 1e-6), "{:?} {:?}", said, plan);
    }
}

proptest! {
    #![proptest_config(cases(40))]
    #[test]
    fn the_choice_is_never_worse_in_quantile(
        problem in with_memory_or_without(),
        errors in prop::collection::vec(0u8..4, 1..20),
        objective in prop::sample::select(Objective::ALL),
        seed in 0u64..3,
    ) {
        let mut problem = problem;
        let strategies = problem.tasks.iter_mut().flat_map(|task| &mut task.strategies);
        for (one, error) in strategies.zip(errors.iter().cycle()) {
            one.relative_error = f64::from(*error) * 0.2;
        }
        let strategies = problem.tasks.iter().flat_map(|task| &task.strategies);
        prop_assume!(strategies.clone().any(|one| one.relative_error > 0.0));
        let backend = Backend::Search;
        let options = Options { backend, draws: 20, objective, seed, ..robust(100_000) };
        let plan = solved(&problem, &options);
        let nominal = solved(&problem, &Options { draws: 0, ..options.clone() });
        prop_assert_eq!(plan.is_usable(), nominal.is_usable());
        let Some(said) = &plan.robust else { return Ok(()) };
        prop_assert!(is_no_worse(&said.outcome, &said.best_outcome), "{:?}", said);
        prop_assert!((said.best_value - nominal.value()).abs() <= 1e-9 * (1.0 + nominal.value()));
        prop_assert!(plan.value() <= nominal.value() * 1.1001, "{:?} {:?}", said, nominal.value());
        prop_assert!(!nominal.is_less_tardy_than(&plan));
        prop_assert!(plan.bound() <= nominal.value() * (1.0 + 1e-9));
        prop_assert!(stays(&problem, &nominal).is_subset(&stays(&problem, &plan)));
        let again = solved(&problem, &options);
        prop_assert_eq!(&again.assignments, &plan.assignments);
        prop_assert_eq!(&again.robust, &plan.robust);
    }
}
