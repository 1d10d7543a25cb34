//! Commands that had a key, and what came of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use saturn_engine::Command;

use crate::answers::failure::Failure;

/// The most keys that are remembered.
const MAX_KEYS: usize = 1000;

/// What came of a command.
pub(crate) type Outcome = Result<(), Failure>;

/// What came of the newest commands that had a key. Forgotten when the server ends.
#[derive(Debug, Default)]
pub(crate) struct Done {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_key: BTreeMap<(String, String), Arc<Entry>>,
    /// The keys in the order in which they came.
    order: VecDeque<(String, String)>,
}

/// A command with a key. The outcome is locked while the command is carried out, so that a second
/// request with the key waits for the first.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) command: Command,
    pub(crate) outcome: tokio::sync::Mutex<Option<Outcome>>,
}

impl Done {
    /// The entry of a key; a new one if the key is new.
    pub(crate) fn entry(&self, run: &str, key: &str, command: &Command) -> Arc<Entry> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (run.to_owned(), key.to_owned());
        if let Some(entry) = known.by_key.get(&key) {
            return Arc::clone(entry);
        }
        if known.order.len() >= MAX_KEYS
            && let Some(oldest) = known.order.pop_front()
        {
            known.by_key.remove(&oldest);
        }
        let entry =
            Arc::new(Entry { command: command.clone(), outcome: tokio::sync::Mutex::default() });
        known.order.push_back(key.clone());
        known.by_key.insert(key, Arc::clone(&entry));
        entry
    }
}
