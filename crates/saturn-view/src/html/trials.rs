//! The report's trials: when each ran, what was measured, and why other strategies can't run.
//! Groups of tasks with the same reasons share a folded line.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use saturn_core::TrialOutcome;

use crate::html::parts::{names, not_shown, task_class};
use crate::html::schedule;
use crate::layout::units::{bytes, step_time};
use crate::phrases::inspected::{ruled_out, size};
use crate::phrases::words::technique_on;
use crate::report::data::{Report, TrialReport};

/// The most rows of each table.
const MAX_ROWS: usize = 200;
/// The most groups of tasks whose reasons a folded line gives one by one.
const MAX_TOLD: usize = 12;
/// The most tasks that a row names.
const MAX_ALIKE: usize = 40;

/// The chart, the table of measurements, and the reasons; empty without trials.
pub(super) fn body(report: &Report) -> Markup {
    if report.trials.is_empty() {
        return Markup::default();
    }
    html! { (schedule::trials(report)) (measurements(report)) (reasons(report)) }
}

/// A strategy on a type of device. The fields give the order of the table's columns: type, then
/// technique as registered, then number of devices.
type Column<'a> = (&'a str, usize, u32);

fn column<'a>(report: &Report, trial: &'a TrialReport) -> Column<'a> {
    let position = report.techniques.iter().position(|name| *name == trial.technique);
    (&trial.gpu_type, position.unwrap_or(report.techniques.len()), trial.gpus)
}

fn measurements(report: &Report) -> Markup {
    let mut rows: BTreeMap<usize, BTreeMap<Column<'_>, &TrialReport>> = BTreeMap::new();
    for trial in &report.trials {
        rows.entry(trial.task).or_default().insert(column(report, trial), trial);
    }
    let is_measured =
        |trial: &TrialReport| matches!(trial.result, Some(TrialOutcome::Measured { .. }));
    let measured = rows.values().flatten().filter(|(_, trial)| is_measured(trial));
    let columns: BTreeSet<Column<'_>> = measured.map(|(column, _)| *column).collect();
    if columns.is_empty() {
        return Markup::default();
    }
    let types: BTreeSet<&str> = columns.iter().map(|(gpu_type, ..)| *gpu_type).collect();
    let heading = |(gpu_type, technique, gpus): &Column<'_>| {
        let name = report.techniques.get(*technique).map_or("?", String::as_str);
        let on = if types.len() > 1 { format!(" on {gpu_type}") } else { String::new() };
        technique_on(name, *gpus) + &on
    };
    html! {
        p.note {
            "Seconds a step and peak memory of each task under each strategy; the fastest is bold. \
             What a task takes holds for all that perform alike by construction. A strategy that was \
             measured for no task has no column."
        }
        div.scroll {
            table {
                thead { tr { th { "task" } @for column in &columns { th.n { (heading(column)) } } } }
                tbody {
                    @for (task, trials) in rows.iter().take(MAX_ROWS) {
                        (row(report, *task, trials, &columns))
                    }
                }
            }
        }
        (not_shown(rows.len().saturating_sub(MAX_ROWS), "task"))
    }
}

fn row(
    report: &Report,
    task: usize,
    trials: &BTreeMap<Column<'_>, &TrialReport>,
    columns: &BTreeSet<Column<'_>>,
) -> Markup {
    let fastest_s = trials
        .values()
        .filter_map(|trial| match trial.result {
            Some(TrialOutcome::Measured { step_s, .. }) => Some(step_s),
            _ => None,
        })
        .fold(f64::INFINITY, f64::min);
    let speaks_for = trials.values().next().map_or(&[][..], |trial| trial.speaks_for.as_slice());
    let others = speaks_for.iter().filter(|other| **other != task);
    let mut others: Vec<&str> = others.map(|other| report.task_name(*other)).collect();
    let num_more = others.len().saturating_sub(MAX_ALIKE);
    others.truncate(MAX_ALIKE);
    let mut others = others.join(", ");
    if num_more > 0 {
        others = format!("{others} and {num_more} more");
    }
    html! {
        tr data-task=(task) {
            td.task {
                i.dot.(task_class(task)) {}
                (report.task_name(task))
                @if !others.is_empty() { div.note title=(others) { "also for " (others) } }
            }
            @for column in columns {
                @match trials.get(column) {
                    Some(trial) => (cell(trial, fastest_s)),
                    None => td.n {},
                }
            }
        }
    }
}

fn cell(trial: &TrialReport, fastest_s: f64) -> Markup {
    let reused = if trial.reused { " · known" } else { "" };
    match &trial.result {
        Some(TrialOutcome::Measured { step_s, peak_memory_bytes, .. }) => {
            let is_fastest = (*step_s - fastest_s).abs() < f64::EPSILON;
            html! {
                td.n {
                    @if is_fastest { b { (step_time(*step_s)) } } @else { (step_time(*step_s)) }
                    div.note { (bytes(*peak_memory_bytes)) (reused) }
                }
            }
        }
        Some(outcome) => {
            let (class, word, why) = cannot_run(outcome);
            html! { td.n.(class) title=(why) { (word) (reused) } }
        }
        None => html! { td.n { "not tried" } },
    }
}

