//! What a trial states and what training came to, on the recorded runs: with the scatter of the other
//! runs added, four of five stated intervals hold.

use std::path::{Path, PathBuf};

use saturn_core::{TrialOutcome, quantile};
use saturn_engine::{Record, TrialKey};
use saturn_store::{DEFAULT_DEPARTURES, trial_spread};
use saturn_view::History;

/// How many standard deviations from the middle a Normal distribution has four of five values.
const BAND: f64 = 1.281_551_565_545;
/// The error of a trial that states none, as a part.
const USUAL_ERROR: f64 = 0.05;

fn recordings() -> Vec<PathBuf> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/replay/runs");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some()).collect();
    files.sort();
    files
}

/// For each trial of a run whose strategy was trained, the ratio of trained to tried seconds a step,
/// and the trial's own error.
fn trials(path: &Path) -> Vec<(f64, f64)> {
    let records = saturn_runtime::recorded(path).unwrap().records;
    let tried = records.iter().filter_map(|(record, _)| match record {
        Record::Tried { group, gpu_type, strategy, outcome } => {
            let TrialOutcome::Measured { relative_error, .. } = outcome else { return None };
            let key = TrialKey { strategy: strategy.key(), gpu_type: gpu_type.clone() };
            Some((group.clone(), key, relative_error.unwrap_or(USUAL_ERROR)))
        }
        _ => None,
    });
    let tried: Vec<(String, TrialKey, f64)> = tried.collect();
    let (_, history) = saturn_view::replay(records).unwrap();
    let ratio = |group: &str, key: &TrialKey| History::trial_ratio(&history, group, key);
    tried.iter().filter_map(|(group, key, error)| Some((ratio(group, key)?, *error))).collect()
}

#[test]
fn four_of_five_trials_are_as_near_to_training_as_they_state() {
    let runs: Vec<Vec<(f64, f64)>> = recordings().iter().map(|path| trials(path)).collect();
    let (mut held, mut held_alone, mut all) = (0, 0, 0);
    for (index, run) in runs.iter().enumerate() {
        let others = runs.iter().enumerate().filter(|(other, _)| *other != index);
        let others: Vec<f64> = others.flat_map(|(_, run)| run).map(|(ratio, _)| *ratio).collect();
        let spread = trial_spread(&others);
        for (ratio, error) in run {
            let departure = ratio.ln().abs();
            all += 1;
            held += u32::from(departure <= BAND * error.hypot(spread));
            held_alone += u32::from(departure <= BAND * error);
        }
    }
    let share = |held: u32| f64::from(held) / f64::from(all);
    assert!(all >= 50, "{all} trials");
    assert!((0.75..=0.85).contains(&share(held)), "{held} of {all}");
    assert!(
        share(held_alone) < 0.5,
        "a trial alone is surer than it should be: {held_alone} of {all}"
    );
}

#[test]
fn the_default_is_what_the_recorded_runs_came_to() {
    let ratios =
        recordings().into_iter().flat_map(|path| trials(&path)).map(|(ratio, _)| ratio.ln().abs());
    let mut departures: Vec<f64> = ratios.collect();
    departures.sort_unstable_by(f64::total_cmp);
    let found = (0..10).map(|index| quantile(&departures, f64::from(index) / 10.0 + 0.05).unwrap());
    let found: Vec<f64> = found.collect();
    let is_close = |(found, default): (&f64, &f64)| (found - default).abs() < 0.02;
    assert!(found.iter().zip(&DEFAULT_DEPARTURES).all(is_close), "{found:.2?}");
}
