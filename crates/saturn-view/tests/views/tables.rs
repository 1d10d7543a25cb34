//! Every table must say the same of each task, as `docs/tables.md` defines it. The tests follow
//! numbers from ranks' messages to the console, the status, the report, its page, the comparison
//! and the explanation. The report and the status are kept for Python's part,
//! `tests/python/test_columns.py`.

use std::collections::BTreeSet;

use saturn_engine::{Record, Stage, TaskId};
use saturn_view::{
    Comparison, Paint, Status, Transcript, comparison_html, explain, render_html, status,
    status_text, units,
};
use serde_json::{Value, json};

use crate::charts::charts;
use crate::columns::{END_S, METRIC, ORDER, ROWS, Row, journal, report, run};
use crate::open_world;

/// Like `assert_eq`, for losses and values that may be NaN.
fn same(found: Option<f64>, expected: Option<f64>, row: &Row, table: &str) {
    let (found, expected) = (found.map(f64::to_bits), expected.map(f64::to_bits));
    assert_eq!(found, expected, "{} in {table}", row.task);
}

/// Compares seconds that are sums, so that rounding may differ.
fn close(found: Option<f64>, expected: Option<f64>, row: &Row, table: &str) {
    assert_eq!(found.is_some(), expected.is_some(), "{} in {table}", row.task);
    let apart = found.unwrap_or_default() - expected.unwrap_or_default();
    assert!(apart.abs() < 1e-9, "{} in {table}: {found:?}", row.task);
}

/// A number for people; empty if there is none.
fn shown(number: Option<f64>) -> String {
    number.map(units::number).unwrap_or_default()
}

/// A status in words for people.
fn told(status: &str) -> &str {
    if status == "unmeasured" { Stage::Unmeasured.word() } else { status }
}

#[test]
fn the_status_has_the_columns() {
    let (state, history) = journal();
    let found = status(&state, &history, END_S);
    let found: Status = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
    for (task, row) in found.tasks.iter().zip(&ROWS) {
        assert_eq!((&*task.name, task.stage.code()), (row.task, row.status));
        assert_eq!((task.step, task.attempts), (row.steps, row.attempts), "{}", row.task);
        assert_eq!(task.gpus, row.gpus, "{}", row.task);
        same(task.loss, row.loss, row, "status");
        same(task.value, row.value, row, "status");
        close(task.train_s, row.train_s, row, "status");
        same(task.started_s, row.times[0], row, "status");
    }
    let counts = (found.counts.done, found.counts.diverged, found.counts.open());
    assert_eq!(counts, (5, 2, 2));

    let text = status_text(&found, 160, Paint::PLAIN);
    for row in &ROWS {
        let line = text.lines().find(|line| line.starts_with(&format!("{} ", row.task))).unwrap();
        assert!(line[row.task.len()..].trim_start().starts_with(told(row.status)), "{line}");
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert!(row.loss.is_none() || cells.contains(&&*shown(row.loss)), "{line}");
        assert!(cells.contains(&format!("{}/100", row.steps).as_str()), "{line}");
        let is_judged = line.contains(&format!("{METRIC} {}", shown(row.value)));
        assert_eq!(is_judged, row.metric == METRIC, "{line}");
        assert!(!line.contains("accuracy"), "{line}");
    }
}

