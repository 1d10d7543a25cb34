//! A node's agent: the launcher of a single machine, which takes its orders from letters.
//!
//! - The agent holds the node's devices, and their locks, for its whole life.
//! - Ranks carry the agent's name in their mark. So agents of one run on one machine do not end
//!   each other's ranks, and a new agent on a node ends what the agent before it left.
//! - An attempt is launched once. The agent refuses a number that it has had before. An order that
//!   arrives a second time, because its carrier could not know that it had arrived, is skipped.
//! - The agent keeps letters to the driver, and hands them out again, until the driver has
//!   confirmed them.
//! - The agent sends heartbeats in batches, at the driver's pace, and keeps only the newest of each
//!   rank. It sends everything else at once.
//! - If the agent hears nothing from the driver for [`LEASE`], it ends every rank, since the driver
//!   may have started the same tasks elsewhere. A thread of Rust does this, so that it happens even
//!   if Python hangs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use saturn_engine::{AttemptId, Event, Launcher, News};
use saturn_store::{Disk, with_causes};

use crate::cluster::letters::{FromAgent, Inbox, ToAgent};
use crate::cluster::outgoing::Outgoing;
use crate::devices::claims::Claims;
use crate::devices::machine::Machine;
use crate::devices::pool::Pool;
use crate::launching::files::Share;
use crate::launching::launcher::LocalLauncher;
use crate::launching::settings::LaunchSettings;
use crate::launching::site::Site;
use crate::run_files::run_dir::workers_lock_of;
use crate::system::bell::Bell;
use crate::system::clock::{self, pause};
use crate::system::error::RuntimeError;

/// How long a driver may be silent. The driver waits longer than this before it gives up an agent
/// that does not answer. A driver may stand still for minutes, because of a swap storm, a hung disk
/// or a stopped terminal. If the driver dies, Ray ends its agents at once; the lease is for deaths
/// that Ray cannot see.
const LEASE: Duration = Duration::from_secs(150);
/// How often the agent checks how long the driver has been silent.
const WATCH: Duration = Duration::from_millis(500);
/// How often the agent polls its launcher if nothing wakes it.
const POLL: Duration = Duration::from_millis(50);
/// The most news taken from the launcher in one round.
const MAX_NEWS: usize = 1024;

/// Opens a store where ranks of several nodes meet. The store lives as long as the agent. Returns
/// its address and port, or why there is none. This may take seconds.
#[derive(Clone)]
pub struct StoreOpener(pub Arc<dyn Fn() -> Result<String, String> + Send + Sync>);

impl std::fmt::Debug for StoreOpener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreOpener")
    }
}

/// The settings of an agent.
#[derive(Debug, Clone)]
pub struct AgentSetup {
    /// The node's name.
    pub name: String,
    /// How many devices to hold; `None`: all that are free.
    pub devices: Option<u32>,
    /// Fewer will do, if other runs hold some.
    pub fewer_will_do: bool,
    /// The Python interpreter of ranks.
    pub python: String,
    /// Where that interpreter finds modules.
    pub python_path: Vec<String>,
    /// The working directory of ranks.
    pub cwd: PathBuf,
    /// The directory of this machine's device locks, if not the usual one.
    pub locks_dir: Option<PathBuf>,
    /// The run's directory. Other runs on the machine see it when they ask who holds the devices.
    pub run: PathBuf,
    /// The network interface that other nodes reach, if known.
    pub interface: Option<String>,
    /// Opens stores where ranks of several nodes meet.
    pub stores: StoreOpener,
}

/// An agent of one node.
#[derive(Debug)]
pub struct Agent {
    setup: AgentSetup,
    description: String,
    bell: Bell,
    /// A reference to itself, for threads that outlast a call.
    own: Weak<Self>,
    inner: Mutex<Inner>,
    /// When the driver was last heard. It has a lock of its own, so that reading it never waits for
    /// `inner`.
    heard: Mutex<Instant>,
}