/// The CSS class, word and reason of an outcome without a measurement.
fn cannot_run(outcome: &TrialOutcome) -> (&'static str, &'static str, &str) {
    match outcome {
        TrialOutcome::Measured { .. } => ("", "measured", ""),
        TrialOutcome::NotApplicable { reason } => ("dim", "not applicable", reason),
        TrialOutcome::OutOfMemory { detail } => ("warn", "out of memory", detail),
        TrialOutcome::Failed { error, .. } => ("bad", "failed", error),
    }
}

/// The strategies that can't run a group of tasks.
struct Refused<'a> {
    /// The task that was measured for the group.
    task: usize,
    /// All tasks of the group.
    tasks: &'a [usize],
    /// The different outcomes, each with its strategies.
    outcomes: Vec<(&'a TrialOutcome, Vec<String>)>,
    /// The outcomes in a few words.
    words: String,
}

impl<'a> Refused<'a> {
    /// The impossible strategies of a group, from its trials; `None` if there is none.
    fn of(report: &'a Report, task: usize, trials: &[&'a TrialReport]) -> Option<Self> {
        let mut outcomes: Vec<(&TrialOutcome, Vec<String>)> = Vec::new();
        let mut has_run: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for trial in trials {
            let Some(outcome) = &trial.result else { continue };
            if matches!(outcome, TrialOutcome::Measured { .. }) {
                continue;
            }
            let strategy = technique_on(&trial.technique, trial.gpus);
            if !trial.ruled_out {
                has_run.entry(cannot_run(outcome).1).or_default().push(strategy.clone());
            }
            match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
                Some((_, strategies)) => strategies.push(strategy),
                None => outcomes.push((outcome, vec![strategy])),
            }
        }
        let found = report.inspections.iter().find(|one| one.task == task);
        let never_run = trials.iter().any(|trial| trial.ruled_out);
        let ruled_out = found.filter(|_| never_run).and_then(|one| ruled_out(&one.found));
        let has_run = has_run
            .into_iter()
            .map(|(word, strategies)| format!("{word}: {}", strategies.join(", ")));
        let words: Vec<String> = ruled_out.into_iter().chain(has_run).collect();
        let tasks = trials.first()?.speaks_for.as_slice();
        let words = words.join("; ");
        (!outcomes.is_empty()).then_some(Self { task, tasks, outcomes, words })
    }
}

/// Why strategies can't run. Groups with the same reasons share a folded line.
fn reasons(report: &Report) -> Markup {
    let mut by_group: BTreeMap<usize, Vec<&TrialReport>> = BTreeMap::new();
    for trial in &report.trials {
        by_group.entry(trial.task).or_default().push(trial);
    }
    let refused = by_group.iter().filter_map(|(task, trials)| Refused::of(report, *task, trials));
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut lines: Vec<Vec<Refused>> = Vec::new();
    for one in refused {
        let place = *places.entry(one.words.clone()).or_insert(lines.len());
        if place == lines.len() {
            lines.push(Vec::new());
        }
        lines[place].push(one);
    }
    let num_left_out = lines.iter().skip(MAX_ROWS).flatten().map(|one| one.tasks.len()).sum();
    html! {
        @if !lines.is_empty() {
            h3 { "What can't run, and why" }
            @for line in lines.iter().take(MAX_ROWS) { (folded(report, line)) }
            (not_shown(num_left_out, "task"))
        }
    }
}

fn folded(report: &Report, groups: &[Refused]) -> Markup {
    let mut tasks: Vec<usize> = groups.iter().flat_map(|one| one.tasks).copied().collect();
    tasks.sort_unstable();
    let words = groups.first().map_or("", |one| one.words.as_str());
    html! {
        details.fold {
            summary { b { (names(report, &tasks)) } " " span { (words) } }
            @for one in groups.iter().take(MAX_TOLD) {
                p.note {
                    @if groups.len() > 1 { (report.task_name(one.task)) ": " }
                    (report.inspections.iter().find(|found| found.task == one.task)
                        .map(|found| size(&found.found)).unwrap_or_default())
                }
                ul {
                    @for (outcome, strategies) in &one.outcomes { (reason(outcome, strategies)) }
                }
            }
            (not_shown(groups.len().saturating_sub(MAX_TOLD), "group"))
        }
    }
}

fn reason(outcome: &TrialOutcome, strategies: &[String]) -> Markup {
    let (class, word, why) = cannot_run(outcome);
    let traceback = match outcome {
        TrialOutcome::Failed { traceback, .. } => traceback.trim(),
        _ => "",
    };
    html! {
        li {
            (strategies.join(", ")) " " span.(class) { (word) } ": " (why)
            @if !traceback.is_empty() {
                details { summary { "traceback" } pre { (traceback) } }
            }
        }
    }
}
