//! A node's agent: the local machine's launcher, told what to do by letters.
//!
//! - It holds the node's devices from its making to its end, and their locks.
//! - What is launched carries the agent's name in its mark, so that agents of one run on one machine
//!   don't end each other's ranks, and one that starts again on a node ends what the one before left.
//! - An attempt is launched once: a number that it has had before is refused. An order that arrives a
//!   second time, because its carrier could not know that it had arrived, is skipped.
//! - Letters to the driver are kept, and handed out again, until the driver has confirmed them.
//! - That ranks go on is told as often as the driver wants, of each rank by what it said last; all else at
//!   once.
//! - Where nothing is heard of the driver for [`LEASE`], everything is ended: it may have started the
//!   same tasks elsewhere. A thread sees to that, also where Python comes to nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use saturn_engine::{AttemptId, Event, Launcher, News, RankReport};

use super::letters::{FromAgent, Inbox, Outbox, ToAgent, is_sign_of_life};
use crate::bell::Bell;
use crate::claims::Claims;
use crate::clock::{self, pause};
use crate::devices::{Machine, Pool};
use crate::disk::Disk;
use crate::error::{RuntimeError, with_causes};
use crate::launcher::{LocalLauncher, Share, Site};
use crate::request::LaunchSettings;
use crate::run_dir::workers_lock_of;

/// How long a driver may be silent: less than after which it gives an agent up that does not answer.
/// A driver may stand still for minutes, by a swap storm, a hung disk or a stopped terminal. Where it
/// has died, Ray ends its agents at once; the lease counts where Ray can't tell.
const LEASE: Duration = Duration::from_secs(150);
/// How often the driver's silence is looked at.
const WATCH: Duration = Duration::from_millis(500);
/// How often the launcher is looked at where nothing wakes it.
const POLL: Duration = Duration::from_millis(50);
/// News that are taken from the launcher at once.
const MAX_NEWS: usize = 1024;

/// Opens a store where ranks of several nodes can meet, for as long as the agent lives: its address and
/// port, or why there is none. It may take seconds.
#[derive(Clone)]
pub struct StoreOpener(pub Arc<dyn Fn() -> Result<String, String> + Send + Sync>);

impl std::fmt::Debug for StoreOpener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreOpener")
    }
}

/// What an agent is made of.
#[derive(Debug, Clone)]
pub struct AgentSetup {
    /// The node's name.
    pub name: String,
    /// Devices to hold; `None`: all that are free.
    pub devices: Option<u32>,
    /// The interpreter of ranks.
    pub python: String,
    /// Where it finds modules.
    pub python_path: Vec<String>,
    /// Where ranks work.
    pub cwd: PathBuf,
    /// Where this machine's device locks are, where that is not the usual place.
    pub locks_dir: Option<PathBuf>,
    /// Where the run will be: what other runs on the machine are told of who holds its devices.
    pub run: PathBuf,
    /// The network interface that other nodes reach, where it is known.
    pub interface: Option<String>,
    /// Opens stores.
    pub stores: StoreOpener,
}

/// An agent.
#[derive(Debug)]
pub struct Agent {
    setup: AgentSetup,
    description: String,
    bell: Bell,
    /// Itself, for threads that outlast a call.
    own: Weak<Self>,
    inner: Mutex<Inner>,
    /// When the driver was last heard of; of its own, so that asking waits for nobody.
    heard: Mutex<Instant>,
}

