//! How wrong the forecasts of earlier runs were, by the devices that they ran on.
//!
//! `$SATURN_HOME/profiles/forecast-errors-1.json` has the ratios of the newest runs on each set of
//! devices. They are no trials: forgetting a profile leaves them alone, and the version of torch
//! does not matter.

use std::collections::BTreeMap;
use std::path::PathBuf;

use saturn_core::ForecastErrors;
use serde::{Deserialize, Serialize};

use crate::directory::{Store, set_aside};
use crate::error::{FileError, io_words};
use crate::platform::Platform;

/// The version is part of the file name, so another version of Saturn leaves this file alone.
const NAME: &str = "forecast-errors-1.json";
/// The most runs kept for a set of devices; older runs are dropped.
const MOST_RUNS: usize = 20;
/// The most sets of devices kept. The set that was used longest ago is dropped.
const MOST_PLACES: usize = 50;

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Errors {
    /// The set of devices that was used last is the last.
    places: Vec<Place>,
}

/// The runs on one set of devices.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    /// The description of each type of device.
    hardware: BTreeMap<String, String>,
    /// Oldest first.
    runs: Vec<Run>,
}

/// The errors of one run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    /// The run's own name, which no other run ever had.
    run: String,
    errors: ForecastErrors,
}

impl Store {
    /// How wrong the forecasts of the newest runs on this platform's devices were. A file that
    /// can't be used counts as empty; the next run that ends sets it aside.
    pub fn forecast_errors(&self, platform: &Platform) -> ForecastErrors {
        let mut all = ForecastErrors::default();
        let places = self.read_errors().unwrap_or_default().places;
        let here = places.iter().find(|place| place.hardware == *platform.hardware());
        for run in here.into_iter().flat_map(|place| &place.runs) {
            all.extend(&run.errors);
        }
        all
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
        let _lock = self.locked()?;
        let mut known = self.read_errors().unwrap_or_else(|reason| {
            set_aside(&self.errors_path(), &reason, note);
            Errors::default()
        });
        let at = known.places.iter().position(|place| place.hardware == *hardware);
        let new = || Place { hardware: hardware.clone(), runs: Vec::new() };
        let mut here = at.map_or_else(new, |index| known.places.remove(index));
        here.runs.retain(|one| one.run != run);
        let errors = errors.thinned(ForecastErrors::MOST_OF_A_RUN);
        here.runs.push(Run { run: run.to_owned(), errors });
        here.runs.drain(..here.runs.len().saturating_sub(MOST_RUNS));
        known.places.push(here);
        known.places.drain(..known.places.len().saturating_sub(MOST_PLACES));
        let path = self.errors_path();
        let text = serde_json::to_string(&known)
            .map_err(|error| FileError::of("write", &path)(error.into()))?;
        self.disk.replace_private(&path, text.as_bytes())
    }

    fn errors_path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// The file's content, or what is wrong with the file.
    fn read_errors(&self) -> Result<Errors, String> {
        let text = match std::fs::read_to_string(self.errors_path()) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Errors::default());
            }
            Err(error) => return Err(io_words(&error)),
        };
        let errors: Errors = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        for run in errors.places.iter().flat_map(|place| &place.runs) {
            let at = format!("errors of `{}`", run.run);
            run.errors.check(&at).map_err(|error| error.to_string())?;
        }
        Ok(errors)
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
        add(&store, &here, "first", &[1.0, 1.4]);
        add(&store, &platform("a processor", "2.12"), "second", &[1.2]);
        add(&store, &platform("another", "2.11"), "third", &[9.0]);
        assert_eq!(store.forecast_errors(&here), errors(&[1.0, 1.2, 1.4]));
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
            std::fs::write(store.errors_path(), damage).unwrap();
            assert!(store.forecast_errors(&here).is_empty());
            let mut lines = Vec::new();
            let note = &mut |line| lines.push(line);
            store.add_forecast_errors(here.hardware(), "next", &errors(&[1.5]), note).unwrap();
            assert!(lines.len() == 1 && lines[0].contains("set-aside"), "{lines:?}");
            assert_eq!(store.forecast_errors(&here), errors(&[1.5]));
        }
    }
}