#[derive(Debug)]
struct Inner {
    stage: Stage,
    inbox: Inbox,
    outgoing: Outgoing,
    /// Every attempt that came so far. They need not come in the order of their numbers, since a
    /// gang of several nodes waits for its store.
    attempts: BTreeSet<AttemptId>,
    is_ready_told: bool,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Stage {
    /// The agent does not know its run yet.
    Waiting(Pool),
    Serving(LocalLauncher),
    /// The agent has ended, for this reason.
    Over(String),
}

impl Agent {
    /// Takes this machine's devices, and starts the thread that watches the driver's silence.
    pub fn claim(setup: AgentSetup) -> Result<Arc<Self>, RuntimeError> {
        let machine = Machine::look().named(setup.name.clone()).or_fewer(setup.fewer_will_do);
        let claims = Claims::new(setup.locks_dir.as_deref(), &setup.run)?;
        let pool = machine.claim(setup.devices, claims)?;
        let description = serde_json::to_string(&pool.hardware())
            .map_err(|error| RuntimeError::Request { reason: error.to_string() })?;
        let inner = Inner {
            stage: Stage::Waiting(pool),
            inbox: Inbox::default(),
            outgoing: Outgoing::default(),
            attempts: BTreeSet::new(),
            is_ready_told: false,
        };
        let agent = Arc::new_cyclic(|own| Self {
            setup,
            description,
            bell: Bell::default(),
            own: own.clone(),
            inner: Mutex::new(inner),
            heard: Mutex::new(clock::now()),
        });
        let watched = Arc::downgrade(&agent);
        std::thread::spawn(move || watch(&watched));
        Ok(agent)
    }

    /// The devices that the agent holds, as JSON.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Does what letters say, in their order; letters that it has taken before are skipped. An
    /// error says why it can't go on: it is over.
    pub fn take(&self, letters: &[String]) -> Result<(), RuntimeError> {
        self.hear();
        let mut inner = self.inner();
        for letter in letters {
            let opened = inner.inbox.open(letter);
            let taken = opened.and_then(|order| order.map_or(Ok(()), |o| self.obey(&mut inner, o)));
            if let Err(reason) = taken {
                inner.end(&reason);
                self.bell.ring();
                return Err(RuntimeError::Refused { reason });
            }
        }
        drop(inner);
        self.bell.ring();
        Ok(())
    }

    /// Letters to the driver, which has read `num_read` letters so far: as soon as there are some,
    /// or none after so long. Heartbeats may wait. An error says why there will be no letters any
    /// more.
    pub fn news(&self, at_most: Duration, num_read: u64) -> Result<Vec<String>, RuntimeError> {
        let until = clock::deadline(at_most);
        loop {
            self.hear();
            let mut inner = self.inner();
            inner.gather();
            let letters = inner.outgoing.hand_out(num_read).unwrap_or_else(|reason| {
                inner.end(&reason);
                Vec::new()
            });
            if !letters.is_empty() {
                return Ok(letters);
            }
            if let Stage::Over(reason) = &inner.stage {
                return Err(RuntimeError::Refused { reason: reason.clone() });
            }
            drop(inner);
            if clock::is_past(until) {
                return Ok(Vec::new());
            }
            self.bell.wait(POLL);
        }
    }

    /// Ends every process. After that the devices are free.
    pub fn end(&self) {
        self.inner().end("the agent was told to end");
        self.bell.ring();
    }

    fn obey(&self, inner: &mut Inner, order: ToAgent) -> Result<(), String> {
        match order {
            ToAgent::Begin { run_dir, settings, pace_s } => {
                let pace =
                    Duration::try_from_secs_f64(pace_s).map_err(|error| error.to_string())?;
                let Some(epoch) = inner.inbox.epoch() else { return Ok(()) };
                inner.outgoing.begin(epoch.to_owned(), pace);
                if !matches!(inner.stage, Stage::Waiting(_)) {
                    return Err("the run began twice".to_owned());
                }
                let stage = std::mem::replace(&mut inner.stage, Stage::Over(String::new()));
                let Stage::Waiting(pool) = stage else { return Ok(()) };
                match self.begin(run_dir, *settings, pool) {
                    Ok(launcher) => inner.stage = Stage::Serving(launcher),
                    Err(error) => {
                        let error = with_causes(&error);
                        inner.stage = Stage::Over(error.clone());
                        inner.outgoing.say(FromAgent::Unfit { error })?;
                    }
                }
                Ok(())
            }
            ToAgent::End => {
                let left = inner.end("the run is over");
                inner.outgoing.say(FromAgent::Over { left })
            }
            ToAgent::OpenStore => {
                let (agent, stores) = (self.own.clone(), self.setup.stores.clone());
                std::thread::spawn(move || {
                    let opened = (stores.0)();
                    let Some(agent) = agent.upgrade() else { return };
                    let mut inner = agent.inner();
                    if let Err(reason) = inner.outgoing.say(FromAgent::Store { opened }) {
                        inner.end(&reason);
                    }
                    drop(inner);
                    agent.bell.ring();
                });
                Ok(())
            }
            order => inner.order(order, self.setup.interface.as_ref()),
        }
    }

