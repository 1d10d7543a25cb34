//! The launcher of a driver whose ranks belong to an agent: it passes orders on, and takes words
//! in.
//!
//! If the agent dies, its ranks die with it, and their attempts have failed through no fault of
//! their own. Another agent is started at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use saturn_engine::{
    AttemptEnd, AttemptId, Event, FailureKind, LaunchError, LaunchOrder, Launcher, News,
};
use saturn_store::with_causes;

use crate::cluster::letters::{FromAgent, ToAgent};
use crate::devices::pool::Pool;
use crate::launching::launcher::Earlier;
use crate::launching::settings::LaunchSettings;
use crate::launching::site::Site;
use crate::outliving::messages::{FromAgentOfRun, FromDriver, write_line};
use crate::outliving::starting::{self, Living};
use crate::run_files::journal::Heard;
use crate::system::bell::Bell;
use crate::system::clock::{deadline, is_past, pause};
use crate::system::error::RuntimeError;

/// How long the agent may take to end its processes.
const END: Duration = Duration::from_secs(10);
/// The most words taken in before news are handed out.
const MAX_WORDS: usize = 64;
/// The wait before another agent is tried, if one could not be started.
const REST: Duration = Duration::from_secs(30);
/// How long another person's agent may take to read an order.
const GUEST_READS: Duration = Duration::from_secs(1);
/// The most words of an agent that wait to be taken in. More of them wait with the agent.
const MAX_WAITING: usize = 4096;
/// Why the attempts of an agent that died have failed.
const DIED: &str = "the process that its ranks belong to ended unexpectedly";

/// A driver's end of the connection to the agent.
#[derive(Debug)]
pub(crate) struct AgentLauncher {
    bell: Bell,
    /// How to start another agent; `None`: its person does.
    own: Option<Own>,
    agent: String,
    stream: UnixStream,
    words: Receiver<FromAgentOfRun>,
    is_ready: bool,
    /// Attempts whose ends are not on record.
    attempts: BTreeSet<AttemptId>,
    /// All attempts that it has had: the processes of some may live on after their end is on record.
    all_attempts: BTreeSet<AttemptId>,
    /// There is no agent, and another is started at the given time.
    resting: Option<Instant>,
    /// News, each with the number of the word that it came by.
    news: VecDeque<(Option<u64>, News)>,
    /// The number of the last word that was handed out, and of the last that was confirmed.
    heard: u64,
    confirmed: u64,
}

/// What agents of this process's own person are started with.
#[derive(Debug)]
struct Own {
    site: Site,
    settings: LaunchSettings,
    /// The devices. This process holds their locks too, so that they are this run's until it ends,
    /// whatever becomes of agents.
    pool: Pool,
}

impl AgentLauncher {
    /// Starts an agent.
    pub(crate) fn start(
        site: Site,
        settings: LaunchSettings,
        pool: Pool,
        earlier: Vec<Earlier>,
        bell: Bell,
    ) -> Result<Self, RuntimeError> {
        let mut living = starting::start(site.clone(), settings.clone(), &pool, earlier)?;
        living.adopt(&[], 0)?;
        Ok(Self::of(living, Some(Own { site, settings, pool }), bell))
    }

    /// The launcher of an agent that has taken this driver on. `earlier` are attempts whose ends
    /// are on record; the agent may not know that of some.
    pub(crate) fn take_over(
        (living, pool): (Living, Pool),
        site: Site,
        settings: LaunchSettings,
        earlier: Vec<Earlier>,
        bell: Bell,
    ) -> Self {
        let open = living.attempts.clone();
        let mut launcher = Self::of(living, Some(Own { site, settings, pool }), bell);
        for one in earlier.into_iter().filter(|one| open.contains(&one.attempt)) {
            launcher.ended(one.attempt, &one.end);
        }
        launcher
    }

