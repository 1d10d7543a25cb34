//! When tasks are expected to start and end, and how large the error may be.
//!
//! The expected times are the engine's own forecast of following the plan in force. The error band
//! comes from the errors of earlier forecasts: in earlier runs on these devices, and in this run.
//! Tasks that wait have a band of their own: their ends depend on the tasks before them.

use std::collections::BTreeSet;

use saturn_core::{ForecastErrors, quantile};
use saturn_engine::{Attempt, Forecast, Purpose, State, TaskId, forecast};
use serde::{Deserialize, Serialize};

use crate::facts::history::History;

/// The quantiles of the ratios that bound the band, so that it covers four ends of five.
pub const QUANTILES: (f64, f64) = (0.1, 0.9);
/// The number of ratios from earlier runs that count beside this run's own ratios. If more counted,
/// the bands of a run that differs from earlier runs would adapt too late.
const NUM_EARLIER: usize = 20;
/// Ratios of tasks that trained, in the recorded runs of `benches/replay/runs`: ten quantiles, evenly
/// apart. They stand in for earlier runs where there are none. A test of the recorded runs checks
/// them.
pub const DEFAULT_TRAINING: [f64; 10] = [0.79, 0.88, 0.98, 1.0, 1.01, 1.02, 1.03, 1.07, 1.17, 1.55];
/// The same quantiles for tasks that waited.
pub const DEFAULT_WAITING: [f64; 10] = [0.58, 0.81, 0.94, 0.99, 1.01, 1.04, 1.07, 1.19, 1.45, 1.83];
/// The same quantiles for whole runs.
pub const DEFAULT_RUNS: [f64; 10] = [0.69, 0.89, 0.94, 0.99, 1.0, 1.02, 1.03, 1.07, 1.32, 2.28];

/// How large the error may be, as factors on the remaining time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// The ratio of realised to forecast seconds for an early end.
    pub low: f64,
    /// The same for a late end.
    pub high: f64,
    /// How many ratios of this run are behind the band.
    pub attempts: usize,
    /// How many ratios of earlier runs on these devices are known.
    #[serde(default)]
    pub earlier: usize,
}

impl Band {
    /// The bands of tasks that train, of tasks that wait, and of the run.
    pub(crate) fn of(state: &State, history: &History) -> [Self; 3] {
        let (own, before) = (history.forecast_errors(), &state.config.policy.earlier_errors);
        let few = before.thinned(NUM_EARLIER);
        let of = |own: &[f64], few: &[f64], default: &[f64], earlier: usize| {
            let (low, high) = band(own, few, default);
            Self { low, high, attempts: own.len(), earlier }
        };
        let ForecastErrors { training, waiting, runs } = before;
        [
            of(&own.training, &few.training, &DEFAULT_TRAINING, training.len()),
            of(&own.waiting, &few.waiting, &DEFAULT_WAITING, waiting.len()),
            of(&own.runs, &few.runs, &DEFAULT_RUNS, runs.len()),
        ]
    }

    /// The earliest and the latest end, for an end that is expected at `end_s`.
    pub fn around(&self, end_s: f64, now_s: f64) -> (f64, f64) {
        let left_s = (end_s - now_s).max(0.0);
        // The expected end lies within the band, even if all errors were on one side.
        (now_s + left_s * self.low.min(1.0), now_s + left_s * self.high.max(1.0))
    }
}

/// The low and the high ratio of a band. If there are fewer than [`NUM_EARLIER`] ratios of earlier
/// runs, quantiles of the default make up the number.
fn band(own: &[f64], earlier: &[f64], default: &[f64]) -> (f64, f64) {
    let missing = NUM_EARLIER.saturating_sub(earlier.len());
    let made_up =
        (0..missing).filter_map(|index| quantile(default, (index as f64 + 0.5) / missing as f64));
    let mut ratios: Vec<f64> = own.iter().chain(earlier).copied().chain(made_up).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let of = |share| quantile(&ratios, share).unwrap_or(1.0);
    (of(QUANTILES.0), of(QUANTILES.1))
}

/// The forecast of a run at a moment, and its bands.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) forecast: Forecast,
    /// The band of tasks that train.
    pub(crate) band: Band,
    /// The band of tasks that wait.
    pub(crate) waiting_band: Band,
    /// The band of the run.
    pub(crate) run_band: Band,
    /// Tasks that train now.
    training: BTreeSet<TaskId>,
    pub(crate) now_s: f64,
}

impl Expected {
    pub(crate) fn of(state: &State, history: &History, now_s: f64) -> Self {
        // A run that has ended expects nothing more.
        let has_ended = state.ended.is_some();
        let forecast = if has_ended { Forecast::default() } else { forecast(state, now_s) };
        let [band, waiting_band, run_band] = Band::of(state, history);
        let trains = |attempt: &&Attempt| attempt.purpose == Purpose::Train;
        let training = state.attempts.values().filter(trains).map(|attempt| attempt.task);
        let training = training.collect();
        Self { forecast, band, waiting_band, run_band, training, now_s }
    }

    /// The expected start and end of a task.
    pub(crate) fn times(&self, task: TaskId) -> Option<(f64, f64)> {
        self.forecast.tasks.get(&task).copied()
    }

    /// The earliest and the latest end of a task.
    pub(crate) fn end_band(&self, task: TaskId) -> Option<(f64, f64)> {
        let band = if self.training.contains(&task) { &self.band } else { &self.waiting_band };
        self.times(task).map(|(_, end_s)| band.around(end_s, self.now_s))
    }

    /// The expected end of all planned tasks; `None` if nothing is planned.
    pub(crate) fn end_s(&self) -> Option<f64> {
        (!self.forecast.tasks.is_empty()).then_some(self.forecast.end_s)
    }

    /// The earliest and the latest end of all planned tasks.
    pub(crate) fn run_end_band(&self) -> Option<(f64, f64)> {
        self.end_s().map(|end_s| self.run_band.around(end_s, self.now_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_any_error_the_recorded_runs_tell() {
        let (low, high) = band(&[], &[], &DEFAULT_TRAINING);
        assert!((0.8..1.0).contains(&low) && (1.1..1.8).contains(&high), "{low} {high}");
    }

    #[test]
    fn earlier_runs_replace_the_default_and_a_run_s_own_errors_outweigh_both() {
        let exact = [1.0; NUM_EARLIER];
        assert_eq!(band(&[], &exact, &DEFAULT_WAITING), (1.0, 1.0));
        let (low, high) = band(&[2.0; 200], &exact, &DEFAULT_WAITING);
        assert_eq!((low, high), (2.0, 2.0), "200 attempts say otherwise than 20");
        let (low, high) = band(&[1.0, 1.0], &[1.0; 10], &DEFAULT_WAITING);
        assert!(low < 1.0 && high > 1.0, "half of them still are the default");
    }

    #[test]
    fn what_is_expected_lies_within_its_band() {
        let band = Band { low: 1.1, high: 1.9, attempts: 11, earlier: 0 };
        let (early_s, late_s) = band.around(200.0, 100.0);
        assert!((early_s - 200.0).abs() < 1e-9 && (late_s - 290.0).abs() < 1e-9);
        assert_eq!(band.around(50.0, 100.0), (100.0, 100.0));
    }
}
