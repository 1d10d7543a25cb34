//! Machine-wide locks on devices: two runs of a user never share one.
//!
//! A lock is an `flock` on a file of the device's own, in one directory for all of a user's runs on
//! the machine, so it ends with the process that holds it, however that ends. The file says who
//! holds it.
//!
//! The directory is `/tmp/saturn-<uid>`, or what `SATURN_LOCKS_DIR` names. It is not in
//! `$XDG_RUNTIME_DIR`: not every process of a user has one (cron jobs, batch jobs), and it goes with
//! the user's last login while a run goes on. While a run lives it holds a shared lock on the
//! directory itself too: for systemd-tmpfiles, which clears old files from `/tmp`, that means to
//! leave it alone.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::error::RuntimeError;

/// Overrides where locks are.
const VARIABLE: &str = "SATURN_LOCKS_DIR";

/// Who holds a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Holder {
    pid: u32,
    run: PathBuf,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} (run `{}`)", self.pid, self.run.display())
    }
}

/// The devices that a run holds, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Claims {
    directory: PathBuf,
    me: Holder,
    held: Vec<File>,
}

/// What is held in this user's directory of locks, by device, and by whom. Nothing is locked to find
/// that out: a run that starts meanwhile finds free what is free.
pub(crate) fn held_by_runs() -> Result<Vec<(String, Holder)>, RuntimeError> {
    held_in(&Claims::new(None, Path::new(""))?.directory)
}

fn held_in(directory: &Path) -> Result<Vec<(String, Holder)>, RuntimeError> {
    let failed = |error| RuntimeError::file("read", directory)(error);
    let mut held = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let device = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".lock"));
        let holder = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let (Some(device), Some(holder)) = (device, holder)
            && has_open(&holder, &path)
        {
            held.push((device.to_owned(), holder));
        }
    }
    held.sort();
    Ok(held)
}

/// Whether a process still has the file open: it keeps the lock for as long.
fn has_open(holder: &Holder, path: &Path) -> bool {
    let files = std::fs::read_dir(format!("/proc/{}/fd", holder.pid));
    let mut files = files.into_iter().flatten().flatten();
    files.any(|file| std::fs::read_link(file.path()).is_ok_and(|open| open == path))
}

impl Claims {
    /// Nothing held yet. `directory` is where locks are, where it is not the usual place.
    pub(crate) fn new(directory: Option<&Path>, run: &Path) -> Result<Self, RuntimeError> {
        let uid = geteuid().as_raw();
        let directory = directory
            .map(Path::to_owned)
            .or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from))
            .unwrap_or_else(|| std::env::temp_dir().join(format!("saturn-{uid}")));
        let open = own_directory(&directory, uid)?;
        open.try_lock_shared().map_err(|error| {
            let error = match error {
                TryLockError::Error(error) => error,
                TryLockError::WouldBlock => std::io::ErrorKind::WouldBlock.into(),
            };
            RuntimeError::file("lock", &directory)(error)
        })?;
        let me = Holder { pid: std::process::id(), run: run.to_owned() };
        Ok(Self { directory, me, held: vec![open] })
    }

    /// Takes the device of that name, or says who holds it.
    pub(crate) fn claim(
        &mut self,
        device: &str,
    ) -> Result<Result<(), Option<Holder>>, RuntimeError> {
        let path = self.directory.join(format!("{device}.lock"));
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(RuntimeError::file("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // It may be about to be written.
                let _ = file.read_to_string(&mut text);
                return Ok(Err(serde_json::from_str(&text).ok()));
            }
            Err(TryLockError::Error(error)) => {
                return Err(RuntimeError::file("lock", &path)(error));
            }
        }
        let me = serde_json::to_vec(&self.me).map_err(std::io::Error::other);
        me.and_then(|me| {
            file.set_len(0)?;
            file.write_all(&me)
        })
        .map_err(RuntimeError::file("write", &path))?;
        self.held.push(file);
        Ok(Ok(()))
    }
}

/// A directory of this user's own that no one else can write to.
fn own_directory(path: &Path, uid: u32) -> Result<File, RuntimeError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(RuntimeError::file("create", path))?;
    let wrong = |reason: &str| RuntimeError::LocksDirectory {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    // Not followed: a link in /tmp is anyone's.
    let metadata = path.symlink_metadata().map_err(RuntimeError::file("look at", path))?;
    if !metadata.is_dir() {
        return Err(wrong("it is not a directory"));
    }
    if metadata.uid() != uid {
        return Err(wrong("it belongs to another user"));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(wrong("other users may write to it"));
    }
    File::open(path).map_err(RuntimeError::file("open", path))
}

/// What an attempt gives once devices that were let go are free: a process that another test starts
/// at that moment has their locks too, until its program runs.
#[cfg(test)]
pub(crate) fn once_let_go<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let until = crate::clock::deadline(std::time::Duration::from_secs(20));
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(!crate::clock::is_past(until), "the devices stay taken");
        crate::clock::pause(std::time::Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_device_is_held_by_one_run_until_that_lets_go() {
        let dir = TempDir::new().unwrap();
        let locks = dir.path().join("locks");
        let mut one = Claims::new(Some(&locks), Path::new("/runs/one")).unwrap();
        let mut two = Claims::new(Some(&locks), Path::new("/runs/two")).unwrap();
        assert_eq!(one.claim("core-0").unwrap(), Ok(()));
        let holder = two.claim("core-0").unwrap().unwrap_err().unwrap();
        assert_eq!(holder.to_string(), format!("process {} (run `/runs/one`)", std::process::id()));
        assert_eq!(two.claim("core-1").unwrap(), Ok(()));
        drop(one);
        once_let_go(|| two.claim("core-0").unwrap().ok());
    }

    #[test]
    fn what_is_held_is_told_without_holding_it() {
        let dir = TempDir::new().unwrap();
        let locks = dir.path().canonicalize().unwrap().join("locks");
        let mut one = Claims::new(Some(&locks), Path::new("/runs/one")).unwrap();
        assert_eq!(one.claim("core-1").unwrap(), Ok(()));
        let me = Holder { pid: std::process::id(), run: PathBuf::from("/runs/one") };
        assert_eq!(held_in(&locks).unwrap(), [("core-1".to_owned(), me)]);
        drop(one);
        once_let_go(|| held_in(&locks).unwrap().is_empty().then_some(()));
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let dir = TempDir::new().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let error = Claims::new(Some(dir.path()), Path::new("/run")).unwrap_err().to_string();
        assert!(error.contains("other users may write to it"), "{error}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        let error = Claims::new(Some(&link), Path::new("/run")).unwrap_err().to_string();
        assert!(error.contains("it is not a directory"), "{error}");
    }
}
