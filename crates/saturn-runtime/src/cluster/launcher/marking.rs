//! Marks attempts as given up, on a thread of its own, since a shared disk may hang and the driver
//! must not.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use saturn_store::{Disk, with_causes};

use crate::cluster::exchange::{Arrival, Exchange};

/// The file in an attempt's directory that says that it was given up.
const GIVEN_UP: &str = "given-up";

struct Chore {
    /// The agent that had the attempts.
    agent: u64,
    directories: Vec<PathBuf>,
    reason: String,
}

/// The thread that marks attempts. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Marker {
    disk: Disk,
    exchange: Exchange,
    chores: Sender<Chore>,
}

impl Marker {
    /// Starts the thread. It reports to `exchange` what it has marked.
    pub(super) fn start(disk: Disk, exchange: Exchange) -> Self {
        let (chores, received) = channel();
        let (its_disk, its_exchange) = (disk.clone(), exchange.clone());
        std::thread::spawn(move || work(&its_disk, &its_exchange, &received));
        Self { disk, exchange, chores }
    }

    /// Marks attempts before it returns. The driver uses this while it starts, when waiting for a
    /// disk delays nothing.
    pub(super) fn mark_now(&self, directories: &[PathBuf], reason: &str) {
        mark(&self.disk, &self.exchange, directories, reason);
    }

    /// Queues attempts for marking, by their directories. [`Arrival::Marked`] comes when all are
    /// marked.
    pub(super) fn mark(&self, agent: u64, directories: Vec<PathBuf>, reason: String) {
        let _ = self.chores.send(Chore { agent, directories, reason });
    }
}

fn work(disk: &Disk, exchange: &Exchange, chores: &Receiver<Chore>) {
    for Chore { agent, directories, reason } in chores {
        mark(disk, exchange, &directories, &reason);
        exchange.put(Arrival::Marked { agent });
    }
}

fn mark(disk: &Disk, exchange: &Exchange, directories: &[PathBuf], reason: &str) {
    for directory in directories {
        // Makes the directory if the node has not. A node that makes it later finds the mark in it.
        let made = disk.make_directory(directory);
        let marked = disk.write(&directory.join(GIVEN_UP), reason.as_bytes());
        if let Err(error) = marked.and(made) {
            let error = with_causes(&error);
            exchange.note(format!("an attempt can't be marked as given up: {error}"));
        }
    }
}
