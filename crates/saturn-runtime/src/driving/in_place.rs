//! Watches whether a run's directory is still where the run began.
//!
//! The directory may be on a share that hangs, and a look at a hung share never ends. So a thread
//! looks, and the driver waits a second at most for its answer.

use std::time::Duration;

use crate::run_files::run_dir::RunDir;
use crate::system::looker::Looker;

/// How long the driver waits for an answer: far longer than a look at a share that works takes.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looks at the run's directory, on a thread of its own.
#[derive(Debug)]
pub(crate) struct PlaceWatch {
    looker: Looker<bool>,
    patience: Duration,
    /// Whether a look has not been answered yet.
    is_awaited: bool,
}

impl PlaceWatch {
    /// A watch on a run's directory.
    pub(crate) fn of(run: &RunDir) -> Self {
        Self::by(run.look_in_place(), PATIENCE)
    }

    fn by(look: impl FnMut() -> bool + Send + 'static, patience: Duration) -> Self {
        Self { looker: Looker::start(look), patience, is_awaited: false }
    }

    /// Whether the directory was found elsewhere. Waits for one look at most: while a share hangs,
    /// nobody can tell, and the run goes on. Once the share goes on, the next call takes the answer
    /// of the look that hung.
    pub(crate) fn is_moved(&mut self) -> bool {
        if self.is_awaited {
            let Some(is_in_place) = self.looker.answer() else { return false };
            self.is_awaited = false;
            if !is_in_place {
                return true;
            }
        }
        self.looker.ask();
        let answer = self.looker.answer_within(self.patience);
        self.is_awaited = answer.is_none();
        answer == Some(false)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// A watch on a share that hangs until it is sent what a look finds.
    pub(crate) fn on_a_share_that_hangs() -> (PlaceWatch, Sender<bool>) {
        let (finds, found) = channel();
        let look = move || found.recv().unwrap_or(true);
        (PlaceWatch::by(look, Duration::from_millis(1)), finds)
    }

    #[test]
    fn a_share_that_hangs_is_looked_at_once_and_its_answer_counts_when_it_comes() {
        let (mut watch, finds) = on_a_share_that_hangs();
        assert!(!watch.is_moved(), "nobody can tell");
        // A wait would never end.
        watch.patience = Duration::MAX;
        assert!(!watch.is_moved() && !watch.is_moved());
        finds.send(true).unwrap();
        finds.send(false).unwrap();
        let late = || watch.is_moved().then_some(());
        assert_eq!(std::iter::repeat_with(late).flatten().next(), Some(()));
    }
}
