//! The launcher of a pool that several people share: each person's tasks are started by this person's
//! own agent.
//!
//! The tasks of the person who drives the pool go to the pool's own agent. Another person, a *guest*,
//! has an agent that waits at the pool's door (`guest`). A thread finds it and hands it the devices,
//! since an agent that does not answer must not keep the driver waiting. While a guest's agent is not
//! there, the engine is told, and plans none of this guest's tasks.
//!
//! Invariant: an agent is heard about attempts that were launched by it, and about no others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use saturn_engine::{
    AttemptEnd, AttemptId, Event, FailureKind, LaunchError, LaunchOrder, Launcher, News, Owner,
};

use crate::asking::door::Door;
use crate::outliving::launcher::AgentLauncher;
use crate::outliving::starting::{Living, find_guest};
use crate::run_files::journal::Heard;
use crate::system::bell::Bell;
use crate::system::clock::{deadline, is_past};

/// How often a guest's agent that is not there is looked for.
const AGAIN: Duration = Duration::from_secs(3);

/// The agents of all people.
#[derive(Debug)]
pub(crate) struct PeopleLauncher {
    own: AgentLauncher,
    door: Option<Arc<Door>>,
    guests: BTreeMap<u32, Guest>,
    /// Whose agent was told to launch an attempt whose end is not on record; none for the own.
    of: BTreeMap<AttemptId, u32>,
    bell: Bell,
    /// The guest whose news are looked at first, so that no guest is heard before all others always.
    turn: u32,
}

/// A guest, as the launcher knows this person.
#[derive(Debug)]
struct Guest {
    name: String,
    agent: Agent,
    /// Attempts to launch once the agent is there.
    waiting: Vec<LaunchOrder>,
    news: VecDeque<News>,
}

/// Where a guest's agent is.
#[derive(Debug)]
enum Agent {
    Here(Box<AgentLauncher>),
    /// A thread looks for it.
    Sought(Receiver<Living>),
    /// It was not there, and is looked for again at the given time.
    Away(Instant),
}

impl PeopleLauncher {
    /// The launcher of these guests, some of whose agents have taken this driver on already.
    pub(crate) fn of(
        own: AgentLauncher,
        door: Option<Arc<Door>>,
        guests: Vec<(Owner, Option<Living>)>,
        bell: Bell,
    ) -> Self {
        let mut launcher =
            Self { own, door, guests: BTreeMap::new(), of: BTreeMap::new(), bell, turn: 0 };
        for (owner, living) in guests {
            let Some(living) = living else {
                launcher.expect(&owner);
                continue;
            };
            launcher.of.extend(living.attempts.iter().map(|attempt| (*attempt, owner.uid)));
            let agent = AgentLauncher::of_guest(living, launcher.bell.clone());
            let guest = launcher.guest(&owner);
            guest.agent = Agent::Here(Box::new(agent));
            guest.tell(Event::OwnerCame { uid: owner.uid });
        }
        launcher
    }

    /// Looks for the agent of a guest at once, if it is not there.
    pub(crate) fn expect(&mut self, owner: &Owner) {
        let guest = self.guest(owner);
        if let Agent::Away(at) = &mut guest.agent {
            *at = deadline(Duration::ZERO);
        }
    }

    /// Ends every agent's processes. Returns those that live on.
    pub(crate) fn end(self) -> Vec<i32> {
        let mut left = self.own.end();
        for guest in self.guests.into_values() {
            if let Agent::Here(agent) = guest.agent {
                left.extend(agent.end());
            }
        }
        left
    }