    /// The launcher of another person's agent that has taken this driver on.
    pub(crate) fn of_guest(living: Living, bell: Bell) -> Self {
        let launcher = Self::of(living, None, bell);
        // A person's agent that reads nothing must not keep the others waiting.
        let _ = launcher.stream.set_write_timeout(Some(GUEST_READS));
        launcher
    }

    fn of(living: Living, own: Option<Own>, bell: Bell) -> Self {
        let agent = living.agent.clone();
        let is_ready = living.is_ready;
        let attempts: BTreeSet<AttemptId> = living.attempts.iter().copied().collect();
        let all_attempts = attempts.clone();
        let (stream, words) = connected(living, bell.clone());
        Self {
            bell,
            own,
            agent,
            stream,
            words,
            is_ready,
            attempts,
            all_attempts,
            resting: None,
            news: VecDeque::new(),
            heard: 0,
            confirmed: 0,
        }
    }

    /// The devices of this process's own person.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.own.as_ref().map(|own| &own.pool)
    }

    /// Whether the agent has died.
    pub(crate) fn is_gone(&self) -> bool {
        self.resting.is_some()
    }

    /// How far the agent was heard: the words up to this have had their effect, or have it now.
    pub(crate) fn heard(&self) -> Heard {
        Heard { agent: self.agent.clone(), number: self.heard }
    }

    /// Ends the agent and every process of it; returns once it has ended. Returns the processes that
    /// live on.
    pub(crate) fn end(self) -> Vec<i32> {
        self.order(ToAgent::End);
        let until = deadline(END);
        let mut living = Vec::new();
        while !is_past(until) {
            match self.words.try_recv() {
                Ok(FromAgentOfRun::Word { word: FromAgent::Over { left }, .. }) => {
                    living = left;
                    let _ = self.stream.shutdown(Shutdown::Write);
                }
                Ok(_) => {}
                Err(TryRecvError::Empty) => pause(Duration::from_millis(5)),
                Err(TryRecvError::Disconnected) => break,
            }
        }
        living
    }

    fn order(&self, order: ToAgent) {
        // If the agent has died, its silence says so.
        if write_line(&self.stream, &FromDriver::Order(order)).is_err() {
            // Half a line may have been written, after which no other can be read.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    fn take_in(&mut self, line: FromAgentOfRun) {
        let FromAgentOfRun::Word { number, word } = line else { return };
        // An agent speaks of its own attempts alone.
        if attempt_of(&word).is_some_and(|attempt| !self.all_attempts.contains(&attempt)) {
            return;
        }
        let news = match word {
            FromAgent::Ready => {
                self.is_ready = true;
                return;
            }
            FromAgent::Reported { attempt, rank, report } => {
                News::Event(Event::Reported { attempt, rank, report: *report })
            }
            FromAgent::Exited { attempt, rank, code, last_words } => {
                News::Event(Event::RankExited { attempt, rank, code, last_words })
            }
            FromAgent::LaunchFailed { attempt, kind, error } => {
                News::Event(Event::LaunchFailed { attempt, kind, error })
            }
            FromAgent::Note { text } => News::Note(text),
            // Of clusters, and of the end.
            FromAgent::Unfit { .. } | FromAgent::Store { .. } | FromAgent::Over { .. } => return,
        };
        self.news.push_back((number, news));
    }

    /// The agent has died, and all of its ranks with it.
    fn tell_death(&mut self) {
        // The numbers of its words mean nothing to the next agent.
        for (number, _) in &mut self.news {
            *number = None;
        }
        for attempt in std::mem::take(&mut self.attempts) {
            let (kind, error) = (FailureKind::Saturn, DIED.to_owned());
            let failed = Event::LaunchFailed { attempt, kind, error };
            self.news.push_back((None, News::Event(failed)));
        }
        self.is_ready = false;
        self.resting = Some(deadline(Duration::ZERO));
    }

    /// Starts another agent, once it is time to.
    fn replace(&mut self) {
        if !self.resting.is_some_and(is_past) {
            return;
        }
        match self.start_another() {
            Ok(()) => self.resting = None,
            Err(error) => {
                self.resting = Some(deadline(REST));
                let every_s = REST.as_secs();
                let note = format!("{}; it is tried again in {every_s} s", with_causes(&error));
                self.news.push_back((None, News::Note(note)));
            }
        }
    }

    fn start_another(&mut self) -> Result<(), RuntimeError> {
        let Some(Own { site, settings, pool }) = &self.own else { return Ok(()) };
        let mut living = starting::start(site.clone(), settings.clone(), pool, Vec::new())?;
        living.adopt(&[], 0)?;
        self.agent.clone_from(&living.agent);
        (self.stream, self.words) = connected(living, self.bell.clone());
        (self.is_ready, self.heard, self.confirmed) = (false, 0, 0);
        Ok(())
    }
}

