//! The report's trials: when each ran, what was measured, and why the others can't run.

use std::collections::BTreeSet;

use saturn_core::TrialOutcome;

use super::{concat, escape, schedule};
use crate::report::{Report, TrialReport};
use crate::units::{bytes, step_time};
use crate::words::technique_on;

/// Chart, table of measurements, reasons; empty without trials.
pub(super) fn section(report: &Report) -> String {
    if report.trials.is_empty() {
        return String::new();
    }
    concat([schedule::trials(report), measurements(report), reasons(report)])
}

/// A strategy on a type of device, as the table's columns are ordered: by type, then technique as
/// registered, then device count.
type Column<'a> = (&'a str, usize, u32);

fn column<'a>(report: &Report, trial: &'a TrialReport) -> Column<'a> {
    (&trial.gpu_type, technique_index(report, trial), trial.gpus)
}

fn columns(report: &Report) -> Vec<Column<'_>> {
    let columns: BTreeSet<Column<'_>> =
        report.trials.iter().map(|trial| column(report, trial)).collect();
    columns.into_iter().collect()
}

fn technique_index(report: &Report, trial: &TrialReport) -> usize {
    let position = report.techniques.iter().position(|name| *name == trial.technique);
    position.unwrap_or(report.techniques.len())
}

fn measurements(report: &Report) -> String {
    let columns = columns(report);
    let has_types = columns.iter().any(|(gpu_type, ..)| *gpu_type != columns[0].0);
    let headings = columns.iter().map(|(gpu_type, technique, gpus)| {
        let name = report.techniques.get(*technique).map_or("?", String::as_str);
        let on = if has_types { format!(" on {gpu_type}") } else { String::new() };
        format!("<th class=\"n\">{}</th>", escape(&(technique_on(name, *gpus) + &on)))
    });
    let measured: BTreeSet<usize> = report.trials.iter().map(|trial| trial.task).collect();
    let rows = measured.into_iter().map(|task| row(report, task, &columns));
    format!(
        "<p class=\"note\">Seconds a step and peak memory of each task under each strategy; the fastest is \
         bold. A task speaks for all that perform alike by construction.</p><div class=\"scroll\"><table>\
         <thead><tr><th>task</th>{}</tr></thead><tbody>{}</tbody></table></div>",
        concat(headings),
        concat(rows),
    )
}

fn row(report: &Report, task: usize, columns: &[Column<'_>]) -> String {
    let trials: Vec<&TrialReport> =
        report.trials.iter().filter(|trial| trial.task == task).collect();
    let fastest_s = trials
        .iter()
        .filter_map(|trial| match trial.result {
            Some(TrialOutcome::Measured { step_s, .. }) => Some(step_s),
            _ => None,
        })
        .fold(f64::INFINITY, f64::min);
    let cells = columns.iter().map(|wanted| {
        let trial = trials.iter().find(|one| column(report, one) == *wanted);
        trial.map_or_else(|| "<td class=\"n\"></td>".to_owned(), |trial| cell(trial, fastest_s))
    });
    let speaks_for = trials.first().map_or(&[][..], |trial| trial.speaks_for.as_slice());
    let others: Vec<&str> = speaks_for
        .iter()
        .filter(|other| **other != task)
        .filter_map(|other| report.tasks.get(*other))
        .map(|other| other.name.as_str())
        .collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!(
            "<div class=\"note\" title=\"{names}\">also for {names}</div>",
            names = escape(&others.join(", "))
        )
    };
    format!(
        "<tr data-task=\"{task}\"><td class=\"task\"><i class=\"dot t{task}\"></i>{}{others}</td>{}</tr>",
        escape(report.task_name(task)),
        concat(cells),
    )
}

fn cell(trial: &TrialReport, fastest_s: f64) -> String {
    let reused = if trial.reused { " · known" } else { "" };
    match &trial.result {
        Some(TrialOutcome::Measured { step_s, peak_memory_bytes, .. }) => {
            let time = step_time(*step_s);
            let is_fastest = (*step_s - fastest_s).abs() < f64::EPSILON;
            let time = if is_fastest { format!("<b>{time}</b>") } else { time };
            format!(
                "<td class=\"n\">{time}<div class=\"note\">{}{reused}</div></td>",
                bytes(*peak_memory_bytes)
            )
        }
        Some(outcome) => {
            let (class, word, why) = cannot_run(outcome);
            format!("<td class=\"n {class}\" title=\"{}\">{word}{reused}</td>", escape(why))
        }
        None => "<td class=\"n\">not tried</td>".to_owned(),
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

/// Why strategies can't run, each task's equal reasons together.
fn reasons(report: &Report) -> String {
    let mut reasons: Vec<(usize, &TrialOutcome, Vec<String>)> = Vec::new();
    for trial in &report.trials {
        let Some(outcome) = &trial.result else { continue };
        if matches!(outcome, TrialOutcome::Measured { .. }) {
            continue;
        }
        let strategy = technique_on(&trial.technique, trial.gpus);
        match reasons.iter_mut().find(|(task, known, _)| *task == trial.task && *known == outcome) {
            Some((_, _, strategies)) => strategies.push(strategy),
            None => reasons.push((trial.task, outcome, vec![strategy])),
        }
    }
    if reasons.is_empty() {
        return String::new();
    }
    let items = reasons.into_iter().map(|(task, outcome, strategies)| {
        let (class, word, why) = cannot_run(outcome);
        let traceback = match outcome {
            TrialOutcome::Failed { traceback, .. } if !traceback.trim().is_empty() => format!(
                "<details><summary>traceback</summary><pre>{}</pre></details>",
                escape(traceback.trim())
            ),
            _ => String::new(),
        };
        format!(
            "<tr data-task=\"{task}\"><td class=\"task\"><i class=\"dot t{task}\"></i>{}</td><td>{}</td>\
             <td class=\"{class}\">{word}</td><td class=\"why\">{}{traceback}</td></tr>",
            escape(report.task_name(task)),
            escape(&strategies.join(", ")),
            escape(why),
        )
    });
    format!(
        "<h3>What can't run, and why</h3><div class=\"scroll\"><table><thead><tr><th>task</th>\
         <th>strategies</th><th>outcome</th><th>reason</th></tr></thead><tbody>{}</tbody></table></div>",
        concat(items)
    )
}
