//! The runs that are followed, and which of them are let go.
//!
//! To follow a run again costs as much as its whole journal. So a run that somebody asks about stays,
//! however many there are, and only runs that nobody has asked about for a while make room. An open
//! page asks every few seconds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::local::followed::Followed;

/// This number of runs stays followed, whether or not somebody asks about them.
const MAX_IDLE: usize = 16;
/// A further run stays followed until nobody has asked about it for this long.
const IDLE_AFTER: Duration = Duration::from_mins(1);
/// The most runs of all. There are fewer streams of events at once, so open pages stay below this.
const MAX_ALL: usize = 256;

/// Runs that are followed, with when each was last asked about.
#[derive(Debug, Default)]
pub(super) struct Kept(BTreeMap<PathBuf, (Instant, Arc<Mutex<Followed>>)>);

impl Kept {
    /// The followed run in this directory, which is asked about now.
    pub(super) fn ask(&mut self, path: &Path, now: Instant) -> Arc<Mutex<Followed>> {
        if !self.0.contains_key(path) {
            self.make_room(now);
        }
        let new = || (now, Arc::new(Mutex::new(Followed::new(path))));
        let (asked, run) = self.0.entry(path.to_owned()).or_insert_with(new);
        *asked = now;
        Arc::clone(run)
    }

    /// The followed run in this directory, if it is followed. This does not count as a question.
    pub(super) fn get(&self, path: &Path) -> Option<Arc<Mutex<Followed>>> {
        self.0.get(path).map(|(_, run)| Arc::clone(run))
    }

    /// Lets runs go, so that there is room for one more.
    fn make_room(&mut self, now: Instant) {
        while self.0.len() >= MAX_IDLE {
            let oldest = self.0.iter().map(|(path, (asked, _))| (*asked, path)).min();
            let Some((asked, oldest)) = oldest else { return };
            let is_idle = now.saturating_duration_since(asked) >= IDLE_AFTER;
            if !is_idle && self.0.len() < MAX_ALL {
                return;
            }
            // Whoever is just being answered has it still.
            let oldest = oldest.clone();
            self.0.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "moments have no other beginning")]

    use super::*;

    fn path(number: usize) -> PathBuf {
        PathBuf::from(format!("run-{number:04}"))
    }

    /// A page of each run is open: it asks every two seconds, for five minutes. Whether each run is
    /// the same throughout, so that its journal was read once.
    fn stay(num_pages: usize) -> bool {
        let (mut kept, begin) = (Kept::default(), Instant::now());
        let first: Vec<_> = (0..num_pages).map(|number| kept.ask(&path(number), begin)).collect();
        (0..150).all(|round| {
            let now = begin + Duration::from_secs(2 * round);
            first
                .iter()
                .enumerate()
                .all(|(number, run)| Arc::ptr_eq(run, &kept.ask(&path(number), now)))
        })
    }

    #[test]
    fn runs_with_open_pages_stay_however_many_there_are() {
        for num_pages in [MAX_IDLE, MAX_IDLE + 1, 100] {
            assert!(stay(num_pages), "{num_pages}");
        }
    }

    #[test]
    fn runs_that_nobody_asks_about_make_room_and_no_more_than_needed() {
        let (mut kept, begin) = (Kept::default(), Instant::now());
        for number in 0..40 {
            kept.ask(&path(number), begin + Duration::from_millis(number as u64));
        }
        assert_eq!(kept.0.len(), 40);
        let later = begin + IDLE_AFTER + Duration::from_secs(1);
        kept.ask(&path(3), later);
        kept.ask(&path(100), later);
        assert_eq!(kept.0.len(), MAX_IDLE);
        assert!(kept.get(&path(3)).is_some() && kept.get(&path(39)).is_some());
        assert!(kept.get(&path(0)).is_none());
    }

    #[test]
    fn a_program_that_asks_about_each_of_many_runs_fills_no_memory() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        for number in 0..2 * MAX_ALL {
            kept.ask(&path(number), now);
        }
        assert_eq!(kept.0.len(), MAX_ALL);
    }
}
