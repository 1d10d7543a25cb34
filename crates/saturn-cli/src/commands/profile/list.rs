//! `saturn profile list`.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::names::escape_terminal;
use saturn_core::{Origin, Trial};
use saturn_store::Store;
use serde_json::json;

use super::{Failure, age, keys, shown, table, trials};
use crate::args::ListArgs;
use crate::exit::{print_data, print_json};

/// Names of tasks that a row lists.
const MAX_NAMES: usize = 2;

/// The trials of a key on one hardware and software.
struct Listed<'a> {
    key: &'a str,
    gpu_type: Option<&'a str>,
    origin: &'a Origin,
    names: BTreeSet<&'a str>,
    num_trials: usize,
    /// When the newest was measured.
    measured_unix_s: Option<u64>,
}

pub(super) fn run(store: &Store, args: &ListArgs) -> Result<(), Failure> {
    let trials = trials(store, &keys(store, &[])?);
    let listed = listed(&trials);
    let directory = store.directory().display().to_string();
    if args.json {
        let profiles: Vec<_> = listed.iter().map(Listed::to_json).collect();
        print_json(&json!({"version": 1, "directory": directory, "profiles": profiles}));
    } else if listed.is_empty() {
        eprintln!("nothing is known yet: `{}` holds no profile", escape_terminal(&directory));
    } else {
        let head = ["key", "tasks", "hardware", "software", "trials", "measured"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(listed.iter().map(Listed::row));
        print_data(&table(&rows));
    }
    Ok(())
}

fn listed(trials: &[Trial]) -> Vec<Listed<'_>> {
    let mut places: BTreeMap<_, Listed<'_>> = BTreeMap::new();
    for trial in trials {
        let Some(key) = trial.profile_key.as_deref() else { continue };
        let origin = &trial.origin;
        let place = (key, trial.gpu_type.as_deref(), &origin.hardware, &origin.software);
        let listed = places.entry(place).or_insert_with(|| Listed {
            key,
            gpu_type: trial.gpu_type.as_deref(),
            origin,
            names: BTreeSet::new(),
            num_trials: 0,
            measured_unix_s: None,
        });
        listed.names.insert(&trial.task);
        listed.num_trials += 1;
        listed.measured_unix_s = listed.measured_unix_s.max(trial.newest_unix_s());
    }
    places.into_values().collect()
}

impl Listed<'_> {
    fn row(&self) -> Vec<String> {
        let mut names: Vec<&str> = self.names.iter().copied().take(MAX_NAMES).collect();
        if self.names.len() > MAX_NAMES {
            names.push("…");
        }
        let hardware = self.origin.hardware.as_deref().or(self.gpu_type).unwrap_or("any");
        let cells = [
            shown(self.key),
            &names.join(", "),
            hardware,
            &super::show::software(self.origin),
            &self.num_trials.to_string(),
            &age(self.measured_unix_s),
        ];
        cells.map(escape_terminal).to_vec()
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "key": self.key, "tasks": self.names, "gpu_type": self.gpu_type,
            "hardware": self.origin.hardware, "software": self.origin.software,
            "trials": self.num_trials, "measured_unix_s": self.measured_unix_s,
        })
    }
}
