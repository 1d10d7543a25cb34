//! The time that evaluations take, and what is kept of their results. Plans and the expected ends
//! of running tasks count that time; the time of a step does not.

#![expect(clippy::expect_used, reason = "a test may panic")]

use std::num::NonZeroU64;

use saturn_core::{
    Assignment, Knobs, Origin, Placement, Plan, PlanStatus, Strategy, Trial, TrialOutcome, WHOLE,
};
use saturn_engine::{
    Action, AttemptId, BestEvaluation, Command, Decision, Engine, Evaluation, EvaluationSpec,
    Event, FailureKind, NewTask, Policy, RankReport, Record, SolveAnswer, SolveOrder, TaskId,
    TaskSpec, forecast,
};

use crate::specs::{engine, spec};

const STEPS: u64 = 100;
const EVERY: u64 = 30;
const SETUP_S: f64 = 2.0;
const EVALUATION_S: f64 = 8.0;
/// Seconds a step by the trials, and an evaluation where it was measured.
const TRIED: [(&str, f64, Option<f64>); 2] =
    [("ddp", 1.0, Some(EVALUATION_S)), ("offload", 3.0, None)];
const TASK: TaskId = TaskId(0);

fn trial((technique, step_s, evaluation_s): (&str, f64, Option<f64>)) -> Trial {
    Trial {
        task: "t".to_owned(),
        profile_key: None,
        gpu_type: None,
        device_memory_bytes: None,
        strategy: Strategy { technique: technique.to_owned(), gpus: 1, knobs: Knobs::new() },
        outcome: Some(TrialOutcome::Measured {
            step_s,
            setup_s: SETUP_S,
            checkpoint_s: Some(0.0),
            peak_memory_bytes: 1,
            timed_steps: 9,
            relative_error: Some(0.03),
            warmup_s: None,
            variation: None,
            batches_per_epoch: None,
            evaluation_s,
        }),
        trained: None,
        origin: Origin::default(),
    }
}

fn task(every_steps: Option<u64>) -> NewTask {
    let every_steps = every_steps.and_then(NonZeroU64::new);
    let spec = TaskSpec {
        steps: Some(STEPS),
        gpu_range: Some(vec![1]),
        profile_key: "k".to_owned(),
        measured: TRIED.map(trial).to_vec(),
        evaluation: Some(EvaluationSpec { every_steps }),
        ..spec("t")
    };
    NewTask { spec, after: Vec::new() }
}

fn order(decision: &Decision) -> (u64, &SolveOrder) {
    let found = decision.actions.iter().find_map(|action| match action {
        Action::Solve { request, order } => Some((*request, &**order)),
        _ => None,
    });
    found.expect("a plan is asked for")
}

fn launched(decision: &Decision) -> AttemptId {
    let found = decision.actions.iter().find_map(|action| match action {
        Action::Launch { attempt, .. } => Some(*attempt),
        _ => None,
    });
    found.expect("it trains")
}

/// A run of one task that is evaluated every so many steps, and what it asks the solver.
fn begun(every_steps: Option<u64>) -> (Engine, Decision) {
    let mut engine = engine(&TRIED.map(|(name, ..)| name), 1, Policy::default());
    let tasks = vec![task(every_steps)];
    let asked = engine.handle(Event::Command { command: Command::Submit { tasks } }, 0.0);
    (engine, asked)
}

/// The same, planned by its first technique, and launched at 1 s.
fn launched_at_1_s() -> (Engine, AttemptId) {
    let (mut engine, asked) = begun(Some(EVERY));
    let (request, order) = order(&asked);
    let end_s = order.problem.tasks[0].strategies[0].runtime_s;
    let gang = vec![Placement { node: 0, devices: vec![0] }];
    let place = Assignment { task: 0, strategy: 0, gang, share: WHOLE, start_s: 0.0, end_s };
    let plan = Plan::of(&order.problem, order.objective, vec![place]);
    let plan = Plan { status: PlanStatus::Feasible, ..plan };
    let answer = SolveAnswer {
        plan,
        current_practice_s: None,
        practice_is_estimate: false,
        optimistic: None,
    };
    let planned = engine.handle(Event::Solved { request, answer: Ok(answer) }, 1.0);
    let attempt = launched(&planned);
    (engine, attempt)
}