/// The attempt that a word is about.
fn attempt_of(word: &FromAgent) -> Option<AttemptId> {
    match word {
        FromAgent::Reported { attempt, .. }
        | FromAgent::Exited { attempt, .. }
        | FromAgent::LaunchFailed { attempt, .. } => Some(*attempt),
        _ => None,
    }
}

/// The connection to an agent, with a thread that reads its lines.
fn connected(living: Living, bell: Bell) -> (UnixStream, Receiver<FromAgentOfRun>) {
    let (stream, mut lines) = living.split();
    // The agent may have nothing to say for long.
    let _ = stream.set_read_timeout(None);
    let (sender, words) = sync_channel(MAX_WAITING);
    std::thread::spawn(move || {
        while let Ok(Some(line)) = lines.next() {
            // Another person's agent could hand on open files until this process has none left.
            drop(lines.take_files());
            if sender.send(line).is_err() {
                return;
            }
            bell.ring();
        }
    });
    (stream, words)
}

impl Launcher for AgentLauncher {
    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn launch(&mut self, order: LaunchOrder) -> Result<(), LaunchError> {
        if self.resting.is_some() {
            let (kind, error) = (FailureKind::Saturn, DIED.to_owned());
            return Err(LaunchError { kind, error });
        }
        self.attempts.insert(order.attempt);
        self.all_attempts.insert(order.attempt);
        let memory_by_type = BTreeMap::new();
        self.order(ToAgent::Launch { order: Box::new(order), memory_by_type, part: None });
        Ok(())
    }

    fn stop(&mut self, attempt: AttemptId) {
        self.order(ToAgent::Stop { attempt });
    }

    fn until(&mut self, attempt: AttemptId, step: Option<u64>) {
        self.order(ToAgent::Until { attempt, step });
    }

    fn go_on(&mut self, attempt: AttemptId, steps: u64) {
        self.order(ToAgent::GoOn { attempt, steps });
    }

    fn kill(&mut self, attempt: AttemptId) {
        self.order(ToAgent::Kill { attempt });
    }

    fn ended(&mut self, attempt: AttemptId, end: &AttemptEnd) {
        self.attempts.remove(&attempt);
        self.order(ToAgent::Ended { attempt, end: end.clone() });
    }

    fn poll(&mut self) -> Option<News> {
        if self.news.is_empty() {
            // The driver has dealt with all that was handed out.
            if self.heard > self.confirmed {
                self.confirmed = self.heard;
                let _ = write_line(&self.stream, &FromDriver::Heard { number: self.heard });
            }
            for _ in 0..MAX_WORDS {
                match self.words.try_recv() {
                    Ok(line) => self.take_in(line),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        if self.resting.is_none() {
                            self.tell_death();
                        }
                        if self.own.is_some() {
                            self.replace();
                        }
                        break;
                    }
                }
            }
        }
        let (number, news) = self.news.pop_front()?;
        self.heard = number.unwrap_or(self.heard);
        Some(news)
    }
}