#[test]
fn the_report_its_page_and_the_comparison_have_the_columns() {
    let (state, history) = journal();
    let report = report(&state, &history);
    let page = render_html(&report);
    let compared = Comparison::of(std::slice::from_ref(&report));
    for (index, (task, row)) in report.tasks.iter().zip(&ROWS).enumerate() {
        let status = serde_json::to_value(task.status).unwrap();
        assert_eq!((&*task.name, status.as_str()), (row.task, Some(row.status)));
        assert_eq!((task.step, task.attempts), (row.steps, row.attempts), "{}", row.task);
        assert_eq!(task.gpus, row.gpus, "{}", row.task);
        same(task.final_loss, row.loss, row, "report.json");
        close(task.train_s, row.train_s, row, "report.json");
        for (found, expected) in [task.start_s, task.end_s, task.planned_s].iter().zip(row.times) {
            close(*found, expected, row, "report.json");
        }
        let html = rows_of(&page, index).pop().unwrap();
        let at = |seconds: Option<f64>| seconds.map_or("–".to_owned(), units::clock);
        let taken = |seconds: Option<f64>| seconds.map_or("–".to_owned(), units::duration);
        let strategy = row.gpus.map_or("–".to_owned(), |gpus| format!("ddp × {gpus}"));
        for cell in [
            told(row.status).to_owned(),
            row.loss.map_or("–".to_owned(), units::number),
            strategy,
            at(row.times[0]),
            at(row.times[1]),
            taken(row.times[2]),
            taken(row.train_s),
            row.attempts.to_string(),
        ] {
            assert!(html.contains(&format!(">{cell}<")), "{cell} in {html}");
        }
        let there = compared.tasks.iter().find(|one| one.name == row.task).unwrap();
        let there = there.runs[0].as_ref().unwrap();
        close(there.train_s, row.train_s, row, "comparison.json");
        let value = row.value.filter(|value| value.is_finite());
        assert_eq!((&*there.metric, there.value), (row.metric, value), "{}", row.task);
    }
    assert_eq!((report.totals.done, report.totals.diverged), (5, 2));
    for row in ROWS.iter().filter(|row| row.status == "diverged") {
        let task = TaskId(ROWS.iter().position(|one| one.task == row.task).unwrap());
        let why = explain(&state, &history, Some(task), END_S).text(200, Paint::PLAIN);
        let says = why.contains(&format!("{} diverged", row.task));
        assert!(says && why.contains(&shown(row.loss)), "{why}");
    }
}

/// The rows of a task in the page's tables. Its row in the table of tasks comes last.
fn rows_of(page: &str, task: usize) -> Vec<String> {
    let tasks = &page[..page.find("<h2>Plans</h2>").unwrap()];
    let start = format!("\"{task}\"");
    let rows = tasks.split("<tr data-task=").filter(|row| row.starts_with(&start));
    rows.map(|row| row[..row.find("</tr>").unwrap()].to_owned()).collect()
}

#[test]
fn done_and_stopped_tasks_are_ranked_before_others() {
    let (state, history) = journal();
    let report = report(&state, &history);
    let best = Comparison::of(std::slice::from_ref(&report)).runs[0].best.clone().unwrap();
    assert_eq!((&*best.task, best.value), ("moved", 0.0625));
    // The chart of parameters has its lines in the order of the ranking.
    let page = render_html(&report);
    let chart = charts(&page, "parallel").pop().unwrap();
    let lines = chart["lines"].as_array().unwrap().iter();
    let task_of = |line: &Value| usize::try_from(line["task"].as_u64().unwrap()).unwrap();
    let lines: Vec<&str> = lines.map(|line| ROWS[task_of(line)].task).collect();
    let by_name = |name: &str| ROWS.iter().find(|row| row.task == name).unwrap();
    let is_drawn = |name: &&str| {
        let row = by_name(name);
        row.metric == "loss" && row.value.is_some_and(f64::is_finite)
    };
    let expected: Vec<&str> = ORDER.into_iter().filter(is_drawn).collect();
    assert_eq!(lines, expected);

    // If all tasks that have a value failed or were cancelled, no task is the best.
    let mut left = report;
    left.tasks.retain(|task| ["failed", "cancelled", "diverged"].contains(&&*task.name));
    assert_eq!(Comparison::of(&[left]).runs[0].best, None);
}

/// Where the fixture of the Python test `test_columns.py` is.
const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/python/columns");

