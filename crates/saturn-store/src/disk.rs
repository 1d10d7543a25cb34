//! Saturn's own operations on files, and the seam at which tests make them fail.
//!
//! A file that is replaced is complete and on disk before it gets its name. So a reader, or a
//! process after a crash, finds either the old file or the new one.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{FileError, is_full};

/// An operation on a file or on the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Makes a directory.
    MakeDirectory,
    /// Writes a file.
    Write,
    /// Syncs a file's content to the disk.
    Sync,
    /// Gives a complete file its name.
    Rename,
    /// Syncs a file's name to the disk.
    SyncDirectory,
    /// Begins a transaction of the journal.
    Begin,
    /// Inserts a row into the journal.
    Insert,
    /// Makes a transaction of the journal durable.
    Commit,
    /// Follows a transaction of the journal that is durable.
    Committed,
}

type Fault = dyn Fn(Operation, &Path) -> io::Result<()> + Send + Sync;

/// The disk. A test may hear of every operation before it happens, and make it fail.
#[derive(Clone, Default)]
pub struct Disk(Option<Arc<Fault>>);

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Disk(with faults)" } else { "Disk" })
    }
}

impl Disk {
    /// A disk on which an operation fails if `fault` fails for it.
    pub fn with_faults(
        fault: impl Fn(Operation, &Path) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(fault)))
    }

    /// Whether the disk has no space for a small file beside `path`. This tries to write one, since
    /// `SQLite` reports an exceeded disk quota like any other error.
    pub fn lacks_space(&self, path: &Path) -> bool {
        const BYTES: usize = 16 << 10;
        let probe = path.with_added_extension("probe");
        let tried = self.before(Operation::Write, &probe).and_then(|()| {
            let mut file = File::create(&probe)?;
            file.write_all(&[0; BYTES])?;
            file.sync_all()
        });
        // If the file was not made, there is nothing to remove.
        let _ = std::fs::remove_file(&probe);
        tried.is_err_and(|error| is_full(&error))
    }

    /// Tells a test which operation comes next.
    pub fn before(&self, operation: Operation, path: &Path) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |fault| fault(operation, path))
    }

    /// Makes a directory and its parents.
    pub fn make_directory(&self, path: &Path) -> Result<(), FileError> {
        self.before(Operation::MakeDirectory, path)
            .and_then(|()| std::fs::create_dir_all(path))
            .map_err(FileError::of("create", path))
    }

    /// Writes a file that nobody reads before this returns.
    pub fn write(&self, path: &Path, content: &[u8]) -> Result<(), FileError> {
        self.before(Operation::Write, path)
            .and_then(|()| std::fs::write(path, content))
            .map_err(FileError::of("write", path))
    }

    /// Replaces a file in one step: a reader sees the old file or the new one.
    pub fn replace(&self, path: &Path, content: &[u8]) -> Result<(), FileError> {
        self.replace_as(path, content, 0o666)
    }

    /// The same for a file that only the user may read.
    pub fn replace_private(&self, path: &Path, content: &[u8]) -> Result<(), FileError> {
        self.replace_as(path, content, 0o600)
    }

    fn replace_as(&self, path: &Path, content: &[u8], mode: u32) -> Result<(), FileError> {
        // The name has the process's number, since `saturn report` may write while a run ends.
        let fresh = path.with_added_extension(format!("{}.tmp", std::process::id()));
        let written = self.write_durably(&fresh, content, mode);
        if written.is_err() {
            // A partial file is of no use. If it can't be removed either, the error below names it.
            let _ = std::fs::remove_file(&fresh);
        }
        written.map_err(FileError::of("write", &fresh))?;
        self.before(Operation::Rename, path)
            .and_then(|()| std::fs::rename(&fresh, path))
            .map_err(FileError::of("replace", path))?;
        let directory = path.parent().filter(|one| !one.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        self.before(Operation::SyncDirectory, directory)
            .and_then(|()| File::open(directory)?.sync_all())
            .map_err(FileError::of("sync", directory))
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
