//! The launcher of a driver whose ranks belong to an agent: it passes orders on, and takes words
//! in.
//!
//! If the agent dies, its ranks die with it, and their attempts have failed through no fault of
//! their own. Another agent is started at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use saturn_engine::{
    AttemptEnd, AttemptId, Event, FailureKind, LaunchError, LaunchOrder, Launcher, News,
};
use saturn_store::with_causes;

use crate::cluster::letters::{FromAgent, ToAgent};
use crate::devices::claims::Claims;
use crate::devices::hardware::Hardware;
use crate::devices::machine::Machine;
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
/// Why the attempts of an agent that died have failed.
const DIED: &str = "the process that its ranks belong to ended unexpectedly";

/// A driver's end of the connection to the agent.
#[derive(Debug)]
pub(crate) struct AgentLauncher {
    site: Site,
    settings: LaunchSettings,
    bell: Bell,
    /// The devices, if this process has claimed them.
    pool: Option<Pool>,
    agent: String,
    hardware: Hardware,
    stream: UnixStream,
    words: Receiver<FromAgentOfRun>,
    is_ready: bool,
    /// Attempts whose ends are not on record.
    attempts: BTreeSet<AttemptId>,
    /// There is no agent, and another is started at the given time.
    resting: Option<Instant>,
    /// News, each with the number of the word that it came by.
    news: VecDeque<(Option<u64>, News)>,
    /// The number of the last word that was handed out, and of the last that was confirmed.
    heard: u64,
    confirmed: u64,
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
        let mut launcher = Self::of(living, site, settings, bell);
        launcher.pool = Some(pool);
        Ok(launcher)
    }

    /// The launcher of an agent that has taken this driver on. `earlier` are attempts whose ends
    /// are on record; the agent may not know that of some.
    pub(crate) fn take_over(
        living: Living,
        site: Site,
        settings: LaunchSettings,
        earlier: Vec<Earlier>,
        bell: Bell,
    ) -> Self {
        let open = living.attempts.clone();
        let mut launcher = Self::of(living, site, settings, bell);
        for one in earlier.into_iter().filter(|one| open.contains(&one.attempt)) {
            launcher.ended(one.attempt, &one.end);
        }
        launcher
    }

    fn of(living: Living, site: Site, settings: LaunchSettings, bell: Bell) -> Self {
        let (agent, hardware) = (living.agent.clone(), living.hardware.clone());
        let is_ready = living.is_ready;
        let attempts = living.attempts.iter().copied().collect();
        let (stream, words) = connected(living, bell.clone());
        Self {
            site,
            settings,
            bell,
            pool: None,
            agent,
            hardware,
            stream,
            words,
            is_ready,
            attempts,
            resting: None,
            news: VecDeque::new(),
            heard: 0,
            confirmed: 0,
        }
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
        let _ = write_line(&self.stream, &FromDriver::Order(order));
    }

    fn take_in(&mut self, line: FromAgentOfRun) {
        let FromAgentOfRun::Word { number, word } = line else { return };
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
            Ok(()) => {
                self.resting = None;
                // Its devices may be others, if this process had not claimed them itself.
                for one in &self.hardware.nodes {
                    let (spec, host_memory_bytes) = (one.node.clone(), one.host_memory_bytes);
                    let joined = Event::NodeJoined { spec, host_memory_bytes };
                    self.news.push_back((None, News::Event(joined)));
                }
            }
            Err(error) => {
                self.resting = Some(deadline(REST));
                let every_s = REST.as_secs();
                let note = format!("{}; it is tried again in {every_s} s", with_causes(&error));
                self.news.push_back((None, News::Note(note)));
            }
        }
    }

    fn start_another(&mut self) -> Result<(), RuntimeError> {
        let pool = if let Some(pool) = self.pool.take() {
            pool
        } else {
            let locks_dir = self.settings.locks_dir.as_deref();
            let claims = Claims::new(locks_dir, &self.site.run_dir)?;
            let machine = Machine::look().sharing(&self.settings.shared_gpus);
            machine.claim(self.settings.devices, claims)?
        };
        let (site, settings) = (self.site.clone(), self.settings.clone());
        let started = starting::start(site, settings, &pool, Vec::new());
        self.pool = Some(pool);
        let mut living = started?;
        living.adopt(&[], 0)?;
        (self.agent, self.hardware) = (living.agent.clone(), living.hardware.clone());
        (self.stream, self.words) = connected(living, self.bell.clone());
        (self.is_ready, self.heard, self.confirmed) = (false, 0, 0);
        Ok(())
    }
}

/// The connection to an agent, with a thread that reads its lines.
fn connected(living: Living, bell: Bell) -> (UnixStream, Receiver<FromAgentOfRun>) {
    let (stream, mut lines) = living.split();
    // The agent may have nothing to say for long.
    let _ = stream.set_read_timeout(None);
    let (sender, words) = channel();
    std::thread::spawn(move || {
        while let Ok(Some(line)) = lines.next() {
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
                        self.replace();
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
