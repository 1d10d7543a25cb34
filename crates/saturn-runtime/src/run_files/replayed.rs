//! A run as its journal tells of it, folded record by record: a long run's records are many times
//! larger than what they add up to.

use std::path::Path;

use saturn_engine::State;
use saturn_store::Disk;
use saturn_view::{History, Replay};

use crate::launching::settings::LaunchSettings;
use crate::run_files::contents::fold;
use crate::run_files::journal::Journal;
use crate::system::error::RuntimeError;

/// What the records of a journal add up to.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) settings: LaunchSettings,
    pub(crate) state: State,
    pub(crate) history: History,
}

impl Replayed {
    /// Reads the journal of a run that another process may drive.
    pub(crate) fn read(path: &Path) -> Result<Self, RuntimeError> {
        let (replay, settings) =
            fold(path, &Replay::default, &|replay, record, at_s| replay.take(&record, at_s))?;
        Self::of(path, replay, settings)
    }

    /// Opens the journal of a run that this process is to continue.
    pub(crate) fn open(path: &Path, disk: Disk) -> Result<(Journal, Self), RuntimeError> {
        let mut replay = Replay::default();
        let (journal, settings) =
            Journal::open(path, disk, &mut |record, at_s| replay.take(&record, at_s))?;
        Ok((journal, Self::of(path, replay, settings)?))
    }

    fn of(path: &Path, replay: Replay, settings: LaunchSettings) -> Result<Self, RuntimeError> {
        let (state, history) = replay.done().ok_or_else(|| RuntimeError::Damaged {
            path: path.to_owned(),
            reason: "its first record is not a run's beginning".to_owned(),
        })?;
        Ok(Self { settings, state, history })
    }
}
