//! A run with a task of each kind, written as ranks' messages, and what every table must say of it.
//! `tables.rs` checks Rust's tables and `tests/python/test_columns.py` Python's, both by
//! `docs/tables.md`.

use saturn_core::Node;
use saturn_engine::{
    AttemptEnd, AttemptId, EvaluationSpec, Goal, GoalMode, PlanSource, Purpose, RankFailure,
    RankReport, Record, State, StopReason, TaskEnd, TaskId, TaskSpec, Wishes,
};
use saturn_view::{History, Report, read_metrics, replay};

use crate::open_world::{place, plan};
use crate::scripted::{self, Script, strategy};

/// The expected row of a task. Every task has 100 steps.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) task: &'static str,
    pub(crate) status: &'static str,
    pub(crate) loss: Option<f64>,
    pub(crate) steps: u64,
    /// Its training time, and the number of its training attempts.
    pub(crate) train_s: Option<f64>,
    pub(crate) attempts: usize,
    /// Its start, its end, and the seconds that the first plan with a place for it planned.
    pub(crate) times: [Option<f64>; 3],
    pub(crate) gpus: Option<u32>,
    pub(crate) metric: &'static str,
    pub(crate) value: Option<f64>,
}

const fn row(
    task: &'static str,
    status: &'static str,
    (loss, steps): (f64, u64),
    (train_s, attempts): (f64, usize),
    (start_s, end_s, planned_s): (f64, f64, f64),
) -> Row {
    Row {
        task,
        status,
        loss: Some(loss),
        steps,
        train_s: Some(train_s),
        attempts,
        times: [Some(start_s), Some(end_s), Some(planned_s)],
        gpus: Some(1),
        metric: "loss",
        value: Some(loss),
    }
}

/// The same row for a task that is judged by its evaluations.
const fn judged(value: f64, row: Row) -> Row {
    Row { metric: METRIC, value: Some(value), ..row }
}

/// The metric beside an accuracy, whose name comes first in the alphabet.
pub(crate) const METRIC: &str = "eval_loss";

/// The expected rows, in the order of the tasks.
pub(crate) const ROWS: [Row; 12] = [
    row("healthy", "done", (0.25, 100), (10.0, 1), (1.0, 11.0, 8.0)),
    row("diverged", "diverged", (f64::NAN, 100), (10.0, 1), (1.0, 11.0, 8.0)),
    row("exploded", "diverged", (f64::INFINITY, 100), (10.0, 1), (1.0, 11.0, 8.0)),
    row("stopped", "stopped", (0.625, 40), (5.0, 1), (1.0, 6.0, 9.0)),
    row("paused", "paused", (0.5, 30), (4.0, 1), (1.0, 5.0, 9.0)),
    // Steps after its checkpoint are lost, and with them the loss of 0.4 after 60 steps.
    row("failed", "failed", (0.03, 50), (8.0, 1), (1.0, 9.0, 9.0)),
    // It waited from 5 s to 20 s.
    row("resumed", "done", (0.125, 100), (11.0, 2), (1.0, 27.0, 7.0)),
    Row { gpus: Some(2), ..row("moved", "done", (0.0625, 100), (9.0, 2), (28.0, 38.0, 7.0)) },
    row("cancelled", "cancelled", (0.05, 20), (3.0, 1), (1.0, 4.0, 9.0)),
    // Its best evaluation was its first. Its last evaluation is not a number.
    judged(0.2, row("judged", "done", (0.3, 100), (10.0, 1), (1.0, 11.0, 8.0))),
    // The same evaluations, but none is kept as the best, so the last counts.
    judged(f64::NAN, row("followed", "done", (0.3, 100), (10.0, 1), (1.0, 11.0, 8.0))),
    Row {
        loss: None,
        train_s: None,
        times: [None; 3],
        gpus: None,
        value: None,
        ..row("new", "unmeasured", (0.0, 0), (0.0, 0), (0.0, 0.0, 0.0))
    },
];
/// The expected ranking, best first.
pub(crate) const ORDER: [&str; 12] = [
    "moved",
    "resumed",
    "judged",
    "healthy",
    "stopped",
    "failed",
    "cancelled",
    "paused",
    "diverged",
    "exploded",
    "followed",
    "new",
];
pub(crate) const END_S: f64 = 40.0;