fn found(step: u64, loss: f64) -> Evaluation {
    Evaluation { step, metrics: [("eval_loss".to_owned(), Some(loss))].into() }
}

fn evaluated(evaluation: Evaluation, best: Evaluation, evaluation_s: Option<f64>) -> RankReport {
    let best = Some(BestEvaluation { metric: "eval_loss".to_owned(), evaluation: best });
    RankReport::Evaluated { evaluation, best, evaluation_s }
}

fn end_s(engine: &Engine, now_s: f64) -> f64 {
    forecast(engine.state(), now_s).tasks[&TASK].1
}

#[test]
fn plans_count_evaluations_in_measured_or_as_so_many_steps() {
    for (every_steps, evaluations) in [(Some(EVERY), 4.0), (Some(50), 2.0), (None, 1.0)] {
        let (_, asked) = begun(every_steps);
        let (_, order) = order(&asked);
        let strategies = &order.problem.tasks[0].strategies;
        for (strategy, (technique, step_s, _)) in strategies.iter().zip(TRIED) {
            assert_eq!(&*strategy.technique, technique);
            // Both techniques' evaluations are as many of their steps.
            let steps = STEPS as f64 + evaluations * EVALUATION_S / TRIED[0].1;
            let expected_s = SETUP_S + steps * step_s;
            let (planned_s, of) = (strategy.runtime_s, technique);
            assert!((planned_s - expected_s).abs() < 1e-6, "{of}: {planned_s} {expected_s}");
        }
    }
}

#[test]
fn what_is_expected_of_a_running_task_is_not_surprised_by_its_evaluations() {
    let (mut engine, attempt) = launched_at_1_s();
    let expected_s = 1.0 + SETUP_S + STEPS as f64 + 4.0 * EVALUATION_S;
    let mut at_s = 1.0 + SETUP_S;
    let say = |engine: &mut Engine, report: RankReport, now_s: f64| {
        engine.handle(Event::Reported { attempt, rank: 0, report }, now_s)
    };
    say(&mut engine, RankReport::Started { step: 0, setup_s: SETUP_S }, at_s);
    for step in 1..=STEPS {
        at_s += 1.0;
        say(&mut engine, RankReport::Progress { step, loss: None, step_s: Some(1.0) }, at_s);
        assert!((end_s(&engine, at_s) - expected_s).abs() < 1e-6, "after step {step}");
        if step % EVERY == 0 || step == STEPS {
            let midst_s = at_s + 0.6 * EVALUATION_S;
            assert!((end_s(&engine, midst_s) - expected_s).abs() < 1e-6, "in the midst of one");
            at_s += EVALUATION_S;
            let last = found(step, 1.0);
            say(&mut engine, evaluated(last.clone(), last, Some(EVALUATION_S)), at_s);
            assert!((end_s(&engine, at_s) - expected_s).abs() < 1e-6, "after the one at {step}");
        }
    }
    let ended = say(&mut engine, RankReport::Finished { step: STEPS, loss: None }, at_s);
    assert!(ended.records.is_empty());
    let gone = engine
        .handle(Event::RankExited { attempt, rank: 0, code: 0, last_words: String::new() }, at_s);
    let of_steps = gone.records.iter().find_map(|record| match record {
        Record::Ended { step_s, .. } => *step_s,
        _ => None,
    });
    assert!((of_steps.expect("it trained for long") - 1.0).abs() < 1e-6, "steps are steps alone");
}