    /// Starts the launcher, which will start the ranks.
    fn begin(
        &self,
        run_dir: PathBuf,
        settings: LaunchSettings,
        pool: Pool,
    ) -> Result<LocalLauncher, RuntimeError> {
        let AgentSetup { name, python, python_path, cwd, .. } = self.setup.clone();
        let parent_logs = run_dir.join("nodes").join(&name);
        std::fs::create_dir_all(&parent_logs)
            .map_err(RuntimeError::file("make the directory", &parent_logs))?;
        let site = Site { workers_lock: workers_lock_of(&run_dir), run_dir, parent_logs };
        let run_id = format!("{}@{name}", settings.run_id);
        let settings = LaunchSettings { python, python_path, cwd, run_id, ..settings };
        LocalLauncher::start(site, settings, pool, self.bell.clone(), Disk::default())
    }

    /// Notes that the driver was heard. If this process itself stood still for longer than the
    /// lease, it is too late, and the agent ends.
    fn hear(&self) {
        if self.silence() >= LEASE {
            self.inner().end_in_silence();
        }
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = clock::now();
    }

    fn silence(&self) -> Duration {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Obeys an order other than to begin, to open a store or to end.
    fn order(&mut self, order: ToAgent, interface: Option<&String>) -> Result<(), String> {
        let Stage::Serving(launcher) = &mut self.stage else {
            return Err("an order came before the agent was told its run".to_owned());
        };
        match order {
            ToAgent::Launch { order, memory_by_type, part } => {
                let attempt = order.attempt;
                if !self.attempts.insert(attempt) {
                    return Err(format!("attempt {attempt} is launched twice"));
                }
                launcher.learn_memory(memory_by_type);
                let share =
                    part.map(|(part, store)| Share { part, store, interface: interface.cloned() });
                if let Err(error) = launcher.launch_share(&order, share.as_ref()) {
                    let (kind, error) = (error.kind, error.error);
                    self.outgoing.say(FromAgent::LaunchFailed { attempt, kind, error })?;
                }
            }
            ToAgent::Stop { attempt } => launcher.stop(attempt),
            ToAgent::Until { attempt, step } => launcher.until(attempt, step),
            ToAgent::GoOn { attempt, steps } => launcher.go_on(attempt, steps),
            ToAgent::Kill { attempt } => launcher.kill(attempt),
            ToAgent::Ended { attempt, end } => launcher.ended(attempt, &end),
            ToAgent::Begin { .. } | ToAgent::OpenStore | ToAgent::End => {}
        }
        Ok(())
    }

    /// Puts the launcher's news into letters.
    fn gather(&mut self) {
        let Stage::Serving(launcher) = &mut self.stage else { return };
        let mut words = Vec::new();
        while words.len() < MAX_NEWS
            && let Some(news) = launcher.poll()
        {
            words.extend(word_of(news));
        }
        if !self.is_ready_told && launcher.is_ready() {
            self.is_ready_told = true;
            words.push(FromAgent::Ready);
        }
        for word in words {
            if let Err(reason) = self.outgoing.say(word) {
                self.end(&reason);
                return;
            }
        }
    }

    /// Ends everything, since the driver was silent for too long. An agent that has no run yet
    /// stays: whoever made it ends it.
    fn end_in_silence(&mut self) {
        if matches!(self.stage, Stage::Serving(_)) {
            self.end(&format!("nothing was heard of the driver for {} s", LEASE.as_secs()));
        }
    }

    /// Ends everything. Returns the processes that live on.
    fn end(&mut self, reason: &str) -> Vec<i32> {
        match std::mem::replace(&mut self.stage, Stage::Over(reason.to_owned())) {
            Stage::Serving(launcher) => launcher.end(),
            Stage::Waiting(_) => Vec::new(),
            over @ Stage::Over(_) => {
                self.stage = over;
                Vec::new()
            }
        }
    }
}

/// What to tell the driver of a launcher's news. An agent's launcher never has any other kind of
/// news.
pub(crate) fn word_of(news: News) -> Option<FromAgent> {
    let event = match news {
        News::Note(text) => return Some(FromAgent::Note { text }),
        News::Event(event) => event,
    };
    match event {
        Event::Reported { attempt, rank, report } => {
            Some(FromAgent::Reported { attempt, rank, report: Box::new(report) })
        }
        Event::RankExited { attempt, rank, code, last_words } => {
            Some(FromAgent::Exited { attempt, rank, code, last_words })
        }
        Event::LaunchFailed { attempt, kind, error } => {
            Some(FromAgent::LaunchFailed { attempt, kind, error })
        }
        _ => None,
    }
}

/// Ends everything once the driver has been silent for too long.
fn watch(agent: &Weak<Agent>) {
    loop {
        pause(WATCH);
        let Some(agent) = agent.upgrade() else { return };
        if agent.silence() < LEASE {
            continue;
        }
        agent.inner().end_in_silence();
    }
}
