//! The thread that puts a run's trials into the store, each as soon as its record is in the
//! journal. So a run that is killed loses no trial that it has reported, and a slow disk does not
//! delay the run. At the run's end it puts there how wrong the run's forecasts were.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use saturn_core::Trial;
use saturn_engine::{Record, State};
use saturn_store::with_causes;

use crate::keeping::shelf::{ErrorsByHardware, Shelf};

/// How long the end of a run waits for the store's disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// What goes into the store.
#[derive(Debug)]
enum Found {
    Trial(Box<Trial>),
    Errors(ErrorsByHardware),
}

/// The handle to the keeper's thread.
#[derive(Debug)]
pub(crate) struct Keeper {
    shelf: Shelf,
    found: Sender<Found>,
}

/// Tells when everything is in the store.
#[derive(Debug)]
pub(crate) struct Kept(Receiver<()>);

impl Keeper {
    /// Starts the thread. `note` gets a line for each problem, the first time that it occurs.
    pub(crate) fn start(shelf: Shelf, note: impl Fn(&str) + Send + 'static) -> (Self, Kept) {
        let (found, new) = channel();
        let (is_done, kept) = channel();
        let own = shelf.clone();
        std::thread::spawn(move || {
            let _done: Sender<()> = is_done;
            let mut has_failed = false;
            while let Ok(first) = new.recv() {
                let mut trials = Vec::new();
                let mut errors = None;
                for one in std::iter::once(first).chain(new.try_iter()) {
                    match one {
                        Found::Trial(trial) => trials.push(*trial),
                        Found::Errors(found) => errors = Some(found),
                    }
                }
                let added = own.store().add(trials, &mut |line| note(&line));
                if let Err(error) = added
                    && !std::mem::replace(&mut has_failed, true)
                {
                    let error = with_causes(&error);
                    note(&format!("trials are not kept for later runs: {error}"));
                }
                for line in errors.map(|errors| own.keep_errors(&errors)).unwrap_or_default() {
                    note(&line);
                }
            }
        });
        (Self { shelf, found }, Kept(kept))
    }

    /// Handles a journaled record; `state` is the state after it.
    pub(crate) fn record(&self, state: &State, record: &Record) {
        if let Some(trial) = self.shelf.trial_to_store(state, record) {
            // A thread that is gone has panicked. The run still has its trials in the journal.
            let _ = self.found.send(Found::Trial(Box::new(trial)));
        }
    }

    /// The run has ended, or stops for now; `errors` is how wrong its forecasts were.
    pub(crate) fn end(self, errors: &ErrorsByHardware) {
        let _ = self.found.send(Found::Errors(errors.clone()));
    }
}

impl Kept {
    /// Waits until everything is in the store, after the keeper was dropped. Returns a note if the
    /// disk takes too long.
    pub(crate) fn wait(&self) -> Option<&'static str> {
        let waited = self.0.recv_timeout(PATIENCE);
        (waited == Err(RecvTimeoutError::Timeout))
            .then_some("the disk of SATURN_HOME does not answer: trials may not be kept")
    }
}
