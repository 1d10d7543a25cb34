//! The report's trials: when each ran, what was measured, and why the others can't run. What was
//! ruled out by a look at the model, and never run, is one line for all tasks that perform alike.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use saturn_core::TrialOutcome;

use super::{not_shown, schedule, task_class};
use crate::inspected::{ruled_out, size};
use crate::report::{Report, TrialReport};
use crate::units::{bytes, count, step_time};
use crate::words::technique_on;

/// Rows of each table.
const MAX_ROWS: usize = 200;
/// Tasks that a row names.
const MAX_ALIKE: usize = 40;

/// Chart, table of measurements, reasons; empty without trials.
pub(super) fn body(report: &Report) -> Markup {
    if report.trials.is_empty() {
        return Markup::default();
    }
    html! { (schedule::trials(report)) (measurements(report)) (reasons(report)) }
}

/// A strategy on a type of device, as the table's columns are ordered: by type, then technique as
/// registered, then device count.
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
    let run = rows.values().flatten().filter(|(_, trial)| !trial.ruled_out);
    let columns: BTreeSet<Column<'_>> = run.map(|(column, _)| *column).collect();
    let types: BTreeSet<&str> = columns.iter().map(|(gpu_type, ..)| *gpu_type).collect();
    let heading = |(gpu_type, technique, gpus): &Column<'_>| {
        let name = report.techniques.get(*technique).map_or("?", String::as_str);
        let on = if types.len() > 1 { format!(" on {gpu_type}") } else { String::new() };
        technique_on(name, *gpus) + &on
    };
    html! {
        p.note {
            "Seconds a step and peak memory of each task under each strategy; the fastest is bold. A task \
             speaks for all that perform alike by construction. What a look at the model has ruled out for \
             all of them has no column."
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

/// Class, word and reason of an outcome that is no measurement.
fn cannot_run(outcome: &TrialOutcome) -> (&'static str, &'static str, &str) {
    match outcome {
        TrialOutcome::Measured { .. } => ("", "measured", ""),
        TrialOutcome::NotApplicable { reason } => ("dim", "not applicable", reason),
        TrialOutcome::OutOfMemory { detail } => ("warn", "out of memory", detail),
        TrialOutcome::Failed { error, .. } => ("bad", "failed", error),
    }
}

/// Why strategies can't run: what was ruled out on one line a task, then each task's equal reasons
/// together.
fn reasons(report: &Report) -> Markup {
    let mut reasons: Vec<(usize, &TrialOutcome, Vec<String>)> = Vec::new();
    let mut never_run: BTreeMap<usize, Vec<&TrialReport>> = BTreeMap::new();
    for trial in &report.trials {
        if trial.ruled_out {
            never_run.entry(trial.task).or_default().push(trial);
            continue;
        }
        let Some(outcome) = &trial.result else { continue };
        if matches!(outcome, TrialOutcome::Measured { .. }) {
            continue;
        }
        let strategy = technique_on(&trial.technique, trial.gpus);
        // A task's trials stand together.
        let of_task = reasons.iter_mut().rev().take_while(|(task, ..)| *task == trial.task);
        match of_task.into_iter().find(|(_, known, _)| *known == outcome) {
            Some((_, _, strategies)) => strategies.push(strategy),
            None => reasons.push((trial.task, outcome, vec![strategy])),
        }
    }
    if reasons.is_empty() && never_run.is_empty() {
        return Markup::default();
    }
    html! {
        h3 { "What can't run, and why" }
        div.scroll {
            table {
                thead {
                    tr { th { "task" } th { "strategies" } th { "outcome" } th { "reason" } }
                }
                tbody {
                    @for (task, trials) in never_run.iter().take(MAX_ROWS) {
                        (never_run_row(report, *task, trials))
                    }
                    @for (task, outcome, strategies) in reasons.iter().take(MAX_ROWS) {
                        (reason_row(report, *task, outcome, strategies))
                    }
                }
            }
        }
        (not_shown(never_run.len().saturating_sub(MAX_ROWS), "task"))
        (not_shown(reasons.len().saturating_sub(MAX_ROWS), "reason"))
    }
}

/// What was never run for a task and those like it; the reasons are there for whoever asks.
fn never_run_row(report: &Report, task: usize, trials: &[&TrialReport]) -> Markup {
    let found = report.inspections.iter().find(|one| one.task == task);
    let found = found.map(|one| &one.found);
    html! {
        tr data-task=(task) {
            td.task { i.dot.(task_class(task)) {} (report.task_name(task)) }
            td { (found.and_then(ruled_out).unwrap_or_default()) }
            td.dim { "never run" }
            td.why {
                (found.map(size).unwrap_or_default())
                details {
                    summary { (count(trials.len(), "reason")) }
                    ul {
                        @for trial in trials {
                            @if let Some(outcome) = &trial.result {
                                li {
                                    (technique_on(&trial.technique, trial.gpus)) " on "
                                    (trial.gpu_type) ": " (cannot_run(outcome).2)
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn reason_row(
    report: &Report,
    task: usize,
    outcome: &TrialOutcome,
    strategies: &[String],
) -> Markup {
    let (class, word, why) = cannot_run(outcome);
    let traceback = match outcome {
        TrialOutcome::Failed { traceback, .. } => traceback.trim(),
        _ => "",
    };
    html! {
        tr data-task=(task) {
            td.task { i.dot.(task_class(task)) {} (report.task_name(task)) }
            td { (strategies.join(", ")) }
            td class=(class) { (word) }
            td.why {
                (why)
                @if !traceback.is_empty() {
                    details { summary { "traceback" } pre { (traceback) } }
                }
            }
        }
    }
}