/// Python's tables are tested on these files, so they must match this run.
#[test]
fn the_fixture_of_the_python_test_is_of_this_run() {
    let (state, history) = journal();
    let rows = ROWS.iter().map(|row| {
        // A number as files hold it.
        let told = |number: Option<f64>| match number {
            Some(number) if number.is_nan() => json!("nan"),
            Some(number) if number.is_infinite() => json!("inf"),
            number => json!(number),
        };
        json!({
            "task": row.task, "status": row.status, "steps": row.steps, "attempts": row.attempts,
            "loss": told(row.loss), "metric": row.metric, "value": told(row.value),
            "train_s": row.train_s, "start_s": row.times[0], "end_s": row.times[1],
            "technique": row.gpus.map(|_| "ddp"), "gpus": row.gpus,
            "place": ORDER.iter().position(|name| *name == row.task),
        })
    });
    let rows = serde_json::to_string_pretty(&rows.collect::<Vec<_>>()).unwrap() + "\n";
    let status = status(&state, &history, END_S);
    let status = serde_json::to_string_pretty(&status).unwrap() + "\n";
    let mut report = report(&state, &history);
    // Python's tables do not use the choices.
    report.choices.clear();
    for (name, content) in [("rows", rows), ("status", status), ("report", report.to_json())] {
        let path = std::path::Path::new(FIXTURE).join(format!("{name}.json"));
        if std::env::var_os("SATURN_WRITE_COLUMNS").is_some() {
            std::fs::write(&path, &content).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == content,
            "{name}.json is not of this run: SATURN_WRITE_COLUMNS=1 writes it"
        );
    }
}

#[test]
fn the_console_says_what_the_tables_say() {
    let script = run();
    let mut told = script.told.iter();
    let (Record::Began { config }, _) = told.next().unwrap() else { panic!() };
    let mut state = saturn_engine::State::new(config.clone());
    let mut history = saturn_view::History::default();
    let mut transcript = Transcript::new(Paint::PLAIN, 160);
    let mut lines = Vec::new();
    for (record, now_s) in told {
        state.apply(record, *now_s);
        history.record(&state, record, *now_s);
        lines.extend(transcript.record(&state, &history, record, *now_s));
    }
    for row in ROWS.iter().filter(|row| matches!(row.status, "done" | "diverged")) {
        let verb = if row.status == "done" { "done" } else { "diverge" };
        let is_end = |line: &&String| {
            let mut words = line.split_whitespace().skip(1);
            words.next() == Some(verb) && words.next() == Some(row.task)
        };
        let line = lines.iter().find(is_end).unwrap_or_else(|| panic!("{lines:#?}"));
        let took = units::duration(row.train_s.unwrap());
        let said = format!("{} steps in {took}", row.steps);
        assert!(line.contains(&said), "{line}");
        assert!(line.contains(&format!("loss {}", shown(row.loss))), "{line}");
    }
}

#[test]
fn every_column_is_on_the_page_of_the_tables() {
    let page = include_str!("../../../../docs/tables.md");
    let mut defined = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cells = line.split('|').skip(1).take(2);
        // A heading may itself contain a comma.
        let words = cells.flat_map(|cell| cell.split(", ").chain([cell]));
        defined.extend(words.map(|word| word.trim().trim_matches(['`', '"'])));
    }
    let (state, history) = journal();
    let mut broken = report(&state, &history);
    broken.devices[0].set_aside = Some("it fails".to_owned());
    let mut whole = crate::report::whole_run();
    whole.name = "run".to_owned();
    let pages = [render_html(&broken), render_html(&whole), comparison_html(&[broken, whole])];
    let heads = pages.iter().flat_map(|page| page.split("<th").skip(1));
    let heads = heads.filter(|head| !head.starts_with("ead"));
    let heads =
        heads.map(|head| head[head.find('>').unwrap() + 1..head.find("</th>").unwrap()].to_owned());
    let going_on = open_world::training();
    let texts = [
        status_text(&status(&state, &history, END_S), 200, Paint::PLAIN),
        status_text(&status(&going_on.state, &going_on.history, 20.0), 200, Paint::PLAIN),
    ];
    let of_status = texts.iter().flat_map(|text| {
        let head = text.lines().find(|line| line.starts_with("task ")).unwrap();
        head.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    let columns: BTreeSet<String> = heads.chain(of_status).collect();
    assert!(columns.len() > 35, "{columns:?}");
    // Names with `×` are strategies, which are columns of the trials' table. A bar's column has no
    // name.
    let is_named = |name: &&String| !(name.is_empty() || name.contains('×'));
    let missing: Vec<&String> =
        columns.iter().filter(is_named).filter(|name| !defined.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "not on docs/tables.md: {missing:?}");
}