/// Applies a line of rank 0, as the engine does.
fn say(script: &mut Script, attempt: AttemptId, line: &str, now_s: f64) {
    let task = script.state.attempts[&attempt].task;
    match serde_json::from_str(line).unwrap() {
        RankReport::Progress { step, loss, step_s } => {
            script.state.observe(attempt, step, loss, step_s, now_s);
        }
        RankReport::Checkpoint { step, save_s, blocked_s, loss } => {
            script.tell(now_s, Record::Checkpointed { attempt, step, save_s, blocked_s, loss });
        }
        RankReport::Finished { step, loss } => {
            script.state.observe(attempt, step, loss, None, now_s);
            let end = AttemptEnd::Finished;
            script.tell(now_s, Record::Ended { attempt, end, step, step_s: None });
            let loss = script.state.task(task).loss;
            script.tell(now_s, Record::TaskEnded { task, end: TaskEnd::Done { loss } });
        }
        RankReport::Evaluated { evaluation, best, evaluation_s } => {
            script.tell(now_s, Record::Evaluated { attempt, evaluation, best, evaluation_s });
        }
        RankReport::Stopped { step } => {
            let end = AttemptEnd::Stopped;
            script.tell(now_s, Record::Ended { attempt, end, step, step_s: None });
        }
        RankReport::Failed { kind, error, traceback } => {
            let failure = RankFailure { rank: 0, kind, error: error.clone(), traceback };
            let step = script.state.task(task).checkpoint_step;
            let end = AttemptEnd::Failed { failure };
            script.tell(now_s, Record::Ended { attempt, end, step, step_s: None });
            let end = TaskEnd::Failed { error, traceback: String::new() };
            script.tell(now_s, Record::TaskEnded { task, end });
        }
        other => panic!("{other:?}"),
    }
}

/// A task's spec. Tasks that are judged by a metric are evaluated.
fn spec(row: &Row, index: usize) -> TaskSpec {
    let mut spec = scripted::task(row.task, 100, row.task);
    spec.parameters.insert("lr".to_owned(), serde_json::json!(0.001 * (index + 1) as f64));
    if row.metric == METRIC {
        spec.goal = Some(Goal { metric: METRIC.to_owned(), mode: GoalMode::Min });
        spec.evaluation = Some(EvaluationSpec { every_steps: None });
    }
    if row.task == "new" {
        spec.wishes = Wishes { priority: 2, deadline_s: Some(90.0), ..Wishes::default() };
    }
    spec
}

