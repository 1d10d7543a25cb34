//! Problems without a plan, and solves that were cut short, are answered in words.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use saturn_core::{PlanStatus, Problem, Reason, Refutation, SolveEnd, verified};
use saturn_solver::{Backend, Clock, FrozenClock, Objective, Options, solve};

use super::problems::{SMALL, problems, with_memory};
use crate::support::cases;

/// Interrupts after it has been asked so many times.
struct Impatient {
    asked: AtomicU64,
    patience: u64,
}

impl Clock for Impatient {
    fn elapsed_s(&self) -> f64 {
        0.0
    }

    fn is_interrupted(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) > self.patience
    }
}

/// Two nodes of two GPUs, of which the second leaves, and three tasks with more fields.
fn problem(top: &str, tasks: [&str; 3]) -> Problem {
    let task = |index: usize| {
        format!(
            r#"{{"name": "t{index}", "strategies": [
                {{"technique": "ddp", "gpus": 2, "runtime_s": {}}}]{}}}"#,
            10 * (index + 1),
            tasks[index]
        )
    };
    let text = format!(
        r#"{{"cluster": {{"nodes": [{{"gpus": 2}}, {{"gpus": 2, "available_until_s": 25}}]}}{top},
            "tasks": [{}, {}, {}]}}"#,
        task(0),
        task(1),
        task(2)
    );
    Problem::from_json(&text).unwrap()
}

/// Only the exact program sees that it has no plan, and can't prove it.
fn tight() -> Problem {
    problem(
        "",
        [
            r#", "only_nodes": ["n1"], "release_s": 4, "deadline_s": 20"#,
            r#", "only_nodes": ["n1"]"#,
            "",
        ],
    )
}

fn told(problem: &Problem, backend: Backend) -> (PlanStatus, SolveEnd, String) {
    let options = Options { backend, max_moves: Some(5_000), ..Options::default() };
    let plan = solve(problem, &options, &FrozenClock).unwrap();
    let reasons: Vec<String> = plan
        .reasons
        .iter()
        .map(|one| {
            let name = one.task.map_or("", |task| problem.tasks[task].name.as_str());
            format!("{name}: {}", one.reason)
        })
        .collect();
    (plan.status, plan.ended, reasons.join("; "))
}

