//! A run's directory: where its files are, and the locks that keep a second driver out.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::statfs;
use saturn_store::io_words;

use crate::asking::control;
use crate::launching::site::Site;
use crate::run_files::journal_location;
use crate::system::clock::{deadline, is_past, pause};
use crate::system::error::RuntimeError;

/// How long to retry a lock that seems held. A process that a driver is starting inherits the
/// driver's locks, and holds them until it calls exec.
const STARTING: Duration = Duration::from_secs(1);
/// How long workers may take to die after their driver.
const DYING: Duration = Duration::from_secs(20);

/// A run directory that this process drives.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    /// The directory, wherever it is moved.
    directory: Arc<File>,
    /// Keep the run locked.
    _locks: Vec<File>,
}

impl RunDir {
    /// Takes a run directory. Fails if another process drives the run or an earlier driver's
    /// workers live.
    pub(crate) fn claim(path: &Path) -> Result<Self, RuntimeError> {
        let claimed = Self::claim_beside_workers(path)?;
        claimed.wait_for_workers()?;
        Ok(claimed)
    }

    /// The same, but workers of an earlier driver may live.
    pub(crate) fn claim_beside_workers(path: &Path) -> Result<Self, RuntimeError> {
        let path = path.canonicalize().map_err(|error| RuntimeError::NoRun {
            path: path.to_owned(),
            reason: io_words(&error),
        })?;
        journal_location::move_off_network_disk(&path)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700))
            .map_err(RuntimeError::file("protect", &path))?;
        let mut locks = Vec::new();
        // A copy of a directory on a network disk has a link to the same journal.
        let beside_journal = journal_of(&path).read_link().ok().map(|target| path.join(target));
        let beside_journal = beside_journal.as_deref().and_then(Path::parent);
        let beside_journal = beside_journal.filter(|of| of.is_dir()).map(Path::to_owned);
        for of in [Some(path.clone()), beside_journal].into_iter().flatten() {
            let run_lock = of.join("run.lock");
            let lock = open_lock(&run_lock)?;
            if !locks_within(&lock, &run_lock, STARTING)? {
                let pid = control::driver_of(&path);
                return Err(RuntimeError::Busy { path, pid });
            }
            locks.push(lock);
        }
        let directory = File::open(&path).map_err(RuntimeError::file("open", &path))?;
        Ok(Self { path, directory: Arc::new(directory), _locks: locks })
    }

    /// Waits for an earlier driver's workers to die, which they do soon after it. Each holds a
    /// shared lock while it lives.
    pub(crate) fn wait_for_workers(&self) -> Result<(), RuntimeError> {
        let path = self.workers_lock();
        if locks_within(&open_lock(&path)?, &path, DYING)? {
            return Ok(());
        }
        Err(RuntimeError::WorkersAlive { path: self.path.clone(), pids: Vec::new() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A look for another thread: whether the directory was neither moved nor removed since it was
    /// taken, or nobody can tell.
    pub(crate) fn look_in_place(&self) -> impl FnMut() -> bool + Send + 'static {
        let (path, directory) = (self.path.clone(), Arc::clone(&self.directory));
        move || leads_to(&path, &directory)
    }

    /// Whether a path leads to this directory, or nobody can tell.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        leads_to(path, &self.directory)
    }

    fn workers_lock(&self) -> PathBuf {
        workers_lock_of(&self.path)
    }

    /// Where processes of the run on this machine find its files.
    pub(crate) fn site(&self) -> Site {
        Site {
            run_dir: self.path.clone(),
            workers_lock: self.workers_lock(),
            parent_logs: self.path.clone(),
        }
    }

    pub(crate) fn journal(&self) -> PathBuf {
        journal_of(&self.path)
    }
}

/// The path of a run's journal.
pub(crate) fn journal_of(run: &Path) -> PathBuf {
    run.join("journal.db")
}

/// The path of the lock that all processes of a run hold.
pub(crate) fn workers_lock_of(run: &Path) -> PathBuf {
    run.join("workers.lock")
}

