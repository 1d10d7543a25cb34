//! Evaluations: a chart of each metric by step, and a table with each task's last and best.

use std::collections::BTreeMap;

use maud::{Markup, html};
use saturn_engine::Evaluation;

use crate::html::curves::{Chart, ChartSize, Curve, spark};
use crate::html::losses::MAX_CURVES;
use crate::html::parts::{long_table, not_shown, task_class};
use crate::layout::units::{duration, number};
use crate::phrases::words::metrics;
use crate::report::data::{EvaluationReport, Report, TaskReport};
use crate::report::metrics::LossPoint;

/// The most rows of the table.
const MAX_TASKS: usize = 1000;
/// The most metrics with a chart. Metrics that most tasks are judged by come first.
const MAX_CHARTS: usize = 6;

/// The tasks that have a metric, with their indices in the report, and how many are judged by it.
type TasksOfMetric<'a> = (Vec<(usize, &'a TaskReport)>, usize);

/// A chart of each metric; empty if no task was evaluated.
pub(super) fn charts(report: &Report) -> Markup {
    let mut metrics: BTreeMap<&str, TasksOfMetric<'_>> = BTreeMap::new();
    for (index, task) in report.tasks.iter().enumerate() {
        let Some(evaluation) = &task.evaluation else { continue };
        let Some(last) = &evaluation.last else { continue };
        let chief = chief_name(task, last);
        for name in last.metrics.keys() {
            let (tasks, num_judged) = metrics.entry(name).or_default();
            tasks.push((index, task));
            *num_judged += usize::from(chief == Some(name));
        }
    }
    let mut metrics: Vec<_> = metrics.into_iter().collect();
    metrics.sort_by_key(|(_, (_, num_judged))| std::cmp::Reverse(*num_judged));
    let size = if metrics.len() == 1 { ChartSize::Wide } else { ChartSize::Small };
    let num_left_out = metrics.len().saturating_sub(MAX_CHARTS);
    let drawn = metrics.into_iter().take(MAX_CHARTS);
    let charts: Vec<(&str, Markup)> = drawn
        .map(|(name, (tasks, _))| {
            let curves = tasks.into_iter().filter_map(|(index, task)| {
                let points = points(task, name);
                let value = points.last().map(|point| point.1);
                let (key, class) = (index.to_string(), task_class(index));
                (!points.is_empty()).then_some(Curve {
                    key,
                    class,
                    name: &task.name,
                    points,
                    value,
                })
            });
            let curves = curves.take(MAX_CURVES).collect();
            let label = format!("{name} of each evaluation by step");
            (name, Chart { label, size, is_noisy: false, axis: "step", curves }.markup())
        })
        .filter(|(_, chart)| !chart.0.is_empty())
        .collect();
    html! {
        @if !charts.is_empty() {
            p.note { "A dot an evaluation, by step." }
            div.multiples {
                @for (name, chart) in &charts { div { h3 { (name) } (chart) } }
            }
            (not_shown(num_left_out, "metric"))
        }
    }
}

/// The metric to draw for a task: the one that it is judged by, or else the first of its
/// evaluations.
pub(super) fn chief_name<'a>(task: &'a TaskReport, last: &'a Evaluation) -> Option<&'a str> {
    let first = || last.metrics.keys().next().map(String::as_str);
    last.metrics.contains_key(task.metric()).then(|| task.metric()).or_else(first)
}

/// A metric of a task's evaluations by step. A value that is not a number gives no point.
pub(super) fn points(task: &TaskReport, metric: &str) -> Vec<LossPoint> {
    let all = task.evaluation.iter().flat_map(|evaluation| &evaluation.all);
    all.filter_map(|one| Some((one.step, one.metrics.get(metric).copied().flatten()?)))
        .filter(|point| point.1.is_finite())
        .collect()
}

/// The table of evaluated tasks; empty if there is none.
pub(super) fn table(report: &Report) -> Markup {
    let evaluated = || {
        let tasks = report.tasks.iter().enumerate();
        tasks.filter_map(|(index, task)| {
            let evaluation = task.evaluation.as_ref()?;
            Some((index, task, evaluation, evaluation.last.as_ref()?))
        })
    };
    let num_tasks = evaluated().count();
    if num_tasks == 0 {
        return Markup::default();
    }
    let head = html! {
        tr {
            th { "task" } th { "curve" } th { "last" } th.n { "at step" } th { "best" }
            th.n { "at step" }
            th.n title="for how much of its time training stood still for evaluations" { "taken" }
        }
    };
    let rows = evaluated().take(MAX_TASKS);
    let rows: Vec<Markup> =
        rows.map(|(index, task, evaluation, last)| row(index, task, evaluation, last)).collect();
    html! {
        (long_table(&head, &rows, "task"))
        (not_shown(num_tasks.saturating_sub(MAX_TASKS), "task"))
    }
}

fn row(
    index: usize,
    task: &TaskReport,
    evaluation: &EvaluationReport,
    last: &Evaluation,
) -> Markup {
    let best = evaluation.best.as_ref();
    let chief = chief_name(task, last);
    let points = chief.map(|name| points(task, name)).unwrap_or_default();
    html! {
        tr data-task=(index) {
            td.task { i.dot.(task_class(index)) {} (task.name) }
            td title=[chief] { (spark(&task_class(index), &points)) }
            td { (metrics(last)) }
            td.n { (last.step) }
            @match best {
                Some(best) => {
                    td {
                        (best.metric) " "
                        b { (best.value().map_or_else(|| "–".to_owned(), number)) }
                    }
                    td.n { (best.evaluation.step) }
                }
                None => { td { "–" } td.n { "–" } }
            }
            td.n { (duration(evaluation.taken_s)) }
        }
    }
}
