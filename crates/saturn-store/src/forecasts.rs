//! How wrong the forecasts of earlier runs were, by the devices that they ran on.
//!
//! `$SATURN_HOME/profiles/forecast-errors-1.json` has the ratios of the newest runs on each set of
//! devices. They are no trials: forgetting a profile leaves them alone, and the version of torch
//! does not matter.

use std::collections::BTreeMap;

use saturn_core::{ForecastErrors, ProblemError};

use crate::directory::Store;
use crate::error::FileError;
use crate::of_runs::{MOST_RUNS, OfRun};
use crate::platform::Platform;

impl OfRun for ForecastErrors {
    const NAME: &'static str = "forecast-errors-1.json";

    fn check(&self, at: &str) -> Result<(), ProblemError> {
        self.check(at)
    }
}

impl Store {
    /// How wrong the forecasts of the newest runs on this platform's devices were: of few runs a ratio
    /// for each run, from the distribution of all their ratios. The ratios of one run are alike, since
    /// whatever slowed it slowed all its tasks, so together they tell no more than one run. A file that
    /// can't be used counts as empty; the next run that ends sets it aside.
    pub fn forecast_errors(&self, platform: &Platform) -> ForecastErrors {
        let mut all = ForecastErrors::default();
        let mut num_runs = 0;
        for errors in self.of_runs_on(|hardware| hardware == platform.hardware()) {
            all.extend(&errors);
            num_runs += 1;
        }
        if num_runs < MOST_RUNS { all.thinned(num_runs) } else { all }
    }

    /// Adds the errors of a run on devices of these descriptions, by type. The errors of a run that was
    /// resumed on the same devices replace the errors that were kept when it stopped.
    ///
    /// # Errors
    ///
    /// The file can't be written. It is then as it was.
    pub fn add_forecast_errors(
        &self,
        hardware: &BTreeMap<String, String>,
        run: &str,
        errors: &ForecastErrors,
        note: &mut dyn FnMut(String),
    ) -> Result<(), FileError> {
        if errors.is_empty() {
            return Ok(());
        }
        let errors = errors.thinned(ForecastErrors::MOST_OF_A_RUN);
        self.add_of_run(hardware, run, errors, note)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn platform(processor: &str, torch: &str) -> Platform {
        let platform = serde_json::json!({
            "hardware": {"cpu": processor}, "software": {"torch": torch}, "techniques": {},
        });
        serde_json::from_value(platform).unwrap()
    }

    fn errors(ratios: &[f64]) -> ForecastErrors {
        ForecastErrors { training: ratios.to_vec(), ..ForecastErrors::default() }
    }

    fn add(store: &Store, platform: &Platform, run: &str, ratios: &[f64]) {
        let note = &mut |line| panic!("{line}");
        store.add_forecast_errors(platform.hardware(), run, &errors(ratios), note).unwrap();
    }

    #[test]
    fn runs_on_the_same_devices_count_whatever_the_version_of_torch() {
        let dir = TempDir::new().unwrap();
        let store = Store::at(dir.path());
        let here = platform("a processor", "2.11");
        assert!(store.forecast_errors(&here).is_empty());
        add(&store, &here, "first", &[1.0, 2.0]);
        add(&store, &platform("a processor", "2.12"), "second", &[1.5]);
        add(&store, &platform("another", "2.11"), "third", &[9.0]);
        assert_eq!(store.forecast_errors(&here), errors(&[1.25, 1.75]), "quartiles of 3 ratios");
    }

    #[test]
    fn a_run_counts_as_one_however_many_of_its_tasks_were_forecast() {
        let dir = TempDir::new().unwrap();
        let store = Store::at(dir.path());
        let here = platform("a processor", "2.11");
        for run in ["first", "second", "third"] {
            add(&store, &here, run, &[9.0; 20]);
        }
        // So the recorded runs make up seventeen of the twenty ratios of a band, not none.
        assert_eq!(store.forecast_errors(&here), errors(&[9.0; 3]));
    }

    #[test]
    fn a_run_that_went_on_elsewhere_has_errors_in_both_places() {
        let dir = TempDir::new().unwrap();
        let store = Store::at(dir.path());
        let (here, there) = (platform("a processor", "2.11"), platform("another", "2.11"));
        add(&store, &here, "moved", &[1.0]);
        add(&store, &there, "moved", &[2.0]);
        assert_eq!(store.forecast_errors(&here), errors(&[1.0]));
        assert_eq!(store.forecast_errors(&there), errors(&[2.0]));
    }

    #[test]
    fn a_resumed_run_counts_once_and_old_runs_are_dropped() {
        let dir = TempDir::new().unwrap();
        let store = Store::at(dir.path());
        let here = platform("a processor", "2.11");
        add(&store, &here, "again", &[3.0]);
        add(&store, &here, "again", &[2.0]);
        assert_eq!(store.forecast_errors(&here), errors(&[2.0]));
        for run in 0..MOST_RUNS {
            add(&store, &here, &run.to_string(), &[1.0]);
        }
        assert_eq!(store.forecast_errors(&here), errors(&[1.0; MOST_RUNS]));
    }

    #[test]
    fn a_damaged_file_counts_as_empty_and_is_set_aside_when_a_run_ends() {
        let dir = TempDir::new().unwrap();
        let store = Store::at(dir.path());
        let here = platform("a processor", "2.11");
        add(&store, &here, "first", &[1.0]);
        for damage in [
            "{",
            r#"{"places": [{"hardware": {}, "runs": [{"run": "x", "errors": {"training": [-1.0]}}]}]}"#,
        ] {
            std::fs::write(store.path_of_runs::<ForecastErrors>(), damage).unwrap();
            assert!(store.forecast_errors(&here).is_empty());
            let mut lines = Vec::new();
            let note = &mut |line| lines.push(line);
            store.add_forecast_errors(here.hardware(), "next", &errors(&[1.5]), note).unwrap();
            assert!(lines.len() == 1 && lines[0].contains("set-aside"), "{lines:?}");
            assert_eq!(store.forecast_errors(&here), errors(&[1.5]));
        }
    }
}
