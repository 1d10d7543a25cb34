//! Curves by step, or by another count: a chart of several curves with its legend, and a spark for a table row.
//!
//! Losses are smoothed, because batches are noisy. Pointing at a curve shows the recorded values
//! too. Values that are recorded seldom, such as evaluations, are drawn as they are, with a dot for
//! each.

use maud::{Markup, html};

use crate::html::colours::key;
use crate::html::parts::px;
use crate::layout::units::number;
use crate::report::metrics::LossPoint;

const LEFT: f64 = 56.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 36.0;
const SPARK_WIDTH: f64 = 92.0;
const SPARK_HEIGHT: f64 = 22.0;
/// Values whose ratio exceeds this are drawn on a logarithmic scale.
const LOG_RATIO: f64 = 12.0;
/// The size of a full-width chart in its own units; the page scales it.
pub(super) const WIDE: (f64, f64) = (1120.0, 380.0);
/// The size of a chart beside others.
pub(super) const SMALL: (f64, f64) = (560.0, 240.0);

/// A curve of a chart.
#[derive(Debug)]
pub(super) struct Curve<'a> {
    /// The key that marks curves to highlight together: the index of a task, or `r` and the index
    /// of a run.
    pub(super) key: String,
    /// The CSS class of its look.
    pub(super) class: String,
    /// The name of its task or run.
    pub(super) name: &'a str,
    /// Values by step.
    pub(super) points: Vec<LossPoint>,
    /// The value shown after its name.
    pub(super) value: Option<f64>,
}

/// A chart.
#[derive(Debug)]
pub(super) struct Chart<'a> {
    /// A description for those who can't see the chart.
    pub(super) label: String,
    /// Width and height.
    pub(super) size: (f64, f64),
    /// Noisy values are drawn as the mean of their neighbours, other values with a dot each.
    pub(super) is_noisy: bool,
    /// What is counted from left to right, such as `step`.
    pub(super) axis: &'static str,
    /// The curves: at least one, with at least one point.
    pub(super) curves: Vec<Curve<'a>>,
}

