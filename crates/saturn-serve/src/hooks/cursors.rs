//! Up to which record of each run a receiver was told everything.
//!
//! A receiver has a file of its own, `$SATURN_HOME/webhooks/<digest>.json`, named after the digest of
//! its address, and a lock beside it: two servers would tell everything twice.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use saturn_runtime::JournalHead;
use saturn_store::{Disk, FileError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::hooks::happenings::Late;

/// How far the receiver is in a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Cursor {
    /// The id of the run: another run of the same directory begins anew.
    pub(super) run_id: String,
    /// Everything up to this record was told.
    pub(super) told: u64,
    /// Deadlines that will be missed, as was told.
    #[serde(default)]
    pub(super) late: Late,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    /// When there first was something to tell the receiver, seconds of Unix time.
    since_unix_s: u64,
    runs: BTreeMap<PathBuf, Cursor>,
}

/// How far a receiver is in all runs.
#[derive(Debug)]
pub(super) struct Cursors {
    path: PathBuf,
    kept: Kept,
    is_saved: bool,
    /// Held for as long as this server tells the receiver.
    _lock: File,
}

/// Why a receiver can't be told.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// Another server tells it.
    Taken,
    /// Its file can't be had.
    Failed(FileError),
}

impl Cursors {
    /// How far the receiver of this address is. If it is new, it is so since `now_s`, in Unix time.
    pub(super) fn open(home: &Path, address: &str, now_s: u64) -> Result<Self, NotOpened> {
        let digest: [u8; 32] = Sha256::digest(address.as_bytes()).into();
        let short = digest[..8].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        let name = format!("{short:016x}");
        let directory = home.join("webhooks");
        Disk::default().make_directory(&directory).map_err(NotOpened::Failed)?;
        let path = directory.join(name).with_extension("json");
        let lock_path = path.with_extension("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(FileError::of("open", &lock_path)).map_err(NotOpened::Failed)?;
        lock.try_lock().map_err(|_| NotOpened::Taken)?;
        let fresh = || Kept { version: 1, since_unix_s: now_s, runs: BTreeMap::new() };
        let kept = match std::fs::read(&path) {
            // A file that can't be read is begun anew: what happened is told from now on.
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|_| fresh()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => fresh(),
            Err(error) => return Err(NotOpened::Failed(FileError::of("read", &path)(error))),
        };
        let opened = Self { path, kept, is_saved: true, _lock: lock };
        opened.save().map_err(NotOpened::Failed)?;
        Ok(opened)
    }

    /// How far the receiver is in this run. Of a run that began before the receiver was first told of
    /// anything, only what is still to come is told.
    pub(super) fn of(&self, run: &Path, head: &JournalHead) -> Cursor {
        // Journals of early versions have no id.
        let is_this = |one: &&Cursor| one.run_id == head.run_id && !head.run_id.is_empty();
        let here = self.kept.runs.get(run).filter(is_this);
        // Its directory may have been moved or copied since.
        match here.or_else(|| self.kept.runs.values().find(is_this)) {
            Some(known) => known.clone(),
            None => Cursor {
                run_id: head.run_id.clone(),
                told: if head.begun_unix_s < self.kept.since_unix_s { head.newest } else { 0 },
                late: Late::new(),
            },
        }
    }

    /// Notes how far the receiver is in this run, to be saved.
    pub(super) fn set(&mut self, run: &Path, cursor: &Cursor) {
        if self.kept.runs.get(run) != Some(cursor) {
            self.kept.runs.insert(run.to_owned(), cursor.clone());
            self.is_saved = false;
        }
    }

    /// Saves what was noted since the last call. Forgets runs whose directories are gone.
    pub(super) fn flush(&mut self) -> Result<(), FileError> {
        if !self.is_saved {
            self.kept.runs.retain(|run, _| run.exists());
            self.save()?;
            self.is_saved = true;
        }
        Ok(())
    }

    fn save(&self) -> Result<(), FileError> {
        let text = serde_json::to_vec_pretty(&self.kept).unwrap_or_default();
        Disk::default().replace_private(&self.path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_known_by_its_id_wherever_its_directory_is() {
        let home = tempfile::tempdir().unwrap();
        let head =
            |run_id: &str| JournalHead { run_id: run_id.to_owned(), newest: 9, begun_unix_s: 100 };
        let mut cursors = Cursors::open(home.path(), "http://localhost/hook", 50).unwrap();
        let told = Cursor { run_id: "one".to_owned(), told: 7, late: Late::new() };
        cursors.set(home.path(), &told);
        cursors.flush().unwrap();
        assert_eq!(cursors.of(Path::new("/moved"), &head("one")), told);
        assert_eq!(cursors.of(Path::new("/moved"), &head("other")).told, 0);
        let early = Cursor { run_id: String::new(), ..told };
        cursors.set(home.path(), &early);
        assert_eq!(cursors.of(Path::new("/moved"), &head("")).told, 0, "it has no id");
    }
}
