//! Tests of lines for tasks that are evaluated while they train.

use saturn_core::Node;
use saturn_engine::{
    AttemptEnd, BestEvaluation, Evaluation, EvaluationSpec, Goal, GoalMode, Purpose, Record, State,
    TaskEnd, TaskId, TaskSpec,
};
use saturn_view::{
    History, Paint, Report, TaskMetrics, Transcript, render_html, status, status_text,
};

use crate::scripted::{self, Script, strategy};

const TASK: TaskId = TaskId(0);

fn found(step: u64, loss: Option<f64>) -> Evaluation {
    let metrics = [("acc <b>".to_owned(), Some(0.5)), ("eval_loss".to_owned(), loss)];
    Evaluation { step, metrics: metrics.into() }
}

/// A task with three evaluations in a quick sequence: the first is best, the last is not a number.
fn evaluated() -> Script {
    let evaluation = Some(EvaluationSpec { every_steps: None });
    let goal = Some(Goal { metric: "eval_loss".to_owned(), mode: GoalMode::Min });
    let spec = TaskSpec { evaluation, goal, ..scripted::task("gpt", 300, "gpt") };
    let mut script = Script::of(scripted::config(), &[Node::new("n0", 2, "cpu")], &[spec]);
    let attempt = script.launch(1.0, 0, Purpose::Train, strategy("ddp", 1), &[0]);
    script.tell(2.0, Record::Started { attempt, step: 0, setup_s: 1.0 });
    let best =
        BestEvaluation { metric: "eval_loss".to_owned(), evaluation: found(100, Some(0.25)) };
    for (step, loss, now_s) in [(100, Some(0.25), 12.0), (200, Some(0.5), 15.0), (300, None, 30.0)]
    {
        let record = Record::Evaluated {
            attempt,
            evaluation: found(step, loss),
            best: Some(best.clone()),
            evaluation_s: Some(1.5),
        };
        script.tell(now_s, record);
    }
    script
}

#[test]
fn the_console_tells_of_evaluations_but_not_of_all_in_a_row() {
    let mut script = evaluated();
    let (attempt, end) = (scripted_attempt(&script), AttemptEnd::Finished);
    script.tell(31.0, Record::Ended { attempt, end, step: 300, step_s: None });
    script.tell(31.0, Record::TaskEnded { task: TASK, end: TaskEnd::Done { loss: Some(0.1) } });
    let (mut state, mut history) = (State::new(scripted::config()), History::default());
    let mut transcript = Transcript::new(Paint::PLAIN, 100);
    let mut lines = Vec::new();
    for (record, now_s) in &script.told {
        state.apply(record, *now_s);
        history.record(&state, record, *now_s);
        lines.extend(transcript.record(&state, &history, record, *now_s));
    }
    let told: Vec<&String> =
        lines.iter().filter(|line| line.contains("eval") || line.contains("done")).collect();
    insta::assert_snapshot!(told.iter().map(|line| line.as_str()).collect::<Vec<_>>().join("\n"));
}

#[test]
fn status_and_report_have_the_last_and_the_best() {
    let script = evaluated();
    let status = status(&script.state, &script.history, 31.0);
    let task = &status.tasks[0];
    assert_eq!(task.evaluation, Some(found(300, None)));
    assert_eq!(task.best.as_ref().and_then(BestEvaluation::value), Some(0.25));
    assert!(status_text(&status, 120, Paint::PLAIN).contains("eval_loss 0.25"));
    let evaluations = vec![found(100, Some(0.25)), found(200, Some(0.5)), found(300, None)];
    let metrics = TaskMetrics { evaluations, ..TaskMetrics::default() };
    let report = Report::build(&script.state, &script.history, "run", vec![metrics]);
    let evaluation = report.tasks[0].evaluation.as_ref().unwrap();
    assert_eq!((evaluation.all.len(), evaluation.taken_s), (3, 4.5));
    assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
    let page = render_html(&report);
    let table = &page[page.find("Evaluation</h2>").unwrap()..];
    insta::assert_snapshot!(&table[..table.find("</table>").unwrap()]);
}

fn scripted_attempt(script: &Script) -> saturn_engine::AttemptId {
    script.state.attempt_of(TASK).unwrap().0
}