impl Chart<'_> {
    fn scale(&self) -> Option<Scale> {
        let drawn: Vec<LossPoint> =
            self.curves.iter().flat_map(|curve| self.drawn(curve)).collect();
        Scale::of(&drawn, self.size)
    }

    fn drawn(&self, curve: &Curve) -> Vec<LossPoint> {
        if self.is_noisy { smooth(&curve.points) } else { curve.points.clone() }
    }

    /// `linear` or `logarithmic`.
    pub(super) fn kind(&self) -> &'static str {
        if self.scale().is_some_and(|scale| scale.is_log) { "logarithmic" } else { "linear" }
    }

    /// The chart and its legend; empty if there is no point.
    pub(super) fn svg(&self) -> Markup {
        let Some(scale) = self.scale() else { return Markup::default() };
        let view = format!("0 0 {} {}", self.size.0, self.size.1);
        let is_small = self.size.0 < WIDE.0;
        html! {
            div.scroll {
                svg.curves.small[is_small] viewBox=(view) role="img" aria-label=(self.label) {
                    (scale.axes(self.axis))
                    @for curve in &self.curves {
                        g.curve.(curve.class) data-task=(curve.key) {
                            @if self.is_noisy {
                                polyline.raw points=(scale.points(&curve.points)) {}
                            } @else {
                                path.dots d=(scale.dots(&curve.points)) {}
                            }
                            polyline.smooth points=(scale.points(&self.drawn(curve))) {}
                        }
                    }
                }
            }
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

/// A small curve on a scale of its own.
pub(super) fn spark(class: &str, losses: &[LossPoint]) -> Markup {
    let smoothed = smooth(losses);
    let (Some(first), Some(last)) = (smoothed.first(), smoothed.last()) else {
        return Markup::default();
    };
    let (low, high) = range(&smoothed);
    let x = |step: u64| {
        1.0 + (step - first.0) as f64 / ((last.0 - first.0) as f64).max(1.0) * (SPARK_WIDTH - 2.0)
    };
    let y = |loss: f64| 2.0 + (high - loss) / (high - low).max(1e-12) * (SPARK_HEIGHT - 4.0);
    let every = smoothed.len().div_ceil(60);
    let points = smoothed.iter().step_by(every).chain([last]);
    let points: Vec<String> =
        points.map(|point| format!("{},{}", px(x(point.0)), px(y(point.1)))).collect();
    let view = format!("0 0 {SPARK_WIDTH} {SPARK_HEIGHT}");
    html! {
        svg.spark.(class) viewBox=(view) aria-hidden="true" {
            polyline points=(points.join(" ")) {}
        }
    }
}

/// Replaces each value by the mean of its neighbours on both sides, which does not lag as a running
/// mean would.
fn smooth(losses: &[LossPoint]) -> Vec<LossPoint> {
    let reach = losses.len().div_ceil(40);
    (0..losses.len())
        .map(|index| {
            let around = &losses[index.saturating_sub(reach)..losses.len().min(index + reach + 1)];
            let sum: f64 = around.iter().map(|point| point.1).sum();
            (losses[index].0, sum / around.len() as f64)
        })
        .collect()
}

/// The least and the greatest value.
fn range(points: &[LossPoint]) -> (f64, f64) {
    let losses = || points.iter().map(|point| point.1);
    (losses().fold(f64::INFINITY, f64::min), losses().fold(f64::NEG_INFINITY, f64::max))
}

/// Maps steps and values to positions in the chart.
struct Scale {
    width: f64,
    height: f64,
    max_step: f64,
    is_log: bool,
    /// The least value drawn, or its logarithm.
    low: f64,
    high: f64,
}

impl Scale {
    /// The scale for points that are already smoothed, if they are to be.
    fn of(points: &[LossPoint], (width, height): (f64, f64)) -> Option<Self> {
        let last_step = points.iter().map(|point| point.0).max()?;
        let (low, high) = range(points);
        let is_log = low > 0.0 && high / low > LOG_RATIO;
        let (low, high) = if is_log { (low.ln(), high.ln()) } else { (low, high) };
        let slack = ((high - low) * 0.04).max(1e-9);
        Some(Self {
            width,
            height,
            max_step: last_step as f64,
            is_log,
            low: low - slack,
            high: high + slack,
        })
    }

    fn x(&self, step: f64) -> f64 {
        LEFT + step / self.max_step.max(1.0) * (self.width - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(1e-300).ln() } else { value };
        let share = (self.high - value) / (self.high - self.low);
        TOP + share.clamp(0.0, 1.0) * (self.height - TOP - BOTTOM)
    }

    fn points(&self, points: &[LossPoint]) -> String {
        let points: Vec<String> = points
            .iter()
            .map(|(step, value)| format!("{},{}", px(self.x(*step as f64)), px(self.y(*value))))
            .collect();
        points.join(" ")
    }

    /// A path with a dot at each point: a line of no length with round ends.
    fn dots(&self, points: &[LossPoint]) -> String {
        let dot = |(step, value): &LossPoint| {
            format!("M{} {}h0", px(self.x(*step as f64)), px(self.y(*value)))
        };
        points.iter().map(dot).collect()
    }

    fn axes(&self, axis: &str) -> Markup {
        let step = nice_step(self.max_step * 140.0 / self.width).max(1.0);
        let steps = (0..=whole(self.max_step / step)).map(|index| f64::from(index) * step);
        html! {
            @for value in self.value_ticks() {
                @let y = self.y(value);
                line.grid x1=(LEFT) x2=(px(self.width - RIGHT)) y1=(px(y)) y2=(px(y)) {}
                text.tick.value x=(px(LEFT - 8.0)) y=(px(y + 4.0)) { (tick(value)) }
            }
            @for at in steps {
                text.tick x=(px(self.x(at))) y=(px(self.height - BOTTOM + 18.0)) { (at) }
            }
            text.axis x=(px(self.width - RIGHT)) y=(px(self.height - 2.0)) { (axis) }
        }
    }

    fn value_ticks(&self) -> Vec<f64> {
        if !self.is_log {
            let step = nice_step((self.high - self.low) / 6.0);
            let first = (self.low / step).ceil();
            let num_ticks = whole((self.high / step).floor() - first);
            return (0..=num_ticks).map(|index| (first + f64::from(index)) * step).collect();
        }
        let (low, high) = (self.low / std::f64::consts::LN_10, self.high / std::f64::consts::LN_10);
        // Labels must not touch. If there are many decades, only some get a label, and nothing
        // between them does.
        let digits: &[f64] = if high - low > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let every = ((high - low) / 8.0).ceil().max(1.0);
        let mut ticks = Vec::new();
        let mut decade = low.floor();
        while decade <= high {
            for digit in digits {
                let value = 10_f64.powf(decade) * digit;
                if (low..=high).contains(&value.log10()) {
                    ticks.push(value);
                }
            }
            decade += every;
        }
        ticks
    }
}

/// The least of 1, 2 and 5 times a power of ten that is not below `wanted`.
fn nice_step(wanted: f64) -> f64 {
    let decade = 10_f64.powf(wanted.max(1e-12).log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|digit| digit * decade).find(|step| *step >= wanted);
    step.unwrap_or(10.0 * decade)
}

fn whole(value: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of ticks: about ten"
    )]
    let whole = value.clamp(0.0, 1000.0) as u32;
    whole
}

fn tick(value: f64) -> String {
    if value != 0.0 && !(1e-4..1e5).contains(&value.abs()) {
        return format!("{value:.2e}").replace(".00e", "e");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_follows_without_a_lag() {
        let falling: Vec<LossPoint> = (0..400).map(|step| (step, 400.0 - step as f64)).collect();
        let smoothed = smooth(&falling);
        assert_eq!(smoothed.len(), falling.len());
        for (raw, mean) in falling[10..390].iter().zip(&smoothed[10..390]) {
            assert!((raw.1 - mean.1).abs() < 1e-9);
        }
        assert_eq!(smooth(&falling[..1]), [(0, 400.0)]);
    }

    #[test]
    fn a_flat_curve_and_odd_losses_still_have_a_scale() {
        for losses in
            [vec![(1, 2.0), (2, 2.0)], vec![(1, -1.0), (2, 0.0)], vec![(0, 1e9), (1, 1e-9)]]
        {
            let scale = Scale::of(&losses, WIDE).unwrap();
            assert!(!scale.points(&losses).contains("NaN"), "{losses:?}");
            assert!(scale.value_ticks().len() < 12);
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(nice_step(0.3).to_string(), "0.5");
        assert_eq!(nice_step(60.0).to_string(), "100");
        assert_eq!(tick(0.5), "0.5");
        assert_eq!(tick(20.0), "20");
        assert_eq!((tick(1e9), tick(2e-5)), ("1e9".to_owned(), "2e-5".to_owned()));
    }
}