    /// How far each agent was heard.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        let guests = self.guests.values().filter_map(|guest| match &guest.agent {
            Agent::Here(agent) => Some(agent.heard()),
            _ => None,
        });
        [self.own.heard()].into_iter().chain(guests).collect()
    }

    fn guest(&mut self, owner: &Owner) -> &mut Guest {
        self.guests.entry(owner.uid).or_insert_with(|| Guest {
            name: owner.name.clone(),
            agent: Agent::Away(deadline(Duration::ZERO)),
            waiting: Vec::new(),
            news: VecDeque::new(),
        })
    }

    /// The agent that was told to launch an attempt; `None` while it is not there.
    fn agent(&mut self, attempt: AttemptId) -> Option<&mut AgentLauncher> {
        let Some(uid) = self.of.get(&attempt) else { return Some(&mut self.own) };
        match self.guests.get_mut(uid).map(|guest| &mut guest.agent) {
            Some(Agent::Here(agent)) => Some(agent),
            _ => None,
        }
    }

    /// Has an attempt fail that still waits for its guest's agent. Returns whether it did.
    fn fails_waiting(&mut self, attempt: AttemptId) -> bool {
        let guest = self.of.get(&attempt).and_then(|uid| self.guests.get_mut(uid));
        let Some(guest) = guest else { return false };
        let before = guest.waiting.len();
        guest.waiting.retain(|order| order.attempt != attempt);
        let did = guest.waiting.len() < before;
        if did {
            let error = guest.is_missing();
            guest.tell(Event::LaunchFailed { attempt, kind: FailureKind::Saturn, error });
        }
        did
    }

    /// A thread that looks for a guest's agent and hands it the devices.
    fn seek(&self, uid: u32) -> Option<Receiver<Living>> {
        let (door, pool) = (Arc::clone(self.door.as_ref()?), self.own.pool()?);
        let (pool, files) = (pool.describe(), pool.claims().files().ok()?);
        let (sender, found) = channel();
        let bell = self.bell.clone();
        std::thread::spawn(move || {
            let living = find_guest(&door, uid).and_then(|mut living| {
                if living.wants_devices {
                    living.hand(pool, &files).ok()?;
                }
                // Ranks that it may still have are nobody's.
                living.adopt(&[], 0).ok()?;
                living.attempts.clear();
                Some(living)
            });
            // Without an agent, dropping the sender says so.
            if let Some(living) = living {
                let _ = sender.send(living);
            }
            bell.ring();
        });
        Some(found)
    }

    /// Looks where a guest's agent is.
    fn look(&mut self, uid: u32) {
        let Some(guest) = self.guests.get_mut(&uid) else { return };
        match &mut guest.agent {
            Agent::Here(agent) => {
                let (news, is_gone) = (agent.poll(), agent.is_gone());
                if is_gone {
                    // Before its attempts fail, so that they are not launched again at once.
                    guest.tell(Event::OwnerLeft { uid });
                }
                match news {
                    Some(news) => guest.news.push_back(guest.named(news)),
                    None if is_gone => guest.agent = Agent::Away(deadline(AGAIN)),
                    None => {}
                }
            }
            Agent::Sought(found) => match found.try_recv() {
                Ok(living) => {
                    let mut agent = AgentLauncher::of_guest(living, self.bell.clone());
                    for order in std::mem::take(&mut guest.waiting) {
                        let attempt = order.attempt;
                        if let Err(LaunchError { kind, error }) = agent.launch(order) {
                            guest.tell(Event::LaunchFailed { attempt, kind, error });
                        }
                    }
                    guest.agent = Agent::Here(Box::new(agent));
                    guest.tell(Event::OwnerCame { uid });
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    guest.agent = Agent::Away(deadline(AGAIN));
                    guest.left(uid);
                }
            },
            Agent::Away(at) if is_past(*at) => {
                *at = deadline(AGAIN);
                let sought = self.seek(uid);
                let Some(guest) = self.guests.get_mut(&uid) else { return };
                match sought {
                    Some(sought) => guest.agent = Agent::Sought(sought),
                    None => guest.left(uid),
                }
            }
            Agent::Away(_) => {}
        }
    }
}

impl Guest {
    fn tell(&mut self, event: Event) {
        self.news.push_back(News::Event(event));
    }

    /// News of this guest's agent: what it says to people has the guest's name.
    fn named(&self, news: News) -> News {
        match news {
            News::Note(text) => News::Note(format!("{}: {text}", self.name)),
            event @ News::Event(_) => event,
        }
    }

    fn is_missing(&self) -> String {
        let name = &self.name;
        format!("the agent of {name}, which starts the processes of {name}'s tasks, is not there")
    }

    /// Its agent is not there. The engine hears this first: tasks that fail now must not be launched
    /// again at once.
    fn left(&mut self, uid: u32) {
        let error = self.is_missing();
        for LaunchOrder { attempt, .. } in std::mem::take(&mut self.waiting) {
            let (kind, error) = (FailureKind::Saturn, error.clone());
            self.news.push_back(News::Event(Event::LaunchFailed { attempt, kind, error }));
        }
        self.news.push_front(News::Event(Event::OwnerLeft { uid }));
    }
}

impl Launcher for PeopleLauncher {
    fn is_ready(&self) -> bool {
        self.own.is_ready()
    }

    fn launch(&mut self, order: LaunchOrder) -> Result<(), LaunchError> {
        let Some(owner) = order.spec.owner.clone() else { return self.own.launch(order) };
        self.of.insert(order.attempt, owner.uid);
        let guest = self.guest(&owner);
        match &mut guest.agent {
            Agent::Here(agent) => agent.launch(order),
            Agent::Away(at) if !is_past(*at) => {
                Err(LaunchError { kind: FailureKind::Saturn, error: guest.is_missing() })
            }
            Agent::Sought(_) | Agent::Away(_) => {
                guest.waiting.push(order);
                Ok(())
            }
        }
    }

    fn stop(&mut self, attempt: AttemptId) {
        if !self.fails_waiting(attempt) {
            self.agent(attempt).into_iter().for_each(|agent| agent.stop(attempt));
        }
    }

    fn until(&mut self, attempt: AttemptId, step: Option<u64>) {
        self.agent(attempt).into_iter().for_each(|agent| agent.until(attempt, step));
    }

    fn go_on(&mut self, attempt: AttemptId, steps: u64) {
        self.agent(attempt).into_iter().for_each(|agent| agent.go_on(attempt, steps));
    }

    fn kill(&mut self, attempt: AttemptId) {
        if !self.fails_waiting(attempt) {
            self.agent(attempt).into_iter().for_each(|agent| agent.kill(attempt));
        }
    }

    fn ended(&mut self, attempt: AttemptId, end: &AttemptEnd) {
        self.agent(attempt).into_iter().for_each(|agent| agent.ended(attempt, end));
        self.of.remove(&attempt);
    }

    fn poll(&mut self) -> Option<News> {
        if let Some(news) = self.own.poll() {
            return Some(news);
        }
        let after = self.turn;
        let (before, rest): (Vec<u32>, Vec<u32>) =
            self.guests.keys().partition(|uid| **uid <= after);
        for uid in rest.into_iter().chain(before) {
            // What the agent has said before has had its effect once there is nothing left to tell.
            if self.guests.get(&uid).is_some_and(|guest| guest.news.is_empty()) {
                self.look(uid);
            }
            let guest = self.guests.get_mut(&uid)?;
            if let Some(news) = guest.news.pop_front() {
                self.turn = uid;
                return Some(news);
            }
        }
        None
    }
}
