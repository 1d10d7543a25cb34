//! Locks on GPUs that all users of a machine see: runs of two users never share a GPU.
//!
//! A lock is an `flock` on a file of the GPU's own, in one directory for all users. Anybody may open
//! the file to read, and that is enough to lock it. So nobody needs rights to what another user has
//! written, and nobody reads it: who holds a lock is asked of the kernel.
//!
//! Where the directory is not as it should be, since somebody else has made it so, users are not
//! kept apart, as before there was a directory. A run must not fail for that.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::{major, minor};
use nix::unistd::{Uid, User};

/// The directory of these locks.
pub(super) const DIRECTORY: &str = "/tmp/saturn-gpus";
/// Anybody may make files there, and only remove their own.
const FOR_ALL: u32 = 0o1777;
/// Only its maker may write to a lock's file, and anybody may open it.
const FOR_READERS: u32 = 0o644;

/// What became of a lock.
#[derive(Debug)]
pub(super) enum Across {
    /// It is held, as long as these files are open.
    Held(Vec<File>),
    /// A run of another user holds it: the user, if known.
    Anothers(Option<String>),
    /// It can't be had, and nobody is kept away.
    Unknown,
}

/// Locks a GPU against other users' runs.
pub(super) fn lock(directory: &Path, gpu: &str) -> Across {
    let opened = opened_directory(directory)
        .and_then(|directory_file| Some((directory_file, opened(&directory.join(gpu))?)));
    let Some((directory_file, file)) = opened else { return Across::Unknown };
    match file.try_lock() {
        Ok(()) => Across::Held(vec![directory_file, file]),
        Err(TryLockError::WouldBlock) => Across::Anothers(holder_of(&file)),
        Err(TryLockError::Error(_)) => Across::Unknown,
    }
}

/// The directory, made if needed. What clears old files from `/tmp` leaves a locked directory alone.
fn opened_directory(path: &Path) -> Option<File> {
    let made = DirBuilder::new().mode(0o777).create(path);
    match made {
        // The process's own mask has taken rights away.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(FOR_ALL)).ok()?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(_) => return None,
    }
    // Does not follow a link: anybody can make a link in /tmp.
    let metadata = path.symlink_metadata().ok()?;
    (metadata.is_dir() && metadata.mode() & FOR_ALL == FOR_ALL).then_some(())?;
    let file = File::open(path).ok()?;
    file.try_lock_shared().ok()?;
    Some(file)
}

/// The file of a lock, made if needed.
fn opened(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    // Does not wait for a pipe that somebody has put there.
    options.read(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
    let file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let made = OpenOptions::new().write(true).create_new(true).open(path);
            if let Ok(made) = made {
                made.set_permissions(Permissions::from_mode(FOR_READERS)).ok()?;
            }
            options.open(path)
        }
        opened => opened,
    };
    file.ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file()))
}

/// The user whose process holds the lock on a file.
fn holder_of(file: &File) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    let place = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 4242 fe:00:10431617 0 EOF`
    let holder = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, held, ..] = fields[..] else { return None };
        (held == place).then(|| pid.to_owned())
    })?;
    let uid = fs::metadata(Path::new("/proc").join(holder)).ok()?.uid();
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    Some(user.map_or_else(|| format!("user {uid}"), |user| user.name))
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::{geteuid, mkfifo};
    use tempfile::TempDir;

    use super::*;
    use crate::devices::claims::once_let_go;

    #[test]
    fn a_gpu_is_one_users_who_is_told_and_then_anothers() {
        let root = TempDir::new().unwrap();
        let all = root.path().join("gpus");
        let Across::Held(files) = lock(&all, "GPU-1") else { panic!("it is free") };
        let me = User::from_uid(geteuid()).unwrap().unwrap().name;
        match lock(&all, "GPU-1") {
            Across::Anothers(Some(user)) => assert_eq!(user, me),
            other => panic!("{other:?}"),
        }
        assert!(matches!(lock(&all, "GPU-2"), Across::Held(_)), "another GPU is free");
        // Whoever may open the file may lock it, and nobody but its maker may write to it.
        assert_eq!(all.join("GPU-1").metadata().unwrap().mode() & 0o777, FOR_READERS);
        assert_eq!(all.metadata().unwrap().mode() & 0o7777, FOR_ALL);
        drop(files);
        once_let_go(|| matches!(lock(&all, "GPU-1"), Across::Held(_)).then_some(()));
    }

    #[test]
    fn what_somebody_else_has_prepared_is_not_followed() {
        let root = TempDir::new().unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        assert!(matches!(lock(&link, "GPU-1"), Across::Unknown));
        let own = root.path().join("own");
        fs::create_dir(&own).unwrap();
        assert!(matches!(lock(&own, "GPU-1"), Across::Unknown), "others can't use it");
        let all = root.path().join("gpus");
        assert!(matches!(lock(&all, "GPU-1"), Across::Held(_)));
        std::os::unix::fs::symlink("/etc/passwd", all.join("GPU-2")).unwrap();
        assert!(matches!(lock(&all, "GPU-2"), Across::Unknown));
        fs::create_dir(all.join("GPU-3")).unwrap();
        assert!(matches!(lock(&all, "GPU-3"), Across::Unknown));
        mkfifo(&all.join("GPU-4"), Mode::S_IRWXU).unwrap();
        assert!(matches!(lock(&all, "GPU-4"), Across::Unknown), "and nobody waits for it");
    }
}
