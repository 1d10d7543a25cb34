//! How far training was from the trials of earlier runs, by the devices that they ran on.
//!
//! A trial states how sure its few steps make it. It can't know how unlike one launch is to the next
//! on its machine, beside other programs and other tasks. So
//! `$SATURN_HOME/profiles/trial-errors-1.json` has, for the newest runs on each set of devices, the
//! ratios of the seconds of a step in training and in the trial. Their spread is added to a trial's
//! own error where that is told.

use std::collections::BTreeMap;

use saturn_core::{ForecastErrors, ProblemError, quantile};
use serde::{Deserialize, Serialize};

use crate::directory::Store;
use crate::error::FileError;
use crate::of_runs::OfRun;

/// How many standard deviations from the middle a Normal distribution has four of five values.
const BAND: f64 = 1.281_551_565_545;
/// Where fewer ratios are known, quantiles of the default make up the number.
const NUM_KNOWN: usize = 20;
/// The logarithms of the ratios of Saturn's own recorded runs, without their sign: ten quantiles,
/// evenly apart. A test of the recorded runs checks them.
pub const DEFAULT_DEPARTURES: [f64; 10] =
    [0.0, 0.0, 0.01, 0.01, 0.03, 0.05, 0.13, 0.19, 0.25, 0.37];

/// The ratios of one run.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrialErrors {
    ratios: Vec<f64>,
}

impl OfRun for TrialErrors {
    const NAME: &'static str = "trial-errors-1.json";

    fn check(&self, at: &str) -> Result<(), ProblemError> {
        // Both files hold ratios of seconds, which are checked alike.
        ForecastErrors { training: self.ratios.clone(), ..ForecastErrors::default() }.check(at)
    }
}

impl Store {
    /// Standard deviation, as a part, of training's seconds a step around a trial's, on a type of
    /// device of this description (`None`: on any), beyond the error that the trial states.
    pub fn trial_spread(&self, gpu_type: Option<&str>, description: Option<&str>) -> f64 {
        let is_here = |hardware: &BTreeMap<String, String>| {
            hardware.iter().any(|(name, text)| {
                gpu_type.is_none_or(|gpu_type| gpu_type == name)
                    && description.is_none_or(|description| description == text)
            })
        };
        let runs: Vec<TrialErrors> = self.of_runs_on(is_here);
        trial_spread(&runs.into_iter().flat_map(|run| run.ratios).collect::<Vec<_>>())
    }

    /// Adds the ratios of trained to tried seconds a step of a run on devices of these descriptions,
    /// by type. The ratios of a run that was resumed on the same devices replace those that were kept
    /// when it stopped.
    ///
    /// # Errors
    ///
    /// The file can't be written. It is then as it was.
    pub fn add_trial_errors(
        &self,
        hardware: &BTreeMap<String, String>,
        run: &str,
        ratios: &[f64],
        note: &mut dyn FnMut(String),
    ) -> Result<(), FileError> {
        if ratios.is_empty() {
            return Ok(());
        }
        let mut ratios = ratios.to_vec();
        ratios.sort_unstable_by(f64::total_cmp);
        let all = ForecastErrors { training: ratios, ..ForecastErrors::default() };
        let ratios = all.thinned(ForecastErrors::MOST_OF_A_RUN).training;
        self.add_of_run(hardware, run, TrialErrors { ratios }, note)
    }
}

/// Standard deviation, as a part, of training's seconds a step around a trial's, by ratios of the two.
/// Four of five ratios are nearer than a Normal distribution of that width would have them: the few
/// that are far off don't count for more.
pub fn trial_spread(ratios: &[f64]) -> f64 {
    let known = ratios.iter().map(|ratio| ratio.ln().abs()).filter(|one| one.is_finite());
    let mut departures: Vec<f64> = known.collect();
    let missing = NUM_KNOWN.saturating_sub(departures.len());
    let made_up = (0..missing)
        .filter_map(|index| quantile(&DEFAULT_DEPARTURES, (index as f64 + 0.5) / missing as f64));
    departures.extend(made_up);
    departures.sort_unstable_by(f64::total_cmp);
    quantile(&departures, 0.8).unwrap_or(0.0) / BAND
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn hardware(name: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("cpu".to_owned(), name.to_owned())])
    }

    #[test]
    fn the_scatter_of_a_platform_is_what_its_own_runs_had() {
        let dir = TempDir::new().unwrap();
        let store = Store::at(dir.path());
        let usual = store.trial_spread(Some("cpu"), Some("quiet"));
        assert!((0.1..0.4).contains(&usual), "{usual}");
        let add = |name: &str, run: &str, ratio: f64| {
            let note = &mut |line| panic!("{line}");
            store.add_trial_errors(&hardware(name), run, &[ratio; 20], note).unwrap();
        };
        add("quiet", "one", 1.01);
        add("noisy", "two", 0.5);
        let spread = |name| store.trial_spread(Some("cpu"), Some(name));
        assert!((spread("quiet") - 1.01_f64.ln() / BAND).abs() < 1e-9);
        assert!((spread("noisy") - 2.0_f64.ln() / BAND).abs() < 1e-9);
        assert!((spread("other") - usual).abs() < 1e-9);
        assert!(store.trial_spread(None, None) > spread("quiet"), "both count where none is named");
    }

    #[test]
    fn a_run_has_a_share_in_the_scatter_once() {
        let dir = TempDir::new().unwrap();
        let store = Store::at(dir.path());
        for ratio in [0.5, 1.0] {
            let note = &mut |line| panic!("{line}");
            store.add_trial_errors(&hardware("a"), "run", &[ratio; 30], note).unwrap();
        }
        assert!(store.trial_spread(Some("cpu"), Some("a")) < 1e-9);
    }
}
