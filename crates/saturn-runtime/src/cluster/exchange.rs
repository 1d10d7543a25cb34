//! Where the driver meets the threads that carry its letters.
//!
//! The driver puts orders in and takes arrivals out. Threads of Python take the orders out, and put
//! in letters, new agents and lost agents.
//!
//! Putting something in never waits for the driver. One thread of Python brings the news of all
//! agents, and if it stood still, all agents would end. If the driver stands still, only the newest
//! heartbeat of each rank waits for it, so that memory stays bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use saturn_engine::{AttemptId, RankReport};

use crate::cluster::letters::{FromAgent, Inbox, is_heartbeat};
use crate::devices::hardware::Hardware;
use crate::system::bell::Bell;
use crate::system::error::RuntimeError;

/// Something that the driver takes from an exchange.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// An agent has come, with the devices that it holds for the run.
    Agent { agent: u64, hardware: Hardware },
    /// An agent says something.
    Word { agent: u64, word: FromAgent },
    /// An agent or its node is lost.
    Lost { agent: u64, reason: String },
    /// The attempts of a lost agent are marked as given up.
    Marked { agent: u64 },
    /// A message for the person who watches the run.
    Note(String),
}

/// The channel between a driver and its agents. Agents have numbers that are never used twice.
#[derive(Debug, Clone, Default)]
pub struct Exchange(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queues: Mutex<Queues>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queues {
    orders: Vec<(u64, String)>,
    arrivals: VecDeque<Arrival>,
    /// How many arrivals the driver has taken.
    num_taken: u64,
    /// For each rank whose last word is a heartbeat, the number of that heartbeat among all
    /// arrivals.
    alive: BTreeMap<(u64, AttemptId, u32), u64>,
    inboxes: BTreeMap<u64, Inbox>,
    bell: Option<Bell>,
    is_over: bool,
}

impl Queues {
    fn put(&mut self, arrival: Arrival) {
        self.arrivals.push_back(arrival);
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Merges a heartbeat into the rank's earlier heartbeat, if that still waits and the rank's
    /// attempt has said nothing else since. Returns whether it did.
    fn merge_heartbeat(&mut self, agent: u64, word: &FromAgent) -> bool {
        let (attempt, rank, report) = match word {
            FromAgent::Reported { attempt, rank, report } if is_heartbeat(report) => {
                (*attempt, *rank, report)
            }
            FromAgent::Reported { attempt, .. }
            | FromAgent::Exited { attempt, .. }
            | FromAgent::LaunchFailed { attempt, .. } => {
                self.alive.retain(|(_, of, _), _| of != attempt);
                return false;
            }
            _ => return false,
        };
        let next = self.num_taken + self.arrivals.len() as u64;
        let last = self.alive.entry((agent, attempt, rank)).or_insert(next);
        let index = last.checked_sub(self.num_taken).and_then(|index| usize::try_from(index).ok());
        let arrival = index.and_then(|index| self.arrivals.get_mut(index));
        let Some(Arrival::Word { word: FromAgent::Reported { report: waiting, .. }, .. }) = arrival
        else {
            *last = next;
            return false;
        };
        // `Alive` carries no progress, so it must not replace a report that does.
        if !matches!(**report, RankReport::Alive) {
            waiting.clone_from(report);
        }
        true
    }
}

impl Exchange {
    /// Adds an agent; `description` is [`Agent::description`](crate::Agent::description).
    pub fn join(&self, agent: u64, description: &str) -> Result<(), RuntimeError> {
        let hardware = serde_json::from_str(description).map_err(|error| {
            let reason = format!("what a node says of itself can't be read: {error}");
            RuntimeError::Request { reason }
        })?;
        self.queues().inboxes.insert(agent, Inbox::default());
        self.put(Arrival::Agent { agent, hardware });
        Ok(())
    }

    /// Letters of an agent, in their order; letters that came before are skipped. Gives how many of
    /// the agent's letters were read so far, for [`Agent::news`](crate::Agent::news). An error says
    /// why a letter can't be understood: then the agent is to be given up.
    pub fn deliver(&self, agent: u64, letters: &[String]) -> Result<u64, RuntimeError> {
        let mut words = Vec::new();
        let num_read = {
            let mut queues = self.queues();
            // An agent that was given up has no say.
            let Some(inbox) = queues.inboxes.get_mut(&agent) else { return Ok(0) };
            for letter in letters {
                let word = inbox.open(letter);
                words.extend(word.map_err(|reason| RuntimeError::Refused { reason })?);
            }
            inbox.num_read()
        };
        let mut queues = self.queues();
        for word in words {
            if !queues.merge_heartbeat(agent, &word) {
                queues.put(Arrival::Word { agent, word });
            }
        }
        Ok(num_read)
    }

    /// Notes that an agent or its node is lost. The driver hears nothing more from that agent.
    pub fn lose(&self, agent: u64, reason: String) {
        if self.queues().inboxes.remove(&agent).is_some() {
            self.put(Arrival::Lost { agent, reason });
        }
    }

    /// Adds a message for the person who watches the run.
    pub fn note(&self, text: String) {
        self.put(Arrival::Note(text));
    }

    /// Takes the letters to carry, in their order, each with the agent that it is for. Returns as
    /// soon as there are some, or an empty list after `at_most`. `None`: the run is over.
    pub fn orders(&self, at_most: Duration) -> Option<Vec<(u64, String)>> {
        let is_idle = |queues: &mut Queues| queues.orders.is_empty() && !queues.is_over;
        let waited = self.0.changed.wait_timeout_while(self.queues(), at_most, is_idle);
        let mut queues = waited.unwrap_or_else(PoisonError::into_inner).0;
        let orders = std::mem::take(&mut queues.orders);
        (!orders.is_empty() || !queues.is_over).then_some(orders)
    }

    /// Takes the agents that have come so far.
    pub(crate) fn founders(&self) -> BTreeMap<u64, Hardware> {
        let mut queues = self.queues();
        let mut founders = BTreeMap::new();
        // Taking arrivals out changes the numbers of all others.
        queues.alive.clear();
        queues.arrivals.retain(|arrival| match arrival {
            Arrival::Agent { agent, hardware } => {
                founders.insert(*agent, hardware.clone());
                false
            }
            _ => true,
        });
        founders
    }

    /// Sets the bell to ring when something arrives.
    pub(crate) fn wake(&self, bell: Bell) {
        self.queues().bell = Some(bell);
    }

    /// Takes the oldest arrival.
    pub(crate) fn next(&self) -> Option<Arrival> {
        let mut queues = self.queues();
        let next = queues.arrivals.pop_front()?;
        queues.num_taken += 1;
        Some(next)
    }

    /// Queues a letter for an agent.
    pub(crate) fn send(&self, agent: u64, letter: String) {
        self.queues().orders.push((agent, letter));
        self.0.changed.notify_all();
    }

    /// Ends the exchange: carriers get no more letters once the queue is empty.
    pub fn close(&self) {
        self.queues().is_over = true;
        self.0.changed.notify_all();
    }

    pub(crate) fn put(&self, arrival: Arrival) {
        self.queues().put(arrival);
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::letters::Outbox;

    const HARDWARE: &str = r#"{"kind": "cpu", "warnings": [], "nodes": []}"#;

    #[test]
    fn a_driver_that_stands_still_delays_nobody_and_finds_what_matters() {
        let exchange = Exchange::default();
        exchange.join(0, HARDWARE).unwrap();
        exchange.wake(Bell::default());
        assert!(matches!(exchange.next(), Some(Arrival::Agent { .. })));
        let mut outbox = Outbox::new("one".to_owned());
        let mut say = |rank, report| {
            let (attempt, report) = (AttemptId(1), Box::new(report));
            let letter = outbox.seal(FromAgent::Reported { attempt, rank, report }).unwrap();
            exchange.deliver(0, &[letter]).unwrap();
        };
        let progress = |step| RankReport::Progress { step, loss: None, step_s: None };
        let checkpoint =
            RankReport::Checkpoint { step: 9000, save_s: 0.1, blocked_s: 0.1, loss: None };
        for step in 1..=9000 {
            say(0, progress(step));
            say(1, RankReport::Alive);
        }
        say(0, RankReport::Alive);
        say(0, checkpoint.clone());
        say(0, progress(9001));
        say(1, RankReport::Alive);
        let heard = std::iter::from_fn(|| match exchange.next()? {
            Arrival::Word { word: FromAgent::Reported { rank, report, .. }, .. } => {
                Some((rank, *report))
            }
            other => panic!("{other:?}"),
        });
        let expected = [
            (0, progress(9000)),
            (1, RankReport::Alive),
            (0, checkpoint),
            (0, progress(9001)),
            (1, RankReport::Alive),
        ];
        assert_eq!(heard.collect::<Vec<_>>(), expected);
    }
}
