//! Curves by step, or by another count, as data: a chart of several curves with its legend, and a
//! spark for a table row.
//!
//! Losses are noisy, so the script smooths them; pointing at a curve shows the recorded values too.
//! Values that are recorded seldom, such as evaluations, are drawn as they are, with a dot for
//! each.

use maud::{Markup, html};
use serde::Serialize;

use crate::html::charts;
use crate::layout::units::number;
use crate::report::metrics::LossPoint;

/// The most points of a spark.
const MAX_SPARK: usize = 60;

/// The size of a chart.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ChartSize {
    /// As wide as the page.
    Wide,
    /// Beside others.
    Small,
}

/// A curve of a chart.
#[derive(Debug, Serialize)]
pub(super) struct Curve<'a> {
    /// The key that marks curves to highlight together: the index of a task, or `r` and the index
    /// of a run.
    pub(super) key: String,
    /// The CSS class of its look.
    pub(super) class: String,
    /// The name of its task or run.
    #[serde(skip)]
    pub(super) name: &'a str,
    /// Values by step.
    pub(super) points: Vec<LossPoint>,
    /// The value shown after its name.
    #[serde(skip)]
    pub(super) value: Option<f64>,
}

/// A chart.
#[derive(Debug, Serialize)]
pub(super) struct Chart<'a> {
    /// A description for those who can't see the chart.
    #[serde(skip)]
    pub(super) label: String,
    /// Its size.
    pub(super) size: ChartSize,
    /// Noisy values are drawn as the mean of their neighbours, other values with a dot each.
    pub(super) is_noisy: bool,
    /// What is counted from left to right, such as `step`.
    pub(super) axis: &'static str,
    /// The curves.
    pub(super) curves: Vec<Curve<'a>>,
}

impl Chart<'_> {
    /// The element of the chart, and its legend; empty if there is no point.
    pub(super) fn markup(&self) -> Markup {
        if self.curves.iter().all(|curve| curve.points.is_empty()) {
            return Markup::default();
        }
        html! {
            (charts::element("curves", &self.label, self))
            div.chips {
                @for curve in &self.curves {
                    span.chip data-task=(curve.key) tabindex="0" {
                        (key(&curve.class))
                        (curve.name)
                        @if let Some(value) = curve.value { " " b { (number(value)) } }
                    }
                }
            }
        }
    }
}

/// An empty element, in which the script draws a short piece of a task's line for a legend.
pub(super) fn key(class: &str) -> Markup {
    html! { i.key.(class) {} }
}

/// The element of a small curve on a scale of its own. If there are many points, neighbours are
/// drawn as a single point.
pub(super) fn spark(class: &str, losses: &[LossPoint]) -> Markup {
    let together = losses.len().div_ceil(MAX_SPARK).max(1);
    let mean = |points: &[LossPoint]| {
        let sum: f64 = points.iter().map(|point| point.1).sum();
        (points[points.len() / 2].0, sum / points.len() as f64)
    };
    let points: Vec<LossPoint> = losses.chunks(together).map(mean).collect();
    html! {
        @if !points.is_empty() {
            div.spark.(class) data-chart="spark" { (charts::script_data(&points)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spark_has_few_points_of_equal_weight() {
        let falling: Vec<LossPoint> = (0..400).map(|step| (step, 400.0 - step as f64)).collect();
        let spark = spark("t0", &falling).0;
        let (_, points) = spark.split_once("json\">").unwrap();
        let points: Vec<LossPoint> =
            serde_json::from_str(points.split_once("</script>").unwrap().0).unwrap();
        assert_eq!((points.len(), points[0], points[1]), (58, (3, 397.0), (10, 390.0)));
        assert!(points.iter().all(|(step, loss)| (loss - (400.0 - *step as f64)).abs() < 2.0));
        assert_eq!(super::spark("t0", &[]).0, "");
    }
}
