//! The thread that puts a run's trials into the store, each as soon as its record is in the journal:
//! a run that is killed loses none that it has told of, and no slow disk delays it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use saturn_core::Trial;
use saturn_engine::{Record, State};

use super::Shelf;
use crate::error::with_causes;

/// How long the end of a run waits for a disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whoever is told of records and keeps what they tell.
#[derive(Debug)]
pub(crate) struct Keeper {
    shelf: Shelf,
    trials: Sender<Trial>,
}

/// Hears when all is kept.
#[derive(Debug)]
pub(crate) struct Kept(Receiver<()>);

impl Keeper {
    /// Begins to keep. `note` gets a line for each thing that a person should know, the first time.
    pub(crate) fn start(shelf: Shelf, note: impl Fn(&str) + Send + 'static) -> (Self, Kept) {
        let (trials, new) = channel();
        let (is_done, kept) = channel();
        let store = shelf.store().clone();
        std::thread::spawn(move || {
            let _done: Sender<()> = is_done;
            let mut has_failed = false;
            while let Ok(first) = new.recv() {
                let all: Vec<Trial> = std::iter::once(first).chain(new.try_iter()).collect();
                let added = store.add(all, &mut |line| note(&line));
                if let Err(error) = added
                    && !std::mem::replace(&mut has_failed, true)
                {
                    let error = with_causes(&error);
                    note(&format!("trials are not kept for later runs: {error}"));
                }
            }
        });
        (Self { shelf, trials }, Kept(kept))
    }

    /// A record was journaled; `state` is what came of it.
    pub(crate) fn record(&self, state: &State, record: &Record) {
        if let Some(trial) = self.shelf.kept_of(state, record) {
            // A thread that is gone has panicked: the run has its trials all the same.
            let _ = self.trials.send(trial);
        }
    }
}

impl Kept {
    /// Waits until all is kept, once the keeper is gone; says where a disk takes too long.
    pub(crate) fn wait(&self) -> Option<&'static str> {
        let waited = self.0.recv_timeout(PATIENCE);
        (waited == Err(RecvTimeoutError::Timeout))
            .then_some("the disk of SATURN_HOME does not answer: trials may not be kept")
    }
}
