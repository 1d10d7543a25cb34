//! How wrong the forecasts of a run were, as ratios of realised to forecast seconds.
//!
//! A run keeps the ratios of earlier runs on the same devices, so that it can say from its first
//! minute how wrong its own forecasts may be.

use serde::{Deserialize, Serialize};

use crate::error::ProblemError;
use crate::number;

/// Ratios of realised to forecast seconds, each list ascending.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForecastErrors {
    /// Of tasks that trained when their end was forecast. The seconds count from the forecast until
    /// the task was done.
    pub training: Vec<f64>,
    /// Of tasks that waited when their end was forecast.
    pub waiting: Vec<f64>,
    /// Of whole runs.
    pub runs: Vec<f64>,
}

impl ForecastErrors {
    /// The maximum number of ratios that a run passes on from each list. So a run of a thousand tasks
    /// counts no more than other runs.
    pub const MOST_OF_A_RUN: usize = 20;

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.lists().into_iter().all(<[f64]>::is_empty)
    }

    /// At most `most` ratios of each list, with the same distribution.
    #[must_use]
    pub fn thinned(&self, most: usize) -> Self {
        let [training, waiting, runs] = self.lists().map(|ratios| thinned(ratios, most));
        Self { training, waiting, runs }
    }

    /// Adds the ratios of another run.
    pub fn extend(&mut self, other: &Self) {
        for (own, new) in
            [&mut self.training, &mut self.waiting, &mut self.runs].into_iter().zip(other.lists())
        {
            own.extend(new);
            own.sort_unstable_by(f64::total_cmp);
        }
    }

    fn lists(&self) -> [&[f64]; 3] {
        [&self.training, &self.waiting, &self.runs]
    }

    /// Checks ratios that were read from a file; `at` is their location in the file.
    ///
    /// # Errors
    ///
    /// A ratio that is not a positive, finite number.
    pub fn check(&self, at: &str) -> Result<(), ProblemError> {
        for (name, ratios) in ["training", "waiting", "runs"].into_iter().zip(self.lists()) {
            for (index, ratio) in ratios.iter().enumerate() {
                number::check_runtime(|| format!("{at}.{name}[{index}]"), *ratio)?;
            }
        }
        Ok(())
    }
}

/// A quantile of ascending values, interpolated between neighbours; `None` if there are no values.
/// `share` is from 0 to 1.
pub fn quantile(ascending: &[f64], share: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let position = share.clamp(0.0, 1.0) * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position within the values"
    )]
    let index = position.floor() as usize;
    let (below, above) = (ascending[index], ascending[(index + 1).min(last)]);
    Some(below + (above - below) * (position - position.floor()))
}

/// Ascending values, thinned to at most `most` of them at even steps of rank.
fn thinned(ascending: &[f64], most: usize) -> Vec<f64> {
    if ascending.len() <= most {
        return ascending.to_vec();
    }
    let shares = (0..most).map(|index| (index as f64 + 0.5) / most as f64);
    shares.filter_map(|share| quantile(ascending, share)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let of = |values: &[f64], share: f64| quantile(values, share);
        assert_eq!(of(&[1.0, 2.0, 4.0], 0.75), Some(3.0));
        assert_eq!(of(&[1.0, 2.0, 4.0], 1.0), Some(4.0));
        assert_eq!(of(&[7.0], 0.1), Some(7.0));
        assert_eq!(of(&[], 0.5), None);
    }

    #[test]
    fn a_large_run_hands_on_few_ratios_with_the_same_quantiles() {
        let training: Vec<f64> = (0..1001).map(|one| 0.5 + f64::from(one) / 1000.0).collect();
        let all = ForecastErrors { training, waiting: vec![1.0, 2.0], runs: vec![] };
        let few = all.thinned(ForecastErrors::MOST_OF_A_RUN);
        assert_eq!((few.training.len(), few.waiting.len()), (20, 2));
        for share in [0.1, 0.5, 0.9] {
            let (all, few) = (quantile(&all.training, share), quantile(&few.training, share));
            assert!((all.unwrap() - few.unwrap()).abs() < 0.03, "{all:?} {few:?}");
        }
    }

    #[test]
    fn ratios_of_runs_come_together_in_order() {
        let mut errors = ForecastErrors { training: vec![1.0, 1.5], waiting: vec![], runs: vec![] };
        errors.extend(&ForecastErrors { training: vec![1.2], waiting: vec![0.8], runs: vec![] });
        assert_eq!(
            errors,
            ForecastErrors { training: vec![1.0, 1.2, 1.5], waiting: vec![0.8], runs: vec![] }
        );
    }

    #[test]
    fn a_ratio_that_is_no_ratio_is_refused_with_its_place() {
        let errors = ForecastErrors { training: vec![1.0], waiting: vec![1.0, -2.0], runs: vec![] };
        let error = errors.check("runs[3]").unwrap_err().to_string();
        assert!(error.contains("runs[3].waiting[1]"), "{error}");
    }
}