#[test]
fn what_cannot_be_is_proven_in_words() {
    let cases = [
        problem("", ["", "", r#", "deadline_s": 29"#]),
        problem("", ["", "", r#", "only_nodes": ["n1"]"#]),
        problem("", ["", r#", "after": ["t0"], "deadline_s": 29"#, ""]),
        problem("", [r#", "after": ["t2"]"#, "", r#", "release_s": 5, "deadline_s": 36"#]),
        problem(r#", "deadline_s": 39"#, [r#", "after": ["t2"]"#, "", ""]),
        problem(r#", "deadline_s": 30"#, ["", "", ""]),
        problem("", [r#", "deadline_s": 25"#, r#", "deadline_s": 25"#, r#", "deadline_s": 30"#]),
        // By its work alone it could be: only the exact program sees that nothing fits, and can't prove it.
        problem("", ["", r#", "only_nodes": ["n1"], "release_s": 3"#, r#", "only_nodes": ["n0"]"#]),
        tight(),
    ];
    let words = |case: &Problem| format!("{:?}", told(case, Backend::Auto));
    let table: Vec<String> = cases.iter().map(words).collect();
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn the_exact_program_says_that_there_is_no_plan_where_nothing_has_a_price() {
    for &objective in Objective::ALL {
        let options = Options {
            backend: Backend::Milp,
            objective,
            max_moves: Some(2_000),
            ..Options::default()
        };
        let plan = solve(&tight(), &options, &FrozenClock).unwrap();
        let is_last_word = plan.ended == SolveEnd::Complete && !plan.reasons.is_empty();
        assert!(plan.status == PlanStatus::TimedOut && is_last_word, "{objective}: {plan:?}");
    }
}

#[test]
fn rounding_makes_nothing_impossible() {
    let text = r#"{"cluster": {"nodes": [{"gpus": 1}]}, "deadline_s": 86400, "tasks": [
        {"name": "a", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 0.002}]},
        {"name": "b", "after": ["a"],
         "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 86399.998}]}]}"#;
    let problem = Problem::from_json(text).unwrap();
    for &objective in Objective::ALL {
        for backend in [Backend::Auto, Backend::Search, Backend::Milp] {
            let options =
                Options { backend, objective, max_moves: Some(1_000), ..Options::default() };
            let plan = solve(&problem, &options, &FrozenClock).unwrap();
            assert!(plan.is_usable(), "{backend}, {objective}: {plan:?}");
        }
    }
}

#[test]
fn nothing_is_refuted_that_a_switch_could_make_possible() {
    // Half of the work on the slow node until the fast node is there: done at 56 s. Whole, on the fast
    // node: at 60 s.
    let text = r#"{"cluster": {"nodes": [{"gpus": 1, "type": "slow"},
            {"gpus": 1, "type": "fast", "available_from_s": 50}]},
        "tasks": [{"name": "t", "deadline_s": 57, "switch_cost_s": 1, "strategies": [
            {"technique": "ddp", "gpus": 1, "type": "slow", "runtime_s": 100},
            {"technique": "ddp", "gpus": 1, "type": "fast", "runtime_s": 10}]}]}"#;
    let mut problem = Problem::from_json(text).unwrap();
    let status_with = |problem: &Problem, max_switches: usize| {
        let options = Options { max_switches, max_moves: Some(1_000), ..Options::default() };
        let plan = solve(problem, &options, &FrozenClock).unwrap();
        (plan.status, plan.ended)
    };
    assert_eq!(status_with(&problem, 0), (PlanStatus::Infeasible, SolveEnd::Complete));
    assert_eq!(status_with(&problem, 1), (PlanStatus::TimedOut, SolveEnd::Complete));
    problem.tasks[0].switch_cost_s = None;
    assert_eq!(status_with(&problem, 1).0, PlanStatus::Infeasible);
    // No switch makes a place for what has none.
    problem.tasks[0].switch_cost_s = Some(1.0);
    problem.tasks[0].strategies.iter_mut().for_each(|one| one.gpus = 2);
    assert_eq!(status_with(&problem, 1).0, PlanStatus::Infeasible);
}

#[test]
fn what_was_not_found_is_not_called_impossible() {
    let late = problem("", ["", r#", "deadline_s": 20"#, r#", "deadline_s": 30"#]);
    let table = [told(&tight(), Backend::Search), told(&late, Backend::CurrentPractice)];
    insta::assert_snapshot!(table.map(|one| format!("{one:?}")).join("\n"));
}

#[test]
fn an_interrupted_solve_gives_what_it_has() {
    let problem = problem(r#", "deadline_s": 1000"#, ["", r#", "release_s": 1"#, ""]);
    for backend in [Backend::Search, Backend::Auto, Backend::Milp] {
        for patience in [0, 20, 2_000] {
            let clock = Impatient { asked: AtomicU64::new(0), patience };
            let options = Options {
                backend,
                objective: Objective::Completion,
                time_limit_s: 1e6,
                ..Options::default()
            };
            let plan = solve(&problem, &options, &clock).unwrap();
            if plan.status != PlanStatus::Optimal {
                assert_eq!(plan.ended, SolveEnd::Interrupted, "{backend} {patience}");
            }
            assert_eq!(plan.is_usable(), !plan.assignments.is_empty());
            assert!(plan.is_usable() || !plan.reasons.is_empty());
        }
    }
}

const GOOD: &str = r#"{"cluster": {"nodes": [{"name": "n", "gpus": 8, "type": "a100", "price_per_hour": 2.5},
 {"gpus": 4, "available_from_s": 7, "available_until_s": 900}]}, "deadline_s": 5000,
 "tasks": [{"name": "a", "strategies": [{"technique": "ddp", "gpus": 2, "runtime_s": 10.5, "pack": true},
 {"technique": "fsdp", "gpus": 12, "type": "a100", "runtime_s": 3}], "switch_cost_s": 6,
 "running": {"technique": "ddp", "gpus": 2, "movable": true, "placement": [{"node": "n", "devices": [0, 1]}]}},
 {"name": "b", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 9}], "release_s": 11, "weight": 1.5,
 "after": ["a"], "deadline_s": 100, "only_nodes": ["n", "n1"], "not_nodes": ["n1"]},
 {"name": "c", "strategies": [{"technique": "ddp", "gpus": 4, "runtime_s": 20}]}]}"#;

/// Reads a text, and solves what can be read; nothing may panic.
fn exercise(text: &str) {
    let Ok(problem) = Problem::from_json(text) else { return };
    if problem.cluster.num_gpus() > 10_000 {
        return;
    }
    for &objective in Objective::ALL {
        for backend in [Backend::Auto, Backend::Search, Backend::CurrentPractice] {
            let options = Options {
                backend,
                objective,
                max_moves: Some(200),
                time_limit_s: 2.0,
                ..Options::default()
            };
            let plan = solve(&problem, &options, &FrozenClock).unwrap();
            assert!(plan.is_usable() || !plan.reasons.is_empty(), "{text}");
        }
    }
}

/// A problem whose deadline is a part of its best makespan without that deadline.
fn due_early() -> impl Strategy<Value = Problem> {
    (problems(SMALL), 0.3f64..1.0).prop_map(|(mut problem, part)| {
        problem.deadline_s = None;
        let options = Options { max_moves: Some(300), ..Options::default() };
        let free = solve(&problem, &options, &FrozenClock).unwrap();
        if free.is_usable() {
            problem.deadline_s = Some(free.makespan_s * part);
        }
        problem
    })
}

proptest! {
    #![proptest_config(cases(200))]

    /// Whatever the solver says against a problem, the checker can verify, unless it is said in words
    /// alone.
    #[test]
    fn every_refutation_is_verified(problem in due_early()) {
        let options = Options { max_moves: Some(300), ..Options::default() };
        let plan = solve(&problem, &options, &FrozenClock).unwrap();
        let proven: Vec<_> =
            plan.reasons.iter().filter(|one| one.refutation.is_some()).cloned().collect();
        prop_assert_eq!(plan.status == PlanStatus::Infeasible, !proven.is_empty());
        prop_assert_eq!(verified(&problem, &proven), proven);
    }

    /// Nothing that can be said against a problem with a plan is verified, even if every task is due
    /// when that plan ends it.
    #[test]
    fn what_has_a_plan_is_not_refuted(
        mut problem in prop_oneof![problems(SMALL), with_memory(SMALL)],
        prices in prop::collection::vec(0.0f64..3.0, 4),
    ) {
        let options = Options { max_moves: Some(300), ..Options::default() };
        let plan = solve(&problem, &options, &FrozenClock).unwrap();
        problem.deadline_s = None;
        let mut said = Vec::new();
        for one in &plan.assignments {
            problem.tasks[one.task].deadline_s = Some(one.end_s);
            problem.tasks[one.task].late_price = None;
            problem.tasks[one.task].most_late_s = None;
            let types = problem.cluster.nodes.iter().map(|node| node.gpu_type.clone());
            let prices = types.zip(prices.iter().copied()).collect();
            let (task, reason) = (Some(one.task), String::new());
            for refutation in [
                Refutation::NoPlace,
                Refutation::TooLate,
                Refutation::Work { until_s: one.end_s, prices },
            ] {
                let (reason, refutation) = (reason.clone(), Some(refutation));
                said.push(Reason { task, reason, refutation });
            }
        }
        prop_assert_eq!(verified(&problem, &said), []);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn a_file_with_numbers_changed_is_solved_or_refused(
        edits in prop::collection::vec(
            (
                0..64usize,
                prop_oneof![
                    any::<f64>().prop_map(|number| format!("{number:e}")),
                    any::<u16>().prop_map(|number| number.to_string()),
                    (0u32..40).prop_map(|number| number.to_string()),
                    (1e-6f64..1e12).prop_map(|number| number.to_string()),
                ],
            ),
            1..4,
        )
    ) {
        let mut text = GOOD.to_owned();
        for (which, number) in edits {
            let starts: Vec<usize> = text
                .match_indices(": ")
                .map(|(at, _)| at + 2)
                .filter(|at| text[*at..].starts_with(|first: char| first.is_ascii_digit()))
                .collect();
            let at = starts[which % starts.len()];
            let length = text[at..].find([',', '}', ' ', ']']).unwrap();
            text.replace_range(at..at + length, &number);
        }
        exercise(&text);
    }

    #[test]
    fn a_file_with_bytes_changed_is_solved_or_refused(
        edits in prop::collection::vec((0..GOOD.len(), "[\\x20-\\x7e]"), 1..3)
    ) {
        let mut text = GOOD.to_owned();
        for (at, with) in edits {
            text.replace_range(at..=at, &with);
        }
        exercise(&text);
    }
}
