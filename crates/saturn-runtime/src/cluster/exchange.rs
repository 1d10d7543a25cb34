//! Where the driver and those who carry its letters meet.
//!
//! The driver puts orders in and takes out what happened. Threads of Python take orders out and put in
//! letters, agents that came, and agents that are lost. A thread that brings more letters than the driver
//! can follow waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::letters::{FromAgent, Inbox};
use crate::bell::Bell;
use crate::error::RuntimeError;
use crate::hardware::Hardware;

/// What waits for the driver at most before those who bring more wait too.
const MAX_WAITING: usize = 4096;

/// Something that the driver is to hear.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// An agent, with what it holds for the run.
    Agent { agent: u64, hardware: Hardware },
    /// What an agent says.
    Word { agent: u64, word: FromAgent },
    /// An agent is lost, or its node.
    Lost { agent: u64, reason: String },
    /// A word for the person watching.
    Note(String),
}

/// The way between a driver and its agents. Each agent has a number that no other ever had.
#[derive(Debug, Clone, Default)]
pub struct Exchange(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rooms: Mutex<Rooms>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Rooms {
    orders: Vec<(u64, String)>,
    arrivals: VecDeque<Arrival>,
    inboxes: BTreeMap<u64, Inbox>,
    bell: Option<Bell>,
    is_over: bool,
}

impl Exchange {
    /// An agent has come; `description` is [`Agent::description`](super::Agent::description).
    pub fn join(&self, agent: u64, description: &str) -> Result<(), RuntimeError> {
        let hardware = serde_json::from_str(description).map_err(|error| {
            let reason = format!("what a node says of itself can't be read: {error}");
            RuntimeError::Request { reason }
        })?;
        self.rooms().inboxes.insert(agent, Inbox::default());
        self.put(Arrival::Agent { agent, hardware });
        Ok(())
    }

    /// Letters of an agent, in their order. An error says why it can't be understood: then it is to
    /// be given up.
    pub fn deliver(&self, agent: u64, letters: &[String]) -> Result<(), RuntimeError> {
        let mut words = Vec::new();
        {
            let mut rooms = self.rooms();
            // One that was given up has no say.
            let Some(inbox) = rooms.inboxes.get_mut(&agent) else { return Ok(()) };
            for letter in letters {
                let word = inbox.open(letter);
                words.push(word.map_err(|reason| RuntimeError::Refused { reason })?);
            }
        }
        self.wait_for_room();
        for word in words {
            self.put(Arrival::Word { agent, word });
        }
        Ok(())
    }

    /// An agent or its node is lost: nothing more is heard of it.
    pub fn lose(&self, agent: u64, reason: String) {
        if self.rooms().inboxes.remove(&agent).is_some() {
            self.put(Arrival::Lost { agent, reason });
        }
    }

    /// A word for the person watching the run.
    pub fn note(&self, text: String) {
        self.put(Arrival::Note(text));
    }

    /// Letters to carry, in their order, with the agents that they are for: as soon as there are some,
    /// or none after so long. `None`: the run is over.
    pub fn orders(&self, at_most: Duration) -> Option<Vec<(u64, String)>> {
        let is_idle = |rooms: &mut Rooms| rooms.orders.is_empty() && !rooms.is_over;
        let waited = self.0.changed.wait_timeout_while(self.rooms(), at_most, is_idle);
        let mut rooms = waited.unwrap_or_else(PoisonError::into_inner).0;
        let orders = std::mem::take(&mut rooms.orders);
        (!orders.is_empty() || !rooms.is_over).then_some(orders)
    }

    /// The agents that have come so far.
    pub(crate) fn founders(&self) -> BTreeMap<u64, Hardware> {
        let mut rooms = self.rooms();
        let mut founders = BTreeMap::new();
        rooms.arrivals.retain(|arrival| match arrival {
            Arrival::Agent { agent, hardware } => {
                founders.insert(*agent, hardware.clone());
                false
            }
            _ => true,
        });
        founders
    }

    /// Whom to wake when something has arrived.
    pub(crate) fn wake(&self, bell: Bell) {
        self.rooms().bell = Some(bell);
    }

    /// What arrived first of what was not taken yet.
    pub(crate) fn next(&self) -> Option<Arrival> {
        let next = self.rooms().arrivals.pop_front();
        if next.is_some() {
            self.0.changed.notify_all();
        }
        next
    }

    /// Has a letter carried.
    pub(crate) fn send(&self, agent: u64, letter: String) {
        self.rooms().orders.push((agent, letter));
        self.0.changed.notify_all();
    }

    /// Nothing more is to come from the driver, nor heard by it.
    pub fn close(&self) {
        self.rooms().is_over = true;
        self.0.changed.notify_all();
    }

    fn put(&self, arrival: Arrival) {
        let mut rooms = self.rooms();
        rooms.arrivals.push_back(arrival);
        if let Some(bell) = &rooms.bell {
            bell.ring();
        }
    }

    /// Waits until the driver can take more.
    fn wait_for_room(&self) {
        let is_full = |rooms: &mut Rooms| {
            // Before there is a driver no one takes anything.
            rooms.arrivals.len() >= MAX_WAITING && rooms.bell.is_some() && !rooms.is_over
        };
        drop(self.0.changed.wait_while(self.rooms(), is_full));
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.0.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
