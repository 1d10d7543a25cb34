//! The few things that the runtime itself does to files, and the seam at which tests make them fail.
//!
//! Whatever is written is complete and on disk before it has its name: a reader, or a process after
//! a crash, finds the old file or the new one.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{RuntimeError, is_full};

/// What is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A directory is made.
    MakeDirectory,
    /// A file is written.
    Write,
    /// What was written is brought to the disk.
    Sync,
    /// A complete file is given its name.
    Rename,
    /// The name of a file is brought to the disk.
    SyncDirectory,
    /// A transaction of the journal begins.
    Begin,
    /// A row goes into the journal.
    Insert,
    /// A transaction of the journal is made durable.
    Commit,
    /// A transaction of the journal is durable.
    Committed,
}

type Fault = dyn Fn(Operation, &Path) -> io::Result<()> + Send + Sync;

/// The disk. Tests ask to be told of every operation before it happens, and may make it fail.
#[derive(Clone, Default)]
pub struct Disk(Option<Arc<Fault>>);

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Disk(with faults)" } else { "Disk" })
    }
}

impl Disk {
    /// A disk on which an operation fails where `fault` does.
    pub fn with_faults(
        fault: impl Fn(Operation, &Path) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(fault)))
    }

    /// Whether a small file beside `path` can't be written for want of space. `SQLite` doesn't tell a
    /// user's share of the disk that is used up from other errors.
    pub(crate) fn lacks_space(&self, path: &Path) -> bool {
        const BYTES: usize = 16 << 10;
        let probe = path.with_added_extension("probe");
        let tried = self.before(Operation::Write, &probe).and_then(|()| {
            let mut file = File::create(&probe)?;
            file.write_all(&[0; BYTES])?;
            file.sync_all()
        });
        // Where it was not made, there is nothing to remove.
        let _ = std::fs::remove_file(&probe);
        tried.is_err_and(|error| is_full(&error))
    }

    /// Says what is about to be done.
    pub(crate) fn before(&self, operation: Operation, path: &Path) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |fault| fault(operation, path))
    }

    /// Makes a directory and those above it.
    pub(crate) fn make_directory(&self, path: &Path) -> Result<(), RuntimeError> {
        self.before(Operation::MakeDirectory, path)
            .and_then(|()| std::fs::create_dir_all(path))
            .map_err(RuntimeError::file("create", path))
    }

    /// Writes a file that no one reads before this returns.
    pub(crate) fn write(&self, path: &Path, content: &[u8]) -> Result<(), RuntimeError> {
        self.before(Operation::Write, path)
            .and_then(|()| std::fs::write(path, content))
            .map_err(RuntimeError::file("write", path))
    }

    /// Writes a file in one piece: a reader sees the old one or the new one.
    pub(crate) fn replace(&self, path: &Path, content: &[u8]) -> Result<(), RuntimeError> {
        self.replace_as(path, content, 0o666)
    }

    /// The same for a file that only the user may read.
    pub(crate) fn replace_private(&self, path: &Path, content: &[u8]) -> Result<(), RuntimeError> {
        self.replace_as(path, content, 0o600)
    }

    fn replace_as(&self, path: &Path, content: &[u8], mode: u32) -> Result<(), RuntimeError> {
        // Of this process alone: `saturn report` may write while a run ends.
        let fresh = path.with_added_extension(format!("{}.tmp", std::process::id()));
        let written = self.write_durably(&fresh, content, mode);
        if written.is_err() {
            // What is there of it is of no use; where it can't be removed either, the error says so.
            let _ = std::fs::remove_file(&fresh);
        }
        written.map_err(RuntimeError::file("write", &fresh))?;
        self.before(Operation::Rename, path)
            .and_then(|()| std::fs::rename(&fresh, path))
            .map_err(RuntimeError::file("replace", path))?;
        let directory = path.parent().filter(|one| !one.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        self.before(Operation::SyncDirectory, directory)
            .and_then(|()| File::open(directory)?.sync_all())
            .map_err(RuntimeError::file("sync", directory))
    }

    fn write_durably(&self, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
        self.before(Operation::Write, path)?;
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(mode).open(path)?;
        file.write_all(content)?;
        self.before(Operation::Sync, path)?;
        file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_file_that_can_not_be_replaced_stays_as_it_was() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("report.json");
        Disk::default().replace(&path, b"old").unwrap();
        for failing in [Operation::Write, Operation::Sync, Operation::Rename] {
            let disk = Disk::with_faults(move |operation, _| {
                if operation == failing { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
            });
            assert!(disk.replace(&path, b"new").unwrap_err().is_disk_full());
            assert_eq!(std::fs::read(&path).unwrap(), b"old");
        }
        Disk::default().replace(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }
}
