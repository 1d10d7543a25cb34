//! The parameters of a search's tasks, and how well the tasks did.
//!
//! The chart has parallel coordinates: an axis for each parameter that differs, a last axis for the
//! value that tasks are judged by, and a line for each task. The better a task did, the more its
//! line stands out from the page. Lightness alone shows this, so that everybody sees it.
//!
//! A parameter's *importance* is the share of the variance of the tasks' ranks that it explains by
//! itself. The measure is ε²: the share between groups of equal values, less what chance would
//! give. Numbers with many values are put into four groups of about equal size. Importance says
//! nothing of parameters that matter only together.

use std::collections::BTreeSet;

use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;

use crate::html::charts;
use crate::html::parts::not_shown;
use crate::layout::units::{number, percent};
use crate::report::data::Report;
use crate::report::ranking::Ranked;

/// Numbers whose ratio exceeds this are drawn on a logarithmic scale.
const LOG_RATIO: f64 = 12.0;
/// The most lines, of the best tasks, and the most axes.
const MAX_LINES: usize = 300;
const MAX_AXES: usize = 8;
/// With fewer tasks than this no importance is computed.
const LEAST_TASKS: usize = 4;
/// Numbers with more different values than this are put into this many groups.
const NUM_GROUPS: usize = 4;

/// The chart and the importances; empty if no two tasks differ in a parameter.
pub(super) fn chart(report: &Report) -> Markup {
    let runs = report.ranked();
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.task.parameters.keys()).collect();
    let mut axes: Vec<(Axis, Option<f64>)> = names
        .into_iter()
        .filter_map(|name| Axis::of(name, &runs))
        .map(|axis| (importance(&axis, &runs), axis))
        .map(|(importance, axis)| (axis, importance))
        .collect();
    if axes.is_empty() || runs.len() < 2 {
        return Markup::default();
    }
    axes.sort_by(|(_, one), (_, other)| other.unwrap_or(0.0).total_cmp(&one.unwrap_or(0.0)));
    let num_left_out = axes.len().saturating_sub(MAX_AXES);
    axes.truncate(MAX_AXES);
    let metric = runs[0].task.metric();
    let values = Axis::of_values(metric, &runs);
    let drawn = &runs[..runs.len().min(MAX_LINES)];
    let parameters = || axes.iter().map(|(axis, _)| axis);
    let data = Data {
        axes: parameters().chain([&values]).map(Axis::data).collect(),
        lines: drawn.iter().map(|run| line(parameters(), &values, run)).collect(),
    };
    html! {
        p.note {
            "Each line is a task, from its parameters to its " (metric) ". Better tasks stand out. "
            "The most important parameters come first."
        }
        (charts::element("parallel", &format!("Parameters of each task, and its {metric}"), &data))
        @if axes.iter().any(|(_, importance)| importance.is_some()) {
            h3 { "Importance" span.note { "of how well tasks did, the share that a parameter explains by itself" } }
            table.importance {
                @for (axis, importance) in &axes {
                    @if let Some(importance) = importance {
                        tr {
                            td { (axis.name) }
                            td { div.share { i.main style=(format!("width:{:.1}%", importance * 100.0)) {} } }
                            td.n { (percent(*importance)) }
                        }
                    }
                }
            }
        }
        (not_shown(num_left_out, "parameter"))
        (not_shown(runs.len() - drawn.len(), "task"))
    }
}

/// The chart as the script reads it.
#[derive(Serialize)]
struct Data<'a> {
    /// The axes of parameters, then the axis of the values that tasks are judged by.
    axes: Vec<AxisData<'a>>,
    /// The lines of tasks, best first.
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct AxisData<'a> {
    name: &'a str,
    /// Texts with their positions up the axis, from 0 to 1.
    labels: Vec<(f64, String)>,
}

#[derive(Serialize)]
struct Line {
    task: usize,
    tip: String,
    /// Where the line crosses each axis, from 0 to 1.
    shares: Vec<f64>,
}

/// Maps values to positions on an axis.
enum Scale {
    /// Numbers, or their logarithms, between these limits.
    Numbers { is_log: bool, low: f64, high: f64 },
    /// Other values, evenly spaced from the bottom.
    Choices(Vec<String>),
}

/// The axis of a parameter, or of the value that tasks are judged by.
struct Axis {
    name: String,
    scale: Scale,
}

impl Axis {
    /// The axis of a parameter; `None` if it is equal in all tasks.
    fn of(name: &str, runs: &[Ranked]) -> Option<Self> {
        let found: Vec<Option<&Value>> =
            runs.iter().map(|run| run.task.parameters.get(name)).collect();
        let numbers: Option<Vec<f64>> =
            found.iter().map(|value| value.as_ref()?.as_f64()).collect();
        let scale = if let Some(numbers) = numbers {
            numeric(&numbers)
        } else {
            let texts: BTreeSet<String> = found.into_iter().map(text).collect();
            Scale::Choices(texts.into_iter().collect())
        };
        let differs = match &scale {
            Scale::Numbers { low, high, .. } => low < high,
            Scale::Choices(texts) => texts.len() > 1,
        };
        differs.then(|| Self { name: name.to_owned(), scale })
    }

