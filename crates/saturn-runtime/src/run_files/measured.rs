//! For measurements: writes the journal of a simulated run, and reads a journal as a resume does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use saturn_engine::{Engine, Record};
use saturn_store::Disk;
use saturn_view::History;

use crate::launching::settings::LaunchSettings;
use crate::run_files::journal::Journal;
use crate::run_files::replayed::Replayed;
use crate::run_files::run_dir::journal_of;
use crate::system::error::RuntimeError;

/// Writes the journal of a run that no process drives, into a directory without one. The decisions
/// are given in order, each as its records and the time of all of them, in seconds on the run's
/// clock. The first has the run's beginning.
///
/// # Errors
///
/// [`RuntimeError::Journal`] if a decision can't be stored.
pub fn write_journal(
    run_dir: &Path,
    mut decisions: impl Iterator<Item = (Vec<Record>, f64)>,
) -> Result<(), RuntimeError> {
    let settings = LaunchSettings {
        python: "python3".to_owned(),
        python_path: Vec::new(),
        cwd: PathBuf::from("/"),
        preload: Vec::new(),
        devices: None,
        locks_dir: None,
        run_id: "simulated".to_owned(),
        run_dir: None,
        store: None,
        host_memory_bytes: None,
        outlives_s: None,
        platform: None,
        door: None,
        shared_gpus: BTreeSet::new(),
    };
    let (first, _) = decisions.next().unwrap_or_default();
    let path = journal_of(run_dir);
    let mut journal = Journal::create(&path, &settings, &first, Disk::default())?;
    for (records, at_s) in decisions {
        journal.append(&records, at_s)?;
    }
    Ok(())
}

/// Opens a run's journal and rebuilds the run from it, as a resume does before it looks for devices.
/// Also returns how many records the journal has.
///
/// # Errors
///
/// [`RuntimeError::NoRun`] and the other errors of journals.
pub fn reopen(run_dir: &Path) -> Result<(Engine, History, u64), RuntimeError> {
    let (journal, replayed) = Replayed::open(&journal_of(run_dir), Disk::default())?;
    let num_records = journal.num_records()?;
    Ok((Engine::from_state(replayed.state), replayed.history, num_records))
}
