//! The store: the results of trials and training, kept for later runs in a directory of the user's
//! own.
//!
//! `$SATURN_HOME/profiles/` has a file for each profile key, `<key>.v1.json`, in the format of a
//! run's `profile.json`. Each trial names its hardware, its software and its limit of memory. So
//! trials of different machines or versions of torch stand side by side and are never confused.
//!
//! Invariants:
//! - A file is replaced in one step, under the store's lock, by its old content merged with the
//!   new. However many processes write, no trial is lost.
//! - Only `forget` deletes trials. A file that can't be used is renamed and kept.
//! - Only the user can read the store (0700, 0600).

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use saturn_core::{Profile, Trial, TrialOutcome};

use crate::disk::Disk;
use crate::error::{FileError, io_words, with_causes};
use crate::home::home;

/// The version is part of the file name, so another version of Saturn leaves these files alone.
const ENDING: &str = ".v1.json";
/// The length of a profile key, which is a SHA-256 in hexadecimal digits.
const KEY_DIGITS: usize = 64;

/// A user's store. Its directory may not exist yet.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) directory: PathBuf,
    pub(crate) disk: Disk,
}

/// How many trials of a profile came into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Added {
    /// Trials of which the store had no counterpart.
    pub new: usize,
    /// Trials that replaced a counterpart.
    pub replaced: usize,
}

impl Store {
    /// The store of this user: in `SATURN_HOME`, else in `$XDG_DATA_HOME/saturn`, else in
    /// `~/.local/share/saturn`. `None` if the user has no home directory.
    pub fn of_user() -> Option<Self> {
        home().map(|home| Self::at(&home))
    }

    /// The store in this Saturn home.
    pub fn at(home: &Path) -> Self {
        Self { directory: home.join("profiles"), disk: Disk::default() }
    }

    /// The same store on another disk; tests make it fail.
    #[must_use]
    pub fn on(self, disk: Disk) -> Self {
        Self { disk, ..self }
    }

    /// The store's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The profile keys that the store has trials of, in order.
    pub fn keys(&self) -> Result<Vec<String>, FileError> {
        let failed = |error| FileError::of("read", &self.directory)(error);
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut keys = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let key = name.to_str().and_then(|name| name.strip_suffix(ENDING));
            keys.extend(key.filter(|key| is_key(key)).map(str::to_owned));
        }
        keys.sort();
        Ok(keys)
    }

    /// The trials of a key; empty if the key has no file. A file that can't be used is renamed, and
    /// `note` gets a line about it.
    pub fn read(&self, key: &str, note: &mut dyn FnMut(String)) -> Vec<Trial> {
        match self.try_read(key) {
            Ok(trials) => trials,
            Err(_) => match self.locked() {
                // Another process may have repaired the file meanwhile.
                Ok(lock) => self.read_or_set_aside(key, &lock, note),
                Err(error) => {
                    note(with_causes(&error));
                    Vec::new()
                }
            },
        }
    }

    /// Adds trials. A trial replaces the known trial of the same strategy on the same hardware and
    /// software, under the same limit of memory. Results of training without a trial are merged
    /// into it. Every trial needs a profile key, and failed trials are left out.
    pub fn add(
        &self,
        trials: Vec<Trial>,
        note: &mut dyn FnMut(String),
    ) -> Result<Added, FileError> {
        let mut by_key: BTreeMap<String, Vec<Trial>> = BTreeMap::new();
        for trial in trials {
            let has_failed = matches!(trial.outcome, Some(TrialOutcome::Failed { .. }));
            if let Some(key) = trial.profile_key.clone().filter(|key| is_key(key) && !has_failed) {
                by_key.entry(key).or_default().push(trial);
            }
        }
        if by_key.is_empty() {
            return Ok(Added::default());
        }
        let lock = self.locked()?;
        let mut added = Added::default();
        for (key, new) in by_key {
            let mut known = self.read_or_set_aside(&key, &lock, note);
            for trial in new {
                if let Some(old) = known.iter_mut().find(|old| is_like(old, &trial)) {
                    take_in(old, trial);
                    added.replaced += 1;
                } else {
                    known.push(trial);
                    added.new += 1;
                }
            }
            let text = Profile { trials: known }.to_json();
            self.disk.replace_private(&self.path(&key), text.as_bytes())?;
        }
        Ok(added)
    }

    /// Keeps the trials of a key that `keep` accepts. Returns how many were dropped.
    pub fn retain(
        &self,
        key: &str,
        keep: impl Fn(&Trial) -> bool,
        note: &mut dyn FnMut(String),
    ) -> Result<usize, FileError> {
        let lock = self.locked()?;
        let known = self.read_or_set_aside(key, &lock, note);
        let num_known = known.len();
        let kept: Vec<Trial> = known.into_iter().filter(keep).collect();
        let num_gone = num_known - kept.len();
        let path = self.path(key);
        if kept.is_empty() && path.exists() {
            std::fs::remove_file(&path).map_err(FileError::of("remove", &path))?;
        } else if num_gone > 0 {
            let text = Profile { trials: kept }.to_json();
            self.disk.replace_private(&path, text.as_bytes())?;
        }
        Ok(num_gone)
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{key}{ENDING}"))
    }

    /// The trials in a key's file, or what is wrong with the file.
    fn try_read(&self, key: &str) -> Result<Vec<Trial>, String> {
        let text = match std::fs::read_to_string(self.path(key)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_words(&error)),
        };
        let trials = Profile::from_json(&text).map_err(|error| error.to_string())?.trials;
        let foreign = trials.iter().position(|trial| trial.profile_key.as_deref() != Some(key));
        match foreign {
            Some(index) => Err(format!("`trials[{index}].profile_key` is not the file's own")),
            None => Ok(trials),
        }
    }

    fn read_or_set_aside(
        &self,
        key: &str,
        _lock: &File,
        note: &mut dyn FnMut(String),
    ) -> Vec<Trial> {
        let reason = match self.try_read(key) {
            Ok(trials) => return trials,
            Err(reason) => reason,
        };
        set_aside(&self.path(key), &reason, note);
        Vec::new()
    }

    /// Takes the lock that every writer holds; dropping it releases the lock. Makes the store's
    /// directory if needed.
    pub(crate) fn locked(&self) -> Result<File, FileError> {
        let directory = &self.directory;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(FileError::of("create", directory))?;
        let path = directory.join(".lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(FileError::of("open", &path))?;
        // The directory may have been made by hand, or under another umask.
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o700))
            .and_then(|()| lock.lock())
            .map_err(FileError::of("lock", &path))?;
        Ok(lock)
    }
}