/// A run with a task of each kind.
pub(crate) fn run() -> Script {
    let tasks: Vec<_> = (0..).zip(&ROWS).map(|(index, row)| spec(row, index)).collect();
    let mut script = Script::of(scripted::config(), &[Node::new("n0", 12, "cpu")], &tasks);
    script.tell(0.0, Record::DriverStarted { startup_s: 2.5 });
    script.tell(0.0, Record::Closed);
    let planned = (0u32..).zip(&ROWS).filter_map(|(index, row)| {
        let task = TaskId(index as usize);
        Some(place(task, scripted::gang(&[index]), 1.0, 1.0 + row.times[2]?))
    });
    script.tell(0.6, plan(0.6, PlanSource::Solver, planned.collect()));
    let launch = |script: &mut Script, task: usize, gpus: u32, now_s: f64, step: u64| {
        let devices: Vec<u32> = (0..gpus).collect();
        let attempt = script.launch(now_s, task, Purpose::Train, strategy("ddp", gpus), &devices);
        script.tell(now_s + 0.5, Record::Started { attempt, step, setup_s: 0.5 });
        attempt
    };
    let finished = |loss: &str| format!(r#"{{"type": "finished", "step": 100, "loss": {loss}}}"#);
    let progress = r#"{"type": "progress", "step": 1, "loss": 2.0, "step_s": 0.1}"#;
    let saved = |step: u64, loss: f64| {
        format!(
            r#"{{"type": "checkpoint", "step": {step}, "save_s": 0.1, "blocked_s": 0.1, "loss": {loss}}}"#
        )
    };
    let stopped = |step: u64| format!(r#"{{"type": "stopped", "step": {step}}}"#);

    for (task, loss) in ["0.25", r#""nan""#, r#""inf""#].into_iter().enumerate() {
        let attempt = launch(&mut script, task, 1, 1.0, 0);
        say(&mut script, attempt, progress, 2.0);
        say(&mut script, attempt, &finished(loss), 11.0);
    }
    let attempt = launch(&mut script, 3, 1, 1.0, 0);
    say(&mut script, attempt, progress, 2.0);
    say(&mut script, attempt, &saved(40, 0.625), 6.0);
    say(&mut script, attempt, &stopped(40), 6.0);
    let end = TaskEnd::Stopped { reason: "it is the worst".to_owned() };
    script.tell(6.0, Record::TaskEnded { task: TaskId(3), end });

    let attempt = launch(&mut script, 4, 1, 1.0, 0);
    say(&mut script, attempt, progress, 2.0);
    script.tell(4.0, Record::Paused { task: TaskId(4) });
    say(&mut script, attempt, &saved(30, 0.5), 5.0);
    say(&mut script, attempt, &stopped(30), 5.0);

    let attempt = launch(&mut script, 5, 1, 1.0, 0);
    say(&mut script, attempt, &saved(50, 0.03), 6.0);
    say(&mut script, attempt, &progress.replace("1, \"loss\": 2.0", "60, \"loss\": 0.4"), 8.0);
    let failed = r#"{"type": "failed", "kind": "task", "error": "OSError: no", "traceback": ""}"#;
    say(&mut script, attempt, failed, 9.0);

    // The task's driver dies after 5 s, and another driver resumes the run at 20 s.
    let attempt = launch(&mut script, 6, 1, 1.0, 0);
    say(&mut script, attempt, &saved(50, 0.5), 4.0);
    script.tell(5.0, Record::Ended { attempt, end: AttemptEnd::Lost, step: 50, step_s: None });
    script.tell(
        20.0,
        Record::Resumed { device_memory_bytes: None, machines: None, adopted: Vec::new() },
    );
    let attempt = launch(&mut script, 6, 1, 20.0, 50);
    say(&mut script, attempt, &finished("0.125"), 27.0);

    let attempt = launch(&mut script, 8, 1, 1.0, 0);
    say(&mut script, attempt, &saved(20, 0.05), 4.0);
    say(&mut script, attempt, &stopped(20), 4.0);
    let end = TaskEnd::Cancelled { reason: "not wanted".to_owned() };
    script.tell(4.0, Record::TaskEnded { task: TaskId(8), end });

    let found = |step: u64, loss: &str| {
        format!(r#""step": {step}, "metrics": {{"accuracy": 0.5, "eval_loss": {loss}}}"#)
    };
    for (task, is_kept) in [(9, true), (10, false)] {
        let best = format!(r#"{{"metric": "eval_loss", {}}}"#, found(40, "0.2"));
        let best = if is_kept { best } else { "null".to_owned() };
        let attempt = launch(&mut script, task, 1, 1.0, 0);
        for (step, loss, now_s) in [(40, "0.2", 5.0), (70, "0.5", 8.0), (100, r#""nan""#, 10.0)] {
            let found = found(step, loss);
            let line = format!(
                r#"{{"type": "evaluated", {found}, "best": {best}, "evaluation_s": 0.25}}"#
            );
            say(&mut script, attempt, &line, now_s);
        }
        say(&mut script, attempt, &finished("0.3"), 11.0);
    }

    let attempt = launch(&mut script, 7, 1, 28.0, 0);
    script.tell(30.0, Record::Stopping { attempt, reason: StopReason::Replan });
    say(&mut script, attempt, &saved(20, 1.5), 31.0);
    say(&mut script, attempt, &stopped(20), 31.0);
    let attempt = launch(&mut script, 7, 2, 32.0, 20);
    say(&mut script, attempt, &finished("0.0625"), 38.0);
    script.tell(END_S, Record::RunEnded { end: saturn_engine::RunEnd::Interrupted });
    script
}

/// The run as its journal gives it. Live values are gone.
pub(crate) fn journal() -> (State, History) {
    replay(run().told).unwrap()
}

pub(crate) fn report(state: &State, history: &History) -> Report {
    // Workers record more steps than count: those of the failed task include lost steps.
    let metrics = ROWS.iter().map(|row| {
        let lines = format!(
            "{{\"step\": 1, \"loss\": 2.0}}\n{{\"step\": {}, \"loss\": 0.4}}\n",
            row.steps + 10
        );
        let is_new = row.attempts == 0;
        read_metrics(if is_new { &b""[..] } else { lines.as_bytes() }).unwrap()
    });
    let report = Report::build(state, history, "run", metrics.collect());
    serde_json::from_str(&report.to_json()).unwrap()
}
