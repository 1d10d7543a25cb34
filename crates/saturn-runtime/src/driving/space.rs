//! Watches a run's disk for free space after an attempt found it full.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;
use saturn_engine::{AttemptEnd, FailureKind, Record};

use crate::system::clock;

/// How often to check the free space.
const EVERY: Duration = Duration::from_secs(2);

/// The free space when the disk was full, kept until there is more.
#[derive(Debug)]
pub(crate) struct SpaceWatch {
    run: PathBuf,
    full: Option<Full>,
}

#[derive(Debug)]
struct Full {
    free_bytes: u64,
    look_at: Instant,
}

impl SpaceWatch {
    /// A watch on a run's disk, with nothing to watch for yet.
    pub(crate) fn of(run: &Path) -> Self {
        Self { run: run.to_owned(), full: None }
    }

    /// Notes records of attempts that found the disk full.
    pub(crate) fn note(&mut self, records: &[Record]) {
        let met_full = |record: &Record| match record {
            Record::Ended { end: AttemptEnd::Failed { failure }, .. } => {
                failure.kind == FailureKind::NoSpace
            }
            _ => false,
        };
        if records.iter().any(met_full) {
            let look_at = clock::deadline(EVERY);
            self.full = free_bytes(&self.run).map(|free_bytes| Full { free_bytes, look_at });
        }
    }

    /// Whether there is more free space than when the disk was full. Says so once. If space shrinks
    /// meanwhile, as the journal grows, growth is measured from the smaller amount.
    pub(crate) fn has_grown(&mut self) -> bool {
        let Some(full) = self.full.as_mut().filter(|full| clock::is_past(full.look_at)) else {
            return false;
        };
        full.look_at = clock::deadline(EVERY);
        let Some(free_bytes) = free_bytes(&self.run) else { return false };
        if free_bytes <= full.free_bytes {
            full.free_bytes = free_bytes;
            return false;
        }
        self.full = None;
        true
    }
}

/// How much a user may still write to a directory's disk, bytes.
fn free_bytes(path: &Path) -> Option<u64> {
    let stat = statvfs(path).ok()?;
    Some(stat.blocks_available() * stat.fragment_size())
}