/// Renames a file that can't be used, and tells where it is.
pub(crate) fn set_aside(path: &Path, reason: &str, note: &mut dyn FnMut(String)) {
    let aside = (1..=u32::MAX)
        .map(|number| path.with_added_extension(format!("set-aside-{number}")))
        .find(|aside| !aside.exists())
        .unwrap_or_else(|| path.to_owned());
    let what = match std::fs::rename(path, &aside) {
        Ok(()) => format!("it is set aside as `{}`", aside.display()),
        Err(error) => format!("it can't be set aside either ({})", io_words(&error)),
    };
    note(format!("the store's file `{}` can't be used: {reason}; {what}", path.display()));
}

/// Whether a text is a profile key: 64 hexadecimal digits.
pub fn is_key(key: &str) -> bool {
    key.len() == KEY_DIGITS && key.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether two trials of one profile key measure the same thing, so that the newer replaces the
/// older.
pub fn is_like(one: &Trial, other: &Trial) -> bool {
    one.strategy.key() == other.strategy.key()
        && one.gpu_type == other.gpu_type
        && one.device_memory_bytes == other.device_memory_bytes
        && one.origin.hardware == other.origin.hardware
        && one.origin.software == other.origin.software
        && one.origin.node_gpus == other.origin.node_gpus
}

/// Replaces a known trial by a new one, or merges the two.
fn take_in(known: &mut Trial, new: Trial) {
    let is_same = known.strategy == new.strategy;
    match (&new.outcome, new.trained) {
        (None, Some(newer)) if is_same => {
            known.trained = match known.trained {
                // The same measurement was imported again.
                Some(old) if old == newer => Some(old),
                Some(old) => Some(old.followed_by(newer)),
                None => Some(newer),
            };
        }
        // Training ran under other knobs than the trial chose.
        (None, _) if known.outcome.is_some() => {}
        (None, _) => *known = new,
        // Training knows more than a trial of a few steps, so its result stays.
        (Some(_), trained) => {
            let trained = trained.or(known.trained.filter(|_| is_same));
            *known = Trial { trained, ..new };
        }
    }
}

#[cfg(test)]
mod tests;