#[test]
fn a_stop_in_the_midst_of_an_evaluation_comes_after_the_next_step() {
    let (mut engine, attempt) = launched_at_1_s();
    let mut say = |report: RankReport, now_s: f64| {
        engine.handle(Event::Reported { attempt, rank: 0, report }, now_s)
    };
    say(RankReport::Started { step: 0, setup_s: SETUP_S }, 3.0);
    say(RankReport::Progress { step: 30, loss: None, step_s: Some(1.0) }, 33.0);
    let state = engine.state();
    let live = &state.attempts[&attempt];
    assert_eq!(state.stop_of(live, 35.0), (31, 33.0 + EVALUATION_S + 1.0));
    assert_eq!(state.stop_of(live, 33.0 + EVALUATION_S + 1.5), (32, 33.0 + EVALUATION_S + 2.0));
}

#[test]
fn what_was_found_is_kept_once_and_forgotten_with_the_steps_that_are_lost() {
    let (mut engine, attempt) = launched_at_1_s();
    let mut say = |attempt: AttemptId, report: RankReport, now_s: f64| {
        let decision = engine.handle(Event::Reported { attempt, rank: 0, report }, now_s);
        let state = engine.state().task(TASK);
        (decision, state.evaluation.clone(), state.best.clone().map(|best| best.evaluation))
    };
    let (first, second) = (found(30, 0.5), found(60, 0.7));
    say(attempt, RankReport::Started { step: 0, setup_s: SETUP_S }, 3.0);
    say(attempt, evaluated(first.clone(), first.clone(), Some(8.0)), 41.0);
    let (_, last, best) = say(attempt, evaluated(second, first.clone(), Some(8.0)), 80.0);
    assert_eq!((last, best), (Some(found(60, 0.7)), Some(first.clone())));
    say(
        attempt,
        RankReport::Failed {
            kind: FailureKind::Error,
            error: "odd".to_owned(),
            traceback: String::new(),
        },
        81.0,
    );
    engine.handle(Event::RankExited { attempt, rank: 0, code: 1, last_words: String::new() }, 82.0);
    let kept = engine.state().task(TASK);
    assert!(kept.evaluation.is_none() && kept.best.is_none(), "nothing was saved");
    let again = launched(&engine.handle(Event::Tick, 100.0));
    let mut say = |report: RankReport, now_s: f64| {
        let decision = engine.handle(Event::Reported { attempt: again, rank: 0, report }, now_s);
        let state = engine.state().task(TASK);
        (decision, state.evaluation.clone(), state.best.clone().map(|best| best.evaluation))
    };
    // From a checkpoint after step 40, whose manifest knows of the first.
    let (_, last, best) = say(RankReport::Started { step: 40, setup_s: SETUP_S }, 103.0);
    assert_eq!((last, best), (None, None), "its rank tells what its checkpoint knows");
    let (told, last, best) = say(evaluated(first.clone(), first.clone(), None), 103.0);
    assert_eq!((told.records.len(), last, best), (1, Some(first.clone()), Some(first.clone())));
    let (told, ..) = say(evaluated(first.clone(), first, None), 103.5);
    assert!(told.records.is_empty(), "it is known");
}

#[test]
fn reports_and_tasks_are_read_as_workers_and_the_face_write_them() {
    let line = r#"{"type": "evaluated", "step": 30, "metrics": {"right": 12, "a": null},
        "evaluation_s": 0.5, "best": {"step": 10, "metrics": {"a": 0.25}, "metric": "a"}}"#;
    let report: RankReport = serde_json::from_str(line).expect("it is one");
    let RankReport::Evaluated { evaluation, best, evaluation_s } = report else {
        panic!("it is of an evaluation")
    };
    assert_eq!((evaluation.step, evaluation_s), (30, Some(0.5)));
    assert_eq!(evaluation.metrics["right"], Some(12.0));
    assert_eq!(evaluation.metrics["a"], None);
    let best = best.expect("there is one");
    assert_eq!((best.evaluation.step, best.value()), (10, Some(0.25)));
    for (every, expected) in [("30", NonZeroU64::new(30)), ("null", None)] {
        let text = format!(r#"{{"every_steps": {every}}}"#);
        let spec: EvaluationSpec = serde_json::from_str(&text).expect("it is one");
        assert_eq!(spec.every_steps, expected);
    }
}
