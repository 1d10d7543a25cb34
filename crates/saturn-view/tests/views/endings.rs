//! What is said once a run has stopped: an error in full once, how many tasks are done of how many
//! that may come; and of plans and due times only what a person wants to know.

use saturn_core::Node;
use saturn_engine::{
    AttemptEnd, FailureKind, Purpose, RankFailure, Record, RunEnd, RunPlan, TaskEnd, TaskId, Wishes,
};
use saturn_view::{Paint, Report, Results, explain, render_html, status, status_text, summary};

use crate::console::printed;
use crate::explained::five;
use crate::open_world;
use crate::scripted::{self, Script, strategy};

const ERROR: &str = "ValueError: the table has no column `b`";

/// A task's own code raises in its 21st and 22nd attempt, and the task is given up.
fn raising() -> Script {
    let mut script = Script::new();
    script.trials();
    script.plan();
    let failure = RankFailure {
        rank: 1,
        kind: FailureKind::Task,
        error: ERROR.to_owned(),
        traceback: format!(
            "Traceback (most recent call last):\n{}  File \"sweep.py\", line 12, in loss\n    raise",
            "  File \"torch.py\", line 1, in call\n".repeat(40)
        ),
    };
    for at_s in [18.0, 20.0] {
        let attempt = script.launch(at_s, 0, Purpose::Train, strategy("ddp", 2), &[0, 1]);
        script.tell(at_s + 0.5, Record::Started { attempt, step: 0, setup_s: 0.5 });
        let end = AttemptEnd::Failed { failure: failure.clone() };
        script.tell(at_s + 1.0, Record::Ended { attempt, end, step: 0, step_s: None });
    }
    let end = TaskEnd::Failed { error: ERROR.to_owned(), traceback: failure.traceback };
    script.tell(21.0, Record::TaskEnded { task: TaskId(0), end });
    script
}

#[test]
fn an_error_is_told_in_full_once_and_then_where_to_read_it() {
    let text = printed(&raising(), Paint::PLAIN);
    assert_eq!(text.matches(ERROR).count(), 1, "{text}");
    assert_eq!(text.matches("Traceback (most recent call last)").count(), 1, "{text}");
    for words in [
        "rank 1: the task's own code: the error of attempt 20 again",
        "give up  gpt-b8-lr1e-3  failed as attempt 20 says",
        "failed   gpt-b8-lr1e-3: failed in its own code\n",
        "failed   broken: no strategy can run it\n",
        "why: saturn explain '/home/me/saturn_runs/my sweep' TASK\n",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn an_explanation_has_the_end_of_the_traceback_and_the_log() {
    let script = raising();
    let explained = explain(&script.state, &script.history, Some(TaskId(0)), 22.0);
    let traceback = explained.traceback.as_deref().unwrap();
    assert_eq!(traceback.lines().count(), 20, "{traceback}");
    let log = "tasks/gpt-b8-lr1e-3/attempts/21/rank-1.log";
    assert_eq!(explained.log.as_deref(), Some(log));
    let text = explained.text(100, Paint::PLAIN);
    assert!(text.contains(&format!("│     raise\nlog: {log}\n")), "{text}");
    let of_another = explain(&script.state, &script.history, Some(TaskId(1)), 22.0);
    assert_eq!((of_another.traceback, of_another.log), (None, None));
}

/// A search whose first two tasks are done when a person stops it.
fn stopped_search(is_closed: bool) -> Script {
    let tasks = [scripted::task("trial-0", 10, "a"), scripted::task("trial-1", 10, "b")];
    let mut script = Script::of(scripted::config(), &[Node::new("n0", 2, "cpu")], &tasks);
    if is_closed {
        script.tell(0.0, Record::Closed);
    }
    script.some_trials(usize::MAX);
    for task in 0..2 {
        let attempt = script.launch(20.0, task, Purpose::Train, strategy("ddp", 1), &[0]);
        script.tell(20.5, Record::Started { attempt, step: 0, setup_s: 0.5 });
        script.end(attempt, 10, 1.0, 30.0);
    }
    script.tell(30.0, Record::Interrupted { at_once: false });
    script.tell(30.0, Record::RunEnded { end: RunEnd::Interrupted });
    script
}

#[test]
fn a_search_that_was_stopped_has_done_its_tasks_so_far() {
    for is_closed in [false, true] {
        let Script { state, history, .. } = stopped_search(is_closed);
        let words = if is_closed {
            "2 of 2 tasks done"
        } else {
            "2 of 2 tasks so far done; more may come once it is resumed"
        };
        let told = status_text(&status(&state, &history, 30.0), 100, Paint::PLAIN);
        let line = told.lines().nth(1).unwrap();
        assert_eq!(line, words);
        let last = summary(&state, &history, &Results::default(), Paint::PLAIN);
        assert_eq!(last[1], format!("interrupted: {words}"));
        let why = explain(&state, &history, None, 30.0).text(200, Paint::PLAIN);
        assert!(why.contains(words), "{why}");
        let page = render_html(&Report::build(&state, &history, "run", Vec::new()));
        assert_eq!(page.contains("2 of 2 so far"), !is_closed, "{page}");
        assert_eq!(page.contains("more may come once it is resumed"), !is_closed, "{page}");
    }
}

#[test]
fn a_run_with_failures_is_not_called_complete() {
    let script = five(true);
    let page = render_html(&Report::build(&script.state, &script.history, "run", Vec::new()));
    assert!(page.contains("4 done, 1 failed</span>") && !page.contains(">complete"), "{page}");
    let told = status(&script.state, &script.history, 51.4);
    let text = status_text(&told, 100, Paint::PLAIN);
    assert!(text.starts_with("ended with failures at 0:51\n4 of 5 tasks done, 1 failed\n"));
}

#[test]
fn a_plan_that_promises_the_same_is_not_set_beside_the_plan_before() {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    let plan = RunPlan {
        at_s: 30.0,
        makespan_s: 15.21,
        instead_of_s: Some(15.24),
        ..RunPlan::clone(&script.history.plans[0])
    };
    script.tell(30.0, Record::Planned { plan: plan.into() });
    let text = printed(&script, Paint::PLAIN);
    assert!(text.contains("new plan for 4 tasks: 15 s more, "), "{text}");
    assert!(!text.contains("instead of"), "{text}");
}

#[test]
fn a_due_time_is_shown_as_it_was_given() {
    let mut script = open_world::training();
    let wishes = Wishes { deadline_s: Some(75.0), ..Wishes::default() };
    script.tell(20.0, Record::Wished { task: open_world::VIT, wishes });
    let mut told = status(&script.state, &script.history, 20.0);
    told.tasks[open_world::VIT.0].due = Some("23:59".to_owned());
    let text = status_text(&told, 120, Paint::PLAIN);
    assert!(text.contains("23:59") && !text.contains("1:15"), "{text}");
    assert!(text.contains("run's clock, deadlines on this machine's;"), "{text}");
    let mut explained = explain(&script.state, &script.history, Some(open_world::VIT), 20.0);
    assert!(explained.text(100, Paint::PLAIN).contains("due at 1:15 of the run: it is"));
    explained.due = Some("23:59".to_owned());
    assert!(explained.text(100, Paint::PLAIN).contains("due at 23:59: it is expected"));
}