#[derive(Debug)]
struct Inner {
    stage: Stage,
    inbox: Inbox,
    outbox: Option<Outbox>,
    /// Letters that the driver has not confirmed.
    letters: VecDeque<String>,
    /// The number of the first of these letters.
    first: u64,
    /// Of ranks that go on, the last sign of life that is in no letter yet.
    alive: BTreeMap<(AttemptId, u32), RankReport>,
    /// Every attempt so far. They need not come in the order of their numbers: a gang of several nodes
    /// waits until there is a store for it.
    attempts: BTreeSet<AttemptId>,
    /// How long after a delivery signs of life wait.
    pace: Duration,
    /// When letters were last handed out.
    delivered: Option<Instant>,
    is_ready_told: bool,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Stage {
    /// The run is not known yet.
    Waiting(Pool),
    Serving(LocalLauncher),
    /// Why.
    Over(String),
}

impl Agent {
    /// Takes the devices of this machine.
    pub fn claim(setup: AgentSetup) -> Result<Arc<Self>, RuntimeError> {
        let machine = Machine::look().named(setup.name.clone());
        let claims = Claims::new(setup.locks_dir.as_deref(), &setup.run)?;
        let pool = machine.claim(setup.devices, claims)?;
        let description = serde_json::to_string(&pool.hardware())
            .map_err(|error| RuntimeError::Request { reason: error.to_string() })?;
        let inner = Inner {
            stage: Stage::Waiting(pool),
            inbox: Inbox::default(),
            outbox: None,
            letters: VecDeque::new(),
            first: 0,
            alive: BTreeMap::new(),
            attempts: BTreeSet::new(),
            pace: Duration::ZERO,
            delivered: None,
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

    /// What it holds, as JSON.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Does what letters say, in their order; letters that it has taken before are skipped. An error says
    /// why it can't go on: it is over.
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

    /// Letters to the driver, which has read `num_read` letters so far: as soon as there are some, or none
    /// after so long. Signs of life may wait. An error says why there will be no letters any more.
    pub fn news(&self, at_most: Duration, num_read: u64) -> Result<Vec<String>, RuntimeError> {
        let until = clock::deadline(at_most);
        loop {
            self.hear();
            let mut inner = self.inner();
            inner.gather();
            let letters = inner.hand_out(num_read);
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

    /// Ends every process; devices are free then.
    pub fn end(&self) {
        self.inner().end("the agent was told to end");
        self.bell.ring();
    }

    fn obey(&self, inner: &mut Inner, order: ToAgent) -> Result<(), String> {
        match order {
            ToAgent::Begin { run_dir, settings, pace_s } => {
                inner.pace =
                    Duration::try_from_secs_f64(pace_s).map_err(|error| error.to_string())?;
                let Some(epoch) = inner.inbox.epoch() else { return Ok(()) };
                inner.outbox = Some(Outbox::new(epoch.to_owned()));
                let stage = std::mem::replace(&mut inner.stage, Stage::Over(String::new()));
                let Stage::Waiting(pool) = stage else {
                    return Err("the run began twice".to_owned());
                };
                match self.begin(run_dir, *settings, pool) {
                    Ok(launcher) => inner.stage = Stage::Serving(launcher),
                    Err(error) => {
                        let error = with_causes(&error);
                        inner.stage = Stage::Over(error.clone());
                        inner.say(FromAgent::Unfit { error })?;
                    }
                }
                Ok(())
            }
            ToAgent::End => {
                let left = inner.end("the run is over");
                inner.say(FromAgent::Over { left })
            }
            ToAgent::OpenStore => {
                let (agent, stores) = (self.own.clone(), self.setup.stores.clone());
                std::thread::spawn(move || {
                    let opened = (stores.0)();
                    let Some(agent) = agent.upgrade() else { return };
                    let mut inner = agent.inner();
                    if let Err(reason) = inner.say(FromAgent::Store { opened }) {
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

    /// Starts what starts ranks.
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

    /// The driver is heard of: too late, where this process stood still for too long.
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
    /// Does what is not of the beginning or the end.
    fn order(&mut self, order: ToAgent, interface: Option<&String>) -> Result<(), String> {
        let Stage::Serving(launcher) = &mut self.stage else {
            return Err("an order came before the run".to_owned());
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
                    self.say(FromAgent::LaunchFailed { attempt, kind, error })?;
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

    /// Writes down what the launcher tells.
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
            if let Err(reason) = self.say(word) {
                self.end(&reason);
                return;
            }
        }
    }

    /// The letters that go to the driver now: those beyond the `num_read` that it has read.
    fn hand_out(&mut self, num_read: u64) -> Vec<String> {
        while self.first < num_read && self.letters.pop_front().is_some() {
            self.first += 1;
        }
        if self.delivered.is_none_or(|at| at.elapsed() >= self.pace)
            && let Err(reason) = self.seal_signs_of_life()
        {
            self.end(&reason);
        }
        if !self.letters.is_empty() {
            self.delivered = Some(clock::now());
        }
        self.letters.iter().cloned().collect()
    }

    fn say(&mut self, word: FromAgent) -> Result<(), String> {
        if let FromAgent::Reported { attempt, rank, report } = &word
            && is_sign_of_life(report)
        {
            let last = self.alive.entry((*attempt, *rank)).or_insert(RankReport::Alive);
            // That it lives says nothing of how far it is.
            if !matches!(**report, RankReport::Alive) {
                last.clone_from(report);
            }
            return Ok(());
        }
        // What was said before is told before.
        self.seal_signs_of_life()?;
        self.seal(word)
    }

    fn seal_signs_of_life(&mut self) -> Result<(), String> {
        for ((attempt, rank), report) in std::mem::take(&mut self.alive) {
            self.seal(FromAgent::Reported { attempt, rank, report: Box::new(report) })?;
        }
        Ok(())
    }

    fn seal(&mut self, word: FromAgent) -> Result<(), String> {
        if let Some(outbox) = &mut self.outbox {
            self.letters.push_back(outbox.seal(word)?);
        }
        Ok(())
    }

    /// Ends everything, since nothing was heard of the driver; where nothing runs yet, its maker does.
    fn end_in_silence(&mut self) {
        if matches!(self.stage, Stage::Serving(_)) {
            self.end(&format!("nothing was heard of the driver for {} s", LEASE.as_secs()));
        }
    }

    /// Ends everything; what lives on.
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

/// What the driver is told; what else a launcher may tell happens to no agent.
fn word_of(news: News) -> Option<FromAgent> {
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

/// Ends everything where the driver has been silent for too long.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports as the driver reads them.
    fn read(letters: &[String]) -> Vec<(u32, RankReport)> {
        let mut inbox = Inbox::default();
        let words = letters.iter().filter_map(|letter| inbox.open(letter).unwrap());
        let reported = words.map(|word| match word {
            FromAgent::Reported { rank, report, .. } => (rank, *report),
            other => panic!("{other:?}"),
        });
        reported.collect()
    }

    #[test]
    fn of_signs_of_life_the_last_is_told_and_before_what_came_after_it() {
        let progress = |step| RankReport::Progress { step, loss: None, step_s: None };
        let checkpoint =
            RankReport::Checkpoint { step: 5, save_s: 0.1, blocked_s: 0.1, loss: None };
        let mut inner = Inner {
            stage: Stage::Over(String::new()),
            inbox: Inbox::default(),
            outbox: Some(Outbox::new("one".to_owned())),
            letters: VecDeque::new(),
            first: 0,
            alive: BTreeMap::new(),
            attempts: BTreeSet::new(),
            pace: Duration::from_mins(1),
            delivered: Some(clock::now()),
            is_ready_told: true,
        };
        let say = |inner: &mut Inner, rank, report: RankReport| {
            let report = Box::new(report);
            inner.say(FromAgent::Reported { attempt: AttemptId(3), rank, report }).unwrap();
        };
        for (rank, report) in [(0, progress(1)), (1, RankReport::Alive), (0, progress(5))] {
            say(&mut inner, rank, report);
        }
        say(&mut inner, 0, RankReport::Alive);
        assert!(inner.hand_out(0).is_empty(), "they wait");
        say(&mut inner, 0, checkpoint.clone());
        say(&mut inner, 0, progress(6));
        let expected = vec![(0, progress(5)), (1, RankReport::Alive), (0, checkpoint)];
        assert_eq!(read(&inner.hand_out(0)), expected);
        assert_eq!(read(&inner.hand_out(0)), expected, "the driver has not confirmed them");
        assert_eq!(inner.hand_out(2).len(), 1, "the driver has confirmed two");
        assert!(inner.hand_out(3).is_empty(), "a delivery was just now");
        inner.delivered = None;
        inner.outbox = Some(Outbox::new("two".to_owned()));
        assert_eq!(read(&inner.hand_out(3)), vec![(0, progress(6))]);
    }
}
