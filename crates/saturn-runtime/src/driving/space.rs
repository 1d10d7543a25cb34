//! Watches a run's disk for free space after an attempt found it full.
//!
//! The disk may be a share that hangs, and a look at a hung share never ends. So a thread looks, and
//! the driver only asks it and takes its answers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;
use saturn_engine::{AttemptEnd, FailureKind, Record};

use crate::system::clock;
use crate::system::looker::Looker;

/// How often to check the free space.
const EVERY: Duration = Duration::from_secs(2);

/// How much there is to write to, bytes; `None` if nobody can tell.
type Look = fn(&Path) -> Option<u64>;

/// The free space when the disk was full, kept until there is more.
#[derive(Debug)]
pub(crate) struct SpaceWatch {
    run: PathBuf,
    look: Look,
    /// The thread that looks, from the first time that the disk was full.
    looker: Option<Looker<Option<u64>>>,
    full: Option<Full>,
}

#[derive(Debug)]
struct Full {
    /// `None` until the first answer.
    free_bytes: Option<u64>,
    /// When to ask again; `None` while an answer is awaited.
    ask_at: Option<Instant>,
}

impl SpaceWatch {
    /// A watch on a run's disk, with nothing to watch for yet.
    pub(crate) fn of(run: &Path) -> Self {
        Self::by(run, free_bytes)
    }

    fn by(run: &Path, look: Look) -> Self {
        Self { run: run.to_owned(), look, looker: None, full: None }
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
            self.is_full();
        }
    }

    fn is_full(&mut self) {
        let is_awaited = self.full.as_ref().is_some_and(|full| full.ask_at.is_none());
        let looker = self.looker.get_or_insert_with(|| {
            let (run, look) = (self.run.clone(), self.look);
            Looker::start(move || look(&run))
        });
        if !is_awaited {
            looker.ask();
        }
        self.full = Some(Full { free_bytes: None, ask_at: None });
    }

    /// Whether there is more free space than when the disk was full. Says so once. If space shrinks
    /// meanwhile, as the journal grows, growth is measured from the smaller amount.
    pub(crate) fn has_grown(&mut self) -> bool {
        let (Some(looker), Some(full)) = (&self.looker, &mut self.full) else { return false };
        if full.ask_at.is_some_and(clock::is_past) {
            full.ask_at = None;
            looker.ask();
        }
        let Some(found) = looker.answer() else { return false };
        full.ask_at = Some(clock::deadline(EVERY));
        let Some(free_bytes) = found else { return false };
        if full.free_bytes.is_none_or(|before| free_bytes <= before) {
            full.free_bytes = Some(free_bytes);
            return false;
        }
        // An answer that comes after this one belongs to no question.
        self.full = None;
        true
    }
}

/// How much a user may still write to a directory's disk, bytes.
fn free_bytes(path: &Path) -> Option<u64> {
    let stat = statvfs(path).ok()?;
    Some(stat.blocks_available() * stat.fragment_size())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Asks until the watch says that there is more space, for ten seconds at most.
    fn grows(watch: &mut SpaceWatch) -> bool {
        let until = clock::deadline(Duration::from_secs(10));
        while !clock::is_past(until) {
            if watch.has_grown() {
                return true;
            }
            clock::pause(Duration::from_millis(5));
        }
        false
    }

    #[test]
    fn space_that_grows_is_told_once() {
        static FREE: AtomicU64 = AtomicU64::new(10);
        let look: Look = |_| Some(FREE.fetch_add(1, Ordering::Relaxed));
        let mut watch = SpaceWatch::by(Path::new("/"), look);
        assert!(!watch.has_grown(), "nobody found it full");
        watch.is_full();
        assert!(grows(&mut watch));
        assert!(!watch.has_grown());
    }

    #[test]
    fn a_share_that_hangs_does_not_hold_the_driver_up() {
        let hangs: Look = |_| {
            clock::pause(Duration::from_hours(1));
            None
        };
        let mut watch = SpaceWatch::by(Path::new("/"), hangs);
        let began = clock::now();
        watch.is_full();
        assert!(!watch.has_grown() && !watch.has_grown());
        watch.is_full();
        assert!(!watch.has_grown());
        assert!(began.elapsed() < Duration::from_mins(1));
    }
}
