//! When tasks are expected to start and end, and how large the error may be.
//!
//! The expected times are the engine's own forecast of following the plan in force. The error band
//! comes from this run's earlier errors. Each training attempt that did what it was launched for
//! gives a ratio: the seconds that it took over the seconds that were forecast at its launch.

use saturn_engine::{Forecast, State, TaskId, forecast};
use serde::{Deserialize, Serialize};

use crate::facts::history::History;

/// The band follows the ratios once this many attempts have ended.
pub const MIN_ENDED: usize = 3;
/// The low and high ratio of realised to forecast seconds until then. They are guesses. The band is
/// wider on the late side, since more things delay a task than speed it up.
pub const DEFAULT_RATIOS: (f64, f64) = (0.9, 1.2);
/// The quantiles of the ratios that bound the band, so that it covers four attempts of five.
pub const QUANTILES: (f64, f64) = (0.1, 0.9);

/// How large the error may be, as factors on the remaining time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// The ratio of realised to forecast seconds for an early end.
    pub low: f64,
    /// The same for a late end.
    pub high: f64,
    /// The number of attempts behind the band; 0 for the default band.
    pub attempts: usize,
}

impl Band {
    /// The band of a run.
    pub fn of(history: &History) -> Self {
        Self::from_ratios(&history.ratios)
    }

    /// The band of ascending ratios.
    fn from_ratios(ratios: &[f64]) -> Self {
        if ratios.len() < MIN_ENDED {
            return Self { low: DEFAULT_RATIOS.0, high: DEFAULT_RATIOS.1, attempts: 0 };
        }
        Self {
            low: quantile(ratios, QUANTILES.0),
            high: quantile(ratios, QUANTILES.1),
            attempts: ratios.len(),
        }
    }

    /// The earliest and the latest end, for an end that is expected at `end_s`.
    pub fn around(&self, end_s: f64, now_s: f64) -> (f64, f64) {
        let left_s = (end_s - now_s).max(0.0);
        // The expected end lies within the band, even if all errors were on one side.
        (now_s + left_s * self.low.min(1.0), now_s + left_s * self.high.max(1.0))
    }
}

/// A quantile of ascending values, interpolated between neighbours.
fn quantile(values: &[f64], share: f64) -> f64 {
    let position = share * (values.len() - 1) as f64;
    let below = position.floor();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position within the values"
    )]
    let index = below as usize;
    let next = values[(index + 1).min(values.len() - 1)];
    values[index] + (next - values[index]) * (position - below)
}

/// The forecast of a run at a moment, and its band.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) forecast: Forecast,
    pub(crate) band: Band,
    pub(crate) now_s: f64,
}

impl Expected {
    pub(crate) fn of(state: &State, history: &History, now_s: f64) -> Self {
        // A run that has ended expects nothing more.
        let has_ended = state.ended.is_some();
        let forecast = if has_ended { Forecast::default() } else { forecast(state, now_s) };
        Self { forecast, band: Band::of(history), now_s }
    }

    /// The expected start and end of a task.
    pub(crate) fn times(&self, task: TaskId) -> Option<(f64, f64)> {
        self.forecast.tasks.get(&task).copied()
    }

    /// The earliest and the latest end of a task.
    pub(crate) fn end_band(&self, task: TaskId) -> Option<(f64, f64)> {
        self.times(task).map(|(_, end_s)| self.band.around(end_s, self.now_s))
    }

    /// The expected end of all planned tasks; `None` if nothing is planned.
    pub(crate) fn end_s(&self) -> Option<f64> {
        (!self.forecast.tasks.is_empty()).then_some(self.forecast.end_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_errors_are_not_believed() {
        assert_eq!(Band::from_ratios(&[3.0, 4.0]), Band { low: 0.9, high: 1.2, attempts: 0 });
    }

    #[test]
    fn a_band_leaves_out_the_extremes_and_holds_what_is_expected() {
        let ratios: Vec<f64> = (0..=10).map(|one| 1.0 + f64::from(one) / 10.0).collect();
        let band = Band::from_ratios(&ratios);
        assert!((band.low - 1.1).abs() < 1e-9 && (band.high - 1.9).abs() < 1e-9, "{band:?}");
        assert_eq!(band.attempts, 11);
        let (early_s, late_s) = band.around(200.0, 100.0);
        assert!((early_s - 200.0).abs() < 1e-9 && (late_s - 290.0).abs() < 1e-9);
        assert_eq!(band.around(50.0, 100.0), (100.0, 100.0));
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert!((quantile(&[1.0, 2.0, 4.0], 0.75) - 3.0).abs() < 1e-9);
        assert!((quantile(&[1.0, 2.0, 4.0], 1.0) - 4.0).abs() < 1e-9);
    }
}
