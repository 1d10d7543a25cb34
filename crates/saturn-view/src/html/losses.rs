//! Loss curves: one chart for all tasks, and a spark for each row of the table.
//!
//! Curves are smoothed, because batches are noisy; pointing at a task shows its raw losses too.

use maud::{Markup, html};

use super::{not_shown, px, task_class};
use crate::report::{LossPoint, Report};
use crate::units::number;

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 36.0;
const SPARK_WIDTH: f64 = 92.0;
const SPARK_HEIGHT: f64 = 22.0;
/// Losses further apart than this are drawn on a logarithmic scale.
const LOG_RATIO: f64 = 12.0;
/// The most curves that one chart has.
const MAX_CURVES: usize = 60;

/// The chart of all tasks with its legend; empty where no task has two points.
pub(super) fn chart(report: &Report) -> Markup {
    let has_curve = || report.tasks.iter().enumerate().filter(|(_, task)| task.losses.len() > 1);
    let num_left_out = has_curve().count().saturating_sub(MAX_CURVES);
    let drawn = || has_curve().take(MAX_CURVES);
    let Some(scale) = Scale::of(drawn().map(|(_, task)| task.losses.as_slice())) else {
        return Markup::default();
    };
    let kind = if scale.is_log { "logarithmic" } else { "linear" };
    let view = format!("0 0 {WIDTH} {HEIGHT}");
    html! {
        p.note {
            "Training loss by step, smoothed; " (kind) " scale. Point at a task for its raw losses."
        }
        div.scroll {
            svg.losses viewBox=(view) role="img" aria-label="Training loss of each task by step" {
                (scale.axes())
                @for (index, task) in drawn() {
                    g.curve.(task_class(index)) data-task=(index) {
                        polyline.raw points=(scale.points(&task.losses)) {}
                        polyline.smooth points=(scale.points(&smooth(&task.losses))) {}
                    }
                }
            }
        }
        div.chips {
            @for (index, task) in drawn() {
                span.chip data-task=(index) tabindex="0" {
                    i.dot.(task_class(index)) {}
                    (task.name)
                    @if let Some(loss) = task.final_loss { " " b { (number(loss)) } }
                }
            }
        }
        (not_shown(num_left_out, "task"))
    }
}

/// A task's curve, small, on its own scale.
pub(super) fn spark(index: usize, losses: &[LossPoint]) -> Markup {
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
        svg.spark.(task_class(index)) viewBox=(view) aria-hidden="true" {
            polyline points=(points.join(" ")) {}
        }
    }
}

/// Each loss as the mean of those around it: a curve that follows, where a running mean would lag.
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

/// The least and the greatest loss.
fn range(points: &[LossPoint]) -> (f64, f64) {
    let losses = || points.iter().map(|point| point.1);
    (losses().fold(f64::INFINITY, f64::min), losses().fold(f64::NEG_INFINITY, f64::max))
}

/// Where a step and a loss lie in the chart.
struct Scale {
    max_step: f64,
    is_log: bool,
    /// Of the loss, or of its logarithm.
    low: f64,
    high: f64,
}

impl Scale {
    fn of<'a>(curves: impl Iterator<Item = &'a [LossPoint]>) -> Option<Self> {
        let smoothed: Vec<LossPoint> = curves.flat_map(smooth).collect();
        let last_step = smoothed.iter().map(|point| point.0).max()?;
        let (low, high) = range(&smoothed);
        let is_log = low > 0.0 && high / low > LOG_RATIO;
        let (low, high) = if is_log { (low.ln(), high.ln()) } else { (low, high) };
        let slack = ((high - low) * 0.04).max(1e-9);
        Some(Self { max_step: last_step as f64, is_log, low: low - slack, high: high + slack })
    }

    fn x(&self, step: f64) -> f64 {
        LEFT + step / self.max_step.max(1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, loss: f64) -> f64 {
        let value = if self.is_log { loss.max(1e-300).ln() } else { loss };
        let share = (self.high - value) / (self.high - self.low);
        TOP + share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn points(&self, losses: &[LossPoint]) -> String {
        let points: Vec<String> = losses
            .iter()
            .map(|(step, loss)| format!("{},{}", px(self.x(*step as f64)), px(self.y(*loss))))
            .collect();
        points.join(" ")
    }

    fn axes(&self) -> Markup {
        let step = nice_step(self.max_step / 8.0).max(1.0);
        let steps = (0..=whole(self.max_step / step)).map(|index| f64::from(index) * step);
        html! {
            @for loss in self.loss_ticks() {
                @let y = self.y(loss);
                line.grid x1=(LEFT) x2=(px(WIDTH - RIGHT)) y1=(px(y)) y2=(px(y)) {}
                text.tick.loss x=(px(LEFT - 8.0)) y=(px(y + 4.0)) { (tick(loss)) }
            }
            @for at in steps {
                text.tick x=(px(self.x(at))) y=(px(HEIGHT - BOTTOM + 18.0)) { (at) }
            }
            text.axis x=(px(WIDTH - RIGHT)) y=(px(HEIGHT - 2.0)) { "step" }
        }
    }

    fn loss_ticks(&self) -> Vec<f64> {
        if !self.is_log {
            let step = nice_step((self.high - self.low) / 6.0);
            let first = (self.low / step).ceil();
            let num_ticks = whole((self.high / step).floor() - first);
            return (0..=num_ticks).map(|index| (first + f64::from(index)) * step).collect();
        }
        let (low, high) = (self.low / std::f64::consts::LN_10, self.high / std::f64::consts::LN_10);
        let mut ticks = Vec::new();
        let mut decade = low.floor();
        while decade <= high {
            for digit in [1.0, 2.0, 5.0] {
                let loss = 10_f64.powf(decade) * digit;
                if (low..=high).contains(&loss.log10()) {
                    ticks.push(loss);
                }
            }
            decade += 1.0;
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

fn tick(loss: f64) -> String {
    let text = format!("{loss:.4}");
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
            let scale = Scale::of([losses.as_slice()].into_iter()).unwrap();
            assert!(!scale.points(&losses).contains("NaN"), "{losses:?}");
            assert!(scale.loss_ticks().len() < 40);
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(nice_step(0.3).to_string(), "0.5");
        assert_eq!(nice_step(60.0).to_string(), "100");
        assert_eq!(tick(0.5), "0.5");
        assert_eq!(tick(20.0), "20");
    }
}