    /// The axis of the value that tasks are judged by.
    fn of_values(metric: &str, runs: &[Ranked]) -> Self {
        let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
        Self { name: metric.to_owned(), scale: numeric(&values) }
    }

    /// How far up the axis a value is, from 0 to 1.
    fn share(&self, value: Option<&Value>) -> f64 {
        match &self.scale {
            Scale::Numbers { .. } => {
                self.share_of_number(value.and_then(Value::as_f64).unwrap_or(f64::NAN))
            }
            Scale::Choices(texts) => {
                let place = texts.binary_search(&text(value)).unwrap_or(0);
                place as f64 / (texts.len() - 1).max(1) as f64
            }
        }
    }

    fn share_of_number(&self, number: f64) -> f64 {
        let Scale::Numbers { is_log, low, high } = self.scale else { return 0.5 };
        let number = if is_log { number.ln() } else { number };
        let share = (number - low) / (high - low);
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.5 }
    }

    /// The axis with the values at its ends, or all of its choices.
    fn data(&self) -> AxisData<'_> {
        let labels: Vec<(f64, String)> = match &self.scale {
            Scale::Numbers { is_log, low, high } => {
                let shown = |end: f64| number(if *is_log { end.exp() } else { end });
                vec![(0.0, shown(*low)), (1.0, shown(*high))]
            }
            Scale::Choices(texts) => {
                let last = (texts.len() - 1).max(1) as f64;
                let every = texts.len().div_ceil(12);
                let placed = texts.iter().enumerate().step_by(every);
                placed.map(|(place, text)| (place as f64 / last, text.clone())).collect()
            }
        };
        AxisData { name: &self.name, labels }
    }
}

fn numeric(numbers: &[f64]) -> Scale {
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let is_log = low > 0.0 && high / low > LOG_RATIO;
    let (low, high) = if is_log { (low.ln(), high.ln()) } else { (low, high) };
    Scale::Numbers { is_log, low, high }
}

fn text(value: Option<&Value>) -> String {
    match value {
        None => "–".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// The line of a task through all axes.
fn line<'a>(parameters: impl Iterator<Item = &'a Axis>, values: &Axis, run: &Ranked) -> Line {
    let shares = parameters.map(|axis| axis.share(run.task.parameters.get(&axis.name)));
    Line {
        task: run.index,
        tip: format!("{}, {} {}", run.task.name, values.name, number(run.value)),
        shares: shares.chain([values.share_of_number(run.value)]).collect(),
    }
}

/// The importance of a parameter: ε², from 0 to 1. `None` if there are too few tasks, or as many
/// values as tasks.
fn importance(axis: &Axis, runs: &[Ranked]) -> Option<f64> {
    if runs.len() < LEAST_TASKS {
        return None;
    }
    let shares: Vec<f64> =
        runs.iter().map(|run| axis.share(run.task.parameters.get(&axis.name))).collect();
    let groups = grouped(&shares);
    let num_groups = groups.iter().copied().max()? + 1;
    if num_groups < 2 || num_groups >= runs.len() {
        return None;
    }
    let ranks: Vec<f64> = (0..runs.len()).map(|rank| rank as f64).collect();
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let overall = mean(&ranks);
    let total: f64 = ranks.iter().map(|rank| (rank - overall).powi(2)).sum();
    let within: f64 = (0..num_groups)
        .map(|group| {
            let of: Vec<f64> = ranks
                .iter()
                .zip(&groups)
                .filter(|(_, one)| **one == group)
                .map(|(rank, _)| *rank)
                .collect();
            let middle = mean(&of);
            of.iter().map(|rank| (rank - middle).powi(2)).sum::<f64>()
        })
        .sum();
    let by_chance = (num_groups - 1) as f64 * within / (runs.len() - num_groups) as f64;
    Some(((total - within - by_chance) / total).clamp(0.0, 1.0))
}

/// The group of each value. Equal values are in one group.
fn grouped(shares: &[f64]) -> Vec<usize> {
    let mut different: Vec<f64> = shares.to_vec();
    different.sort_by(f64::total_cmp);
    different.dedup_by(|one, other| one.total_cmp(other).is_eq());
    let per_group = different.len().div_ceil(NUM_GROUPS).max(1);
    let is_many = different.len() > NUM_GROUPS;
    shares
        .iter()
        .map(|share| {
            let place = different.partition_point(|one| one < share);
            if is_many { place / per_group } else { place }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_group_and_many_are_four() {
        assert_eq!(grouped(&[0.5, 0.0, 0.5, 1.0]), [1, 0, 1, 2]);
        let many: Vec<f64> = (0..8).map(|one| f64::from(one) / 7.0).collect();
        assert_eq!(grouped(&many), [0, 0, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn wide_ranges_are_logarithmic() {
        let axis = |numbers: &[f64]| Axis { name: "lr".to_owned(), scale: numeric(numbers) };
        let wide = axis(&[1e-4, 1e-2]);
        assert!((wide.share_of_number(1e-3) - 0.5).abs() < 1e-9);
        let narrow = axis(&[1.0, 3.0]);
        assert!((narrow.share_of_number(2.0) - 0.5).abs() < 1e-9);
        assert!((axis(&[2.0, 2.0]).share_of_number(2.0) - 0.5).abs() < 1e-9);
    }
}
