//! The chart of all tasks' training losses.

use maud::{Markup, html};

use crate::html::curves::{Chart, ChartSize, Curve};
use crate::html::parts::{not_shown, task_class};
use crate::report::data::Report;

/// The most curves in a chart.
pub(super) const MAX_CURVES: usize = 60;

/// The chart with its legend; empty if no task has two points.
pub(super) fn chart(report: &Report) -> Markup {
    let has_curve = || report.tasks.iter().enumerate().filter(|(_, task)| task.losses.len() > 1);
    let num_left_out = has_curve().count().saturating_sub(MAX_CURVES);
    let curves = has_curve().take(MAX_CURVES).map(|(index, task)| Curve {
        key: index.to_string(),
        class: task_class(index),
        name: &task.name,
        points: task.losses.clone(),
        value: task.final_loss,
    });
    let chart = Chart {
        label: "Training loss of each task by step".to_owned(),
        size: ChartSize::Wide,
        is_noisy: true,
        axis: "step",
        curves: curves.collect(),
    };
    if chart.curves.is_empty() {
        return Markup::default();
    }
    html! {
        p.note {
            "Training loss by step, smoothed. Point at a task for its raw losses."
        }
        (chart.markup())
        (not_shown(num_left_out, "task"))
    }
}
