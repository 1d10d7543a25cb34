//! Machine-wide locks on devices: two runs of one user never share a device, and runs of two users
//! no GPU (`across_users`).
//!
//! A lock is an `flock` on a file of the device's own. The kernel releases it when the process that
//! holds it ends, however the process ends. The file names the holder. All runs of a user on a
//! machine keep these files in one directory.
//!
//! The directory is `/tmp/saturn-<uid>`, or what `SATURN_LOCKS_DIR` names. `$XDG_RUNTIME_DIR` would
//! not do. Some processes of a user have none (cron jobs, batch jobs), and systemd removes it at
//! the user's last logout, while a run may go on. A run also holds a shared lock on the directory
//! itself. systemd-tmpfiles, which clears old files from `/tmp`, leaves a locked directory alone.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::devices::across_users::{self, Across};
use crate::system::error::RuntimeError;

/// The environment variable that overrides where locks are.
const VARIABLE: &str = "SATURN_LOCKS_DIR";

/// The process, and its run, that holds a device.
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

/// Who holds a device that a run can't have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    /// Another run of this user; `None` if it has not written its name yet.
    Run(Option<Holder>),
    /// A run of another user; `None` if it is unknown whose.
    User(Option<String>),
    /// Programs other than Saturn, in words.
    Outside(String),
}

/// The devices that a run holds. Dropping this releases them.
#[derive(Debug)]
pub(crate) struct Claims {
    directory: PathBuf,
    /// The directory of the locks that all users see; `None` if another directory than the usual
    /// one keeps this run apart from others.
    across_users: Option<PathBuf>,
    me: Holder,
    held: Vec<File>,
}

/// The devices that runs of this user hold, by name, each with its holder. This takes no lock: a
/// run that starts at the same moment still finds every free device free.
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

/// Whether the holder still has the lock file open. The lock lasts exactly as long.
fn has_open(holder: &Holder, path: &Path) -> bool {
    let files = std::fs::read_dir(format!("/proc/{}/fd", holder.pid));
    let mut files = files.into_iter().flatten().flatten();
    files.any(|file| std::fs::read_link(file.path()).is_ok_and(|open| open == path))
}

impl Claims {
    /// Claims without a device so far. `directory` replaces the usual directory of locks.
    pub(crate) fn new(directory: Option<&Path>, run: &Path) -> Result<Self, RuntimeError> {
        let uid = geteuid().as_raw();
        let is_usual = directory.is_none() && std::env::var_os(VARIABLE).is_none();
        let across_users = is_usual.then(|| PathBuf::from(across_users::DIRECTORY));
        let directory = directory.map_or_else(|| usual_directory(uid), Path::to_owned);
        let open = own_directory(&directory, uid)?;
        open.try_lock_shared().map_err(|error| {
            let error = match error {
                TryLockError::Error(error) => error,
                TryLockError::WouldBlock => std::io::ErrorKind::WouldBlock.into(),
            };
            RuntimeError::file("lock", &directory)(error)
        })?;
        let me = Holder { pid: std::process::id(), run: run.to_owned() };
        Ok(Self { directory, across_users, me, held: vec![open] })
    }

    /// The files whose locks this holds, for a child process: the locks last until both processes
    /// have closed them.
    pub(crate) fn files(&self) -> Result<Vec<OwnedFd>, RuntimeError> {
        let cloned = self.held.iter().map(|file| Ok(OwnedFd::from(file.try_clone()?)));
        let cloned: std::io::Result<_> = cloned.collect();
        cloned.map_err(RuntimeError::file("hand on the locks of", &self.directory))
    }

    /// The claims of another process that has handed on these files: this process holds their locks
    /// too. Their holder stays named as it is.
    pub(crate) fn handed(run: &Path, files: Vec<OwnedFd>) -> Result<Self, RuntimeError> {
        let me = Holder { pid: std::process::id(), run: run.to_owned() };
        let held: Vec<File> = files.into_iter().map(File::from).collect();
        let mut directory = PathBuf::new();
        for file in &held {
            let path = path_of(file)?;
            let is_own = !path.starts_with(across_users::DIRECTORY);
            if is_own && path.extension().is_none_or(|extension| extension != "lock") {
                directory = path;
            }
        }
        Ok(Self { directory, across_users: None, me, held })
    }

    /// Names this process as the holder of its locks.
    pub(crate) fn sign(&self) -> Result<(), RuntimeError> {
        for file in &self.held {
            let path = path_of(file)?;
            if path.starts_with(&self.directory) && path != self.directory {
                let me = serde_json::to_vec(&self.me).map_err(std::io::Error::other);
                let written = me.and_then(|me| std::fs::write(&path, me));
                written.map_err(RuntimeError::file("write", &path))?;
            }
        }
        Ok(())
    }

    /// Takes a CPU slot of this name, or says who holds it.
    pub(crate) fn claim(&mut self, device: &str) -> Result<Result<(), By>, RuntimeError> {
        Ok(self.own(device)?.map(|file| self.held.push(file)))
    }

