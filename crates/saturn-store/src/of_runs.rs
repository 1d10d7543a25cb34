//! A figure of each of the newest runs, by the devices that they ran on, in one file a kind of figure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use saturn_core::ProblemError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::directory::{Store, set_aside};
use crate::error::{FileError, io_words};

/// The most runs kept for a set of devices; older runs are dropped.
pub(crate) const MOST_RUNS: usize = 20;
/// The most sets of devices kept. The set that was used longest ago is dropped.
const MOST_PLACES: usize = 50;

/// A kind of figure.
pub(crate) trait OfRun: Serialize + DeserializeOwned {
    /// The name of its file. The version is part of the name, so another version of Saturn leaves the
    /// file alone.
    const NAME: &'static str;

    /// Checks a figure that was read from a file; `at` is its location in the file.
    fn check(&self, at: &str) -> Result<(), ProblemError>;
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<E> {
    /// The set of devices that was used last is the last.
    places: Vec<Place<E>>,
}

/// The runs on one set of devices.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place<E> {
    /// The description of each type of device.
    hardware: BTreeMap<String, String>,
    /// Oldest first.
    runs: Vec<Run<E>>,
}

/// The figure of one run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run<E> {
    /// The run's own name, which no other run ever had.
    run: String,
    errors: E,
}

impl Store {
    /// The figures of the newest runs on the devices of which `is_here` is true. A file that can't be
    /// used counts as empty.
    pub(crate) fn of_runs_on<E: OfRun>(
        &self,
        is_here: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Vec<E> {
        let places = self.read_of_runs().map(|file: File<E>| file.places).unwrap_or_default();
        let here = places.into_iter().filter(|place| is_here(&place.hardware));
        here.flat_map(|place| place.runs).map(|run| run.errors).collect()
    }

    /// Adds the figure of a run, or replaces the figure that was kept of it on these devices.
    pub(crate) fn add_of_run<E: OfRun>(
        &self,
        hardware: &BTreeMap<String, String>,
        run: &str,
        errors: E,
        note: &mut dyn FnMut(String),
    ) -> Result<(), FileError> {
        let _lock = self.locked()?;
        let path = self.path_of_runs::<E>();
        let mut known = self.read_of_runs().unwrap_or_else(|reason| {
            set_aside(&path, &reason, note);
            File { places: Vec::new() }
        });
        let at = known.places.iter().position(|place| place.hardware == *hardware);
        let new = || Place { hardware: hardware.clone(), runs: Vec::new() };
        let mut here = at.map_or_else(new, |index| known.places.remove(index));
        here.runs.retain(|one| one.run != run);
        here.runs.push(Run { run: run.to_owned(), errors });
        here.runs.drain(..here.runs.len().saturating_sub(MOST_RUNS));
        known.places.push(here);
        known.places.drain(..known.places.len().saturating_sub(MOST_PLACES));
        let text = serde_json::to_string(&known)
            .map_err(|error| FileError::of("write", &path)(error.into()))?;
        self.disk.replace_private(&path, text.as_bytes())
    }

    pub(crate) fn path_of_runs<E: OfRun>(&self) -> PathBuf {
        self.directory.join(E::NAME)
    }

    /// The file's content, or what is wrong with the file.
    fn read_of_runs<E: OfRun>(&self) -> Result<File<E>, String> {
        let text = match std::fs::read_to_string(self.path_of_runs::<E>()) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(File { places: Vec::new() });
            }
            Err(error) => return Err(io_words(&error)),
        };
        let file: File<E> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        for run in file.places.iter().flat_map(|place| &place.runs) {
            let at = format!("errors of `{}`", run.run);
            run.errors.check(&at).map_err(|error| error.to_string())?;
        }
        Ok(file)
    }
}