/// Whether a path still leads to this open directory, or nobody can tell.
pub(crate) fn leads_to(path: &Path, directory: &File) -> bool {
    match (path.metadata(), directory.metadata()) {
        (Ok(found), Ok(own)) => (found.dev(), found.ino()) == (own.dev(), own.ino()),
        (Err(error), _) => error.kind() != std::io::ErrorKind::NotFound,
        (Ok(_), Err(_)) => true,
    }
}

/// Whether the lock can be taken within this time.
fn locks_within(lock: &File, path: &Path, within: Duration) -> Result<bool, RuntimeError> {
    let until = deadline(within);
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(RuntimeError::file("lock", path)(error)),
            Err(TryLockError::WouldBlock) if is_past(until) => return Ok(false),
            Err(TryLockError::WouldBlock) => pause(Duration::from_millis(50)),
        }
    }
}

fn open_lock(path: &Path) -> Result<File, RuntimeError> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(RuntimeError::file("open", path))
}

/// The name of a path's file system, if it is a network file system or may be one.
pub(crate) fn network_file_system_of(path: &Path) -> Option<&'static str> {
    let stat = statfs::statfs(path).ok()?;
    network_file_system(stat.filesystem_type().0 & 0xFFFF_FFFF)
}

/// The name of a file system with this number, if it is a network file system or may be one.
fn network_file_system(number: i64) -> Option<&'static str> {
    // The numbers come from linux/magic.h and the file systems' own sources; nix names only some.
    Some(match number {
        0x6969 => "NFS",
        0xFF53_4D42 | 0xFE53_4D42 => "SMB",
        0x0BD0_0BD0 => "Lustre",
        0x0102_1997 => "9p",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x00C3_6400 => "Ceph",
        0x6573_5546 => "FUSE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_driven_and_takes_no_commands_yet_is_busy_all_the_same() {
        let dir = tempfile::TempDir::new().unwrap();
        let _driven = RunDir::claim(dir.path()).unwrap();
        let error = RunDir::claim(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("another process drives the run `"), "{error}");
    }

    #[test]
    fn two_directories_with_one_journal_have_one_driver() {
        let dir = tempfile::TempDir::new().unwrap();
        let [kept, run, copied] = ["kept", "run", "copied"].map(|name| dir.path().join(name));
        for made in [&kept, &run, &copied] {
            std::fs::create_dir(made).unwrap();
        }
        for of in [&run, &copied] {
            std::os::unix::fs::symlink(kept.join("journal.db"), journal_of(of)).unwrap();
        }
        let driven = RunDir::claim(&run).unwrap();
        assert!(matches!(RunDir::claim(&copied), Err(RuntimeError::Busy { .. })));
        drop(driven);
        RunDir::claim(&copied).unwrap();
    }

    #[test]
    fn a_directory_that_was_moved_or_removed_is_noticed() {
        let dir = tempfile::TempDir::new().unwrap();
        let (run, moved) = (dir.path().join("run"), dir.path().join("moved"));
        std::fs::create_dir(&run).unwrap();
        let driven = RunDir::claim(&run).unwrap();
        let mut is_in_place = driven.look_in_place();
        assert!(is_in_place());
        std::fs::rename(&run, &moved).unwrap();
        assert!(!is_in_place());
        std::fs::create_dir(&run).unwrap();
        assert!(!is_in_place(), "another directory of its name");
        std::fs::remove_dir(&run).unwrap();
        std::os::unix::fs::symlink(&moved, &run).unwrap();
        assert!(is_in_place());
    }

    #[test]
    fn a_lock_that_is_held_for_a_moment_is_waited_for() {
        let dir = tempfile::TempDir::new().unwrap();
        let driven = RunDir::claim(dir.path()).unwrap();
        let starting = std::thread::spawn(move || {
            pause(Duration::from_millis(150));
            drop(driven);
        });
        assert!(RunDir::claim(dir.path()).is_ok());
        starting.join().unwrap();
    }

    #[test]
    fn only_local_file_systems_may_hold_a_journal() {
        for (number, name) in [(0x6969, "NFS"), (0x4750_4653, "GPFS"), (0x6573_5546, "FUSE")] {
            assert_eq!(network_file_system(number), Some(name));
        }
        // ext4, XFS, btrfs, tmpfs, overlayfs.
        for number in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630] {
            assert_eq!(network_file_system(number), None);
        }
    }
}