    /// Takes the GPU of this UUID, or says who holds it.
    pub(crate) fn claim_gpu(&mut self, uuid: &str) -> Result<Result<(), By>, RuntimeError> {
        let file = match self.own(uuid)? {
            Ok(file) => file,
            Err(by) => return Ok(Err(by)),
        };
        match self.across_users.as_ref().map(|all| across_users::lock(all, uuid)) {
            Some(Across::Anothers(user)) => return Ok(Err(By::User(user))),
            Some(Across::Held(files)) => self.held.extend(files),
            Some(Across::Unknown) | None => {}
        }
        self.held.push(file);
        Ok(Ok(()))
    }

    /// Who holds the GPU of this UUID, if that is a run. It is not taken.
    pub(crate) fn run_on(&self, uuid: &str) -> Result<Option<By>, RuntimeError> {
        if let Err(by) = self.own(uuid)? {
            return Ok(Some(by));
        }
        Ok(match self.across_users.as_ref().map(|all| across_users::lock(all, uuid)) {
            Some(Across::Anothers(user)) => Some(By::User(user)),
            _ => None,
        })
    }

    /// Locks a device against other runs of this user, and names this run as its holder.
    fn own(&self, device: &str) -> Result<Result<File, By>, RuntimeError> {
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
                // The holder may not have written its name yet.
                let _ = file.read_to_string(&mut text);
                return Ok(Err(By::Run(serde_json::from_str(&text).ok())));
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
        Ok(Ok(file))
    }
}

/// Where an open file lies.
fn path_of(file: &File) -> Result<PathBuf, RuntimeError> {
    let link = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    std::fs::read_link(&link).map_err(RuntimeError::file("find", &link))
}

/// The open file of this number, of which nobody else in this process knows: it was inherited, or
/// has come through a socket.
#[expect(unsafe_code, reason = "a number says nothing of who else would close the file")]
pub(crate) fn owned(number: RawFd) -> OwnedFd {
    // SAFETY: the caller alone has the number, and it is of a file that is open.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// The directory of locks of a user's runs.
fn usual_directory(uid: u32) -> PathBuf {
    // Not `$TMPDIR`, which differs between shells and batch jobs of one user.
    let usual = || Path::new("/tmp").join(format!("saturn-{uid}"));
    std::env::var_os(VARIABLE).map_or_else(usual, PathBuf::from)
}

/// Opens a directory that belongs to this user and that nobody else can write to. Creates it if
/// needed.
fn own_directory(path: &Path, uid: u32) -> Result<File, RuntimeError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(RuntimeError::file("create", path))?;
    let wrong = |reason: &str| RuntimeError::LocksDirectory {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    // Does not follow a link: anybody can make a link in /tmp.
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

/// Repeats `attempt` until released devices are free, and returns its result. A child process that
/// another test forks at that moment inherits the lock files, and keeps the locks until it calls
/// exec.
#[cfg(test)]
pub(crate) fn once_let_go<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let until = crate::system::clock::deadline(std::time::Duration::from_secs(20));
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(!crate::system::clock::is_past(until), "the devices stay taken");
        crate::system::clock::pause(std::time::Duration::from_millis(5));
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
        let Err(By::Run(Some(holder))) = two.claim("core-0").unwrap() else { panic!("it is held") };
        assert_eq!(holder.to_string(), format!("process {} (run `/runs/one`)", std::process::id()));
        assert_eq!(two.claim("core-1").unwrap(), Ok(()));
        drop(one);
        once_let_go(|| two.claim("core-0").unwrap().ok());
    }

    #[test]
    fn runs_of_two_users_share_no_gpu() {
        let dir = TempDir::new().unwrap();
        // Another user's directory of own locks is another directory.
        let claims = |user: &str| {
            let claims = Claims::new(Some(&dir.path().join(user)), Path::new("/runs/one")).unwrap();
            Claims { across_users: Some(dir.path().join("all")), ..claims }
        };
        let (mut ada, mut tomas) = (claims("ada"), claims("tomas"));
        assert_eq!(ada.claim_gpu("GPU-1").unwrap(), Ok(()));
        assert!(matches!(tomas.claim_gpu("GPU-1").unwrap(), Err(By::User(Some(_)))));
        assert_eq!(tomas.claim_gpu("GPU-2").unwrap(), Ok(()));
        // A slot is a core, which the kernel shares out.
        assert_eq!(
            (ada.claim("core-0").unwrap(), tomas.claim("core-0").unwrap()),
            (Ok(()), Ok(()))
        );
        drop(ada);
        once_let_go(|| tomas.claim_gpu("GPU-1").unwrap().ok());
    }

    #[test]
    fn the_usual_directory_is_the_same_whatever_tmpdir_says() {
        const IN_CHILD: &str = "SATURN_TEST_IN_CHILD";
        if std::env::var_os(IN_CHILD).is_some() {
            assert_eq!(usual_directory(7), Path::new("/tmp/saturn-7"));
            return;
        }
        // Variables of this process can't be changed safely, so a process of its own looks.
        let name = "devices::claims::tests::the_usual_directory_is_the_same_whatever_tmpdir_says";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name]).env_remove(VARIABLE);
        let child = again.env("TMPDIR", "/elsewhere").env(IN_CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && text.contains("1 passed"), "{text}");
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
