//! The cluster's launcher: gangs on the nodes of agents.
//!
//! - What an agent says of an attempt that it does not have is not heard.
//! - Before the engine hears that a node has gone, the attempts on it are marked as given up, by a file
//!   [`GIVEN_UP`] in their directories. Ranks look for that before a checkpoint gets its name, so those of
//!   a node that was only silent publish nothing after their task was started elsewhere.
//! - A node is told of as joined once what it launches starts at once.
//! - A gang on several nodes has an agent on each, and its ranks meet at a store that the first of them
//!   opens when one is first needed. It is stopped and killed on all, and over when the ranks of all have
//!   ended: of a node that has gone they count as ended.

mod across;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use saturn_core::Node;
use saturn_engine::{
    AttemptEnd, AttemptId, Event, FailureKind, GangPart, LaunchError, LaunchOrder, Launcher, News,
    RankReport,
};

use self::across::Store;
use super::exchange::{Arrival, Exchange};
use super::letters::{FromAgent, Outbox, ToAgent};
use crate::bell::Bell;
use crate::clock::{deadline, is_past, pause};
use crate::disk::Disk;
use crate::error::{RuntimeError, with_causes};
use crate::hardware::Hardware;
use crate::launcher::{Share, attempt_dir};
use crate::request::{LaunchSettings, new_run_id};

/// The file in an attempt's directory that says that it was given up.
const GIVEN_UP: &str = "given-up";
/// Deliveries that all agents together make in a second while nothing but steps happens: a call of Ray's
/// costs the driver some hundred microseconds.
const DELIVERIES_A_SECOND: f64 = 100.0;
/// How long signs of life wait after a delivery at least, seconds: ranks give one as often.
const LEAST_PACE_S: f64 = 0.25;
/// Arrivals that are taken in before news are handed out.
const MAX_ARRIVALS: usize = 64;
/// How long agents may take to end their processes.
const END: Duration = Duration::from_secs(10);
/// How often it is looked whether they have.
const POLL: Duration = Duration::from_millis(20);

/// Agents, and what they were told to launch.
#[derive(Debug)]
pub(crate) struct ClusterLauncher {
    exchange: Exchange,
    epoch: String,
    run_dir: PathBuf,
    settings: LaunchSettings,
    disk: Disk,
    seats: BTreeMap<u64, Seat>,
    /// Attempts of which processes live, or whose end is not on record.
    attempts: BTreeMap<AttemptId, Live>,
    news: VecDeque<News>,
    /// What lives on of agents that have ended.
    left: Vec<i32>,
}

/// An agent.
#[derive(Debug)]
struct Seat {
    hardware: Hardware,
    outbox: Outbox,
    /// What it launches starts at once.
    is_ready: bool,
    /// The engine knows its nodes.
    is_told: bool,
    store: Store,
}

#[derive(Debug)]
struct Live {
    /// The agents that have it, each with numbers of ranks that have not ended.
    shares: Vec<(u64, BTreeSet<u32>)>,
    directory: PathBuf,
    /// It holds no device: that its node has gone doesn't say that it has.
    is_inspection: bool,
    /// Its end is on record; what lives of it was killed and has not ended.
    has_ended: bool,
}

impl ClusterLauncher {
    /// Has these agents begin; the engine knows of their nodes.
    pub(crate) fn start(
        exchange: Exchange,
        founders: BTreeMap<u64, Hardware>,
        run_dir: PathBuf,
        settings: LaunchSettings,
        bell: Bell,
        disk: Disk,
    ) -> Result<Self, RuntimeError> {
        exchange.wake(bell);
        let mut launcher = Self {
            exchange,
            epoch: format!("{}/{}", settings.run_id, new_run_id()?),
            run_dir,
            settings,
            disk,
            seats: BTreeMap::new(),
            attempts: BTreeMap::new(),
            news: VecDeque::new(),
            left: Vec::new(),
        };
        let num_agents = founders.len();
        for (agent, hardware) in founders {
            launcher.seat(agent, hardware, true, num_agents);
        }
        Ok(launcher)
    }

    /// Has every agent end its processes. Those that live on come back.
    pub(crate) fn end(mut self) -> Vec<i32> {
        let agents: Vec<u64> = self.seats.keys().copied().collect();
        for agent in agents {
            self.send(agent, ToAgent::End);
        }
        let until = deadline(END);
        while !self.seats.is_empty() && !is_past(until) {
            match self.exchange.next() {
                Some(arrival) => self.take_in(arrival),
                None => pause(POLL),
            }
        }
        std::mem::take(&mut self.left)
    }

    /// Marks attempts as given up, by their directories.
    pub(crate) fn give_up(&mut self, directories: &[PathBuf], reason: &str) {
        for directory in directories {
            // Where its node has not come to make it, it finds the mark there.
            let made = self.disk.make_directory(directory);
            let marked = self.disk.write(&directory.join(GIVEN_UP), reason.as_bytes());
            if let Err(error) = marked.and(made) {
                let error = with_causes(&error);
                let text = format!("an attempt can't be marked as given up: {error}");
                self.news.push_back(News::Note(text));
            }
        }
    }

    /// Has an agent begin; `num_agents` with it.
    fn seat(&mut self, agent: u64, hardware: Hardware, is_told: bool, num_agents: usize) {
        let outbox = Outbox::new(self.epoch.clone());
        let (is_ready, store) = (false, Store::default());
        self.seats.insert(agent, Seat { hardware, outbox, is_ready, is_told, store });
        let pace_s = (num_agents as f64 / DELIVERIES_A_SECOND).max(LEAST_PACE_S);
        let (run_dir, settings) = (self.run_dir.clone(), Box::new(self.settings.clone()));
        self.send(agent, ToAgent::Begin { run_dir, settings, pace_s });
    }

    fn send(&mut self, agent: u64, order: ToAgent) {
        let Some(seat) = self.seats.get_mut(&agent) else { return };
        match seat.outbox.seal(order) {
            Ok(letter) => self.exchange.send(agent, letter),
            Err(reason) => self.exchange.lose(agent, reason),
        }
    }

    fn tell(&mut self, event: Event) {
        self.news.push_back(News::Event(event));
    }

    fn take_in(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Agent { agent, hardware } => {
                self.seat(agent, hardware, false, self.seats.len() + 1);
            }
            Arrival::Word { agent, word } => self.hear(agent, word),
            Arrival::Lost { agent, reason } => self.lose(agent, &reason),
            Arrival::Note(text) => self.news.push_back(News::Note(text)),
        }
    }

    fn hear(&mut self, agent: u64, word: FromAgent) {
        let Some(seat) = self.seats.get_mut(&agent) else { return };
        let attempts = &self.attempts;
        let has = |attempt| attempts.get(&attempt).is_some_and(|live: &Live| live.is_on(agent));
        match word {
            FromAgent::Ready => {
                seat.is_ready = true;
                if !std::mem::replace(&mut seat.is_told, true) {
                    let nodes = seat.hardware.cluster().nodes;
                    let joined = nodes.into_iter().map(|spec| Event::NodeJoined { spec });
                    self.news.extend(joined.map(News::Event));
                }
            }
            FromAgent::Unfit { error } => self.exchange.lose(agent, error),
            FromAgent::Reported { attempt, rank, report } if has(attempt) => {
                self.tell(Event::Reported { attempt, rank, report: *report });
            }
            FromAgent::Exited { attempt, rank, code, last_words } if has(attempt) => {
                self.with_share(attempt, agent, |ranks| ranks.remove(&rank));
                self.forget_if_over(attempt);
                self.tell(Event::RankExited { attempt, rank, code, last_words });
            }
            FromAgent::LaunchFailed { attempt, kind, error } if has(attempt) => {
                self.share_failed(attempt, agent, kind, error);
            }
            FromAgent::Store { opened } => self.store_opened(agent, opened),
            FromAgent::Note { text } => {
                let name = seat.hardware.nodes.first().map_or("", |one| one.node.name.as_str());
                self.news.push_back(News::Note(format!("{name}: {text}")));
            }
            FromAgent::Over { left } => {
                self.left.extend(left);
                self.seats.remove(&agent);
            }
            FromAgent::Reported { .. }
            | FromAgent::Exited { .. }
            | FromAgent::LaunchFailed { .. } => {}
        }
    }

    /// An agent is lost, with all that it had.
    fn lose(&mut self, agent: u64, reason: &str) {
        let Some(seat) = self.seats.remove(&agent) else { return };
        let running = self.attempts.iter().filter(|(_, live)| live.is_on(agent));
        let lost: Vec<AttemptId> = running.map(|(attempt, _)| *attempt).collect();
        let directories: Vec<PathBuf> =
            lost.iter().map(|attempt| self.attempts[attempt].directory.clone()).collect();
        self.give_up(&directories, reason);
        if seat.is_told {
            for Node { name, .. } in seat.hardware.cluster().nodes {
                self.tell(Event::NodeLeft { name, reason: reason.to_owned() });
            }
        }
        let waits_for_store = |attempt: &AttemptId| match &seat.store {
            Store::Opening(waiting) => waiting.iter().any(|order| order.attempt == *attempt),
            Store::Closed | Store::Open(_) => false,
        };
        for attempt in lost {
            // What has no processes yet has none on other nodes either.
            let is_unstarted = waits_for_store(&attempt) || self.forget_waiting(attempt);
            let Some(live) = self.attempts.get_mut(&attempt) else { continue };
            let (gone, others): (Vec<_>, Vec<_>) = std::mem::take(&mut live.shares)
                .into_iter()
                .partition(|(on, _)| *on == agent || is_unstarted);
            live.shares = others;
            let is_inspection = live.is_inspection;
            if live.shares.is_empty() {
                self.attempts.remove(&attempt);
            }
            if is_inspection {
                let error = format!("its node has gone: {reason}");
                self.tell_failure(attempt, 0, FailureKind::Machine, error);
            }
            for rank in gone.into_iter().flat_map(|(_, ranks)| ranks) {
                self.tell_end(attempt, rank);
            }
        }
    }

    /// A rank fails without having been able to say so.
    fn tell_failure(&mut self, attempt: AttemptId, rank: u32, kind: FailureKind, error: String) {
        let report = RankReport::Failed { kind, error, traceback: String::new() };
        self.tell(Event::Reported { attempt, rank, report });
    }

    /// A rank counts as ended.
    fn tell_end(&mut self, attempt: AttemptId, rank: u32) {
        self.tell(Event::RankExited { attempt, rank, code: 1, last_words: String::new() });
    }

    /// What devices of each type hold at least, on all nodes.
    fn memory_by_type(&self) -> BTreeMap<String, u64> {
        let all = Hardware::of_all(self.seats.values().map(|seat| &seat.hardware));
        all.map(|all| all.memory_by_type()).unwrap_or_default()
    }

    /// The agents for a gang, each with its ranks.
    fn shares_of(&self, order: &LaunchOrder) -> Result<Vec<(u64, BTreeSet<u32>)>, LaunchError> {
        let failed = |error: String| LaunchError { kind: FailureKind::Machine, error };
        if order.parts.is_empty() {
            // A look holds no device: wherever there are the fewest.
            let num_looks = |agent: &u64| {
                let of_it = |live: &&Live| live.is_inspection && live.is_on(*agent);
                self.attempts.values().filter(of_it).count()
            };
            let ready = self.seats.iter().filter(|(_, seat)| seat.is_told).map(|(agent, _)| *agent);
            let agent = ready.min_by_key(num_looks);
            let agent = agent.ok_or_else(|| failed("no node is there".to_owned()))?;
            return Ok(vec![(agent, (0..order.num_ranks).collect())]);
        }
        let mut shares = Vec::new();
        for (part, GangPart { node, .. }) in order.parts.iter().enumerate() {
            let has = |seat: &Seat| seat.hardware.nodes.iter().any(|one| one.node == *node);
            let found = self.seats.iter().find(|(_, seat)| has(seat)).map(|(agent, _)| *agent);
            let agent = found.ok_or_else(|| failed(format!("node `{}` has gone", node.name)))?;
            let is_whole = order.parts.len() == 1;
            let ranks = if is_whole { 0..order.num_ranks } else { Share::ranks(part, order) };
            shares.push((agent, ranks.collect()));
        }
        Ok(shares)
    }

    /// Forgets an attempt whose end is on record once none of its processes lives.
    fn forget_if_over(&mut self, attempt: AttemptId) {
        let is_over =
            |live: &Live| live.has_ended && live.shares.iter().all(|(_, ranks)| ranks.is_empty());
        if self.attempts.get(&attempt).is_some_and(is_over) {
            self.attempts.remove(&attempt);
        }
    }

    fn tell_agents_of(&mut self, attempt: AttemptId, order: impl Fn() -> ToAgent) {
        let Some(live) = self.attempts.get(&attempt) else { return };
        let agents: Vec<u64> = live.shares.iter().map(|(agent, _)| *agent).collect();
        for agent in agents {
            self.send(agent, order());
        }
    }
}

impl Live {
    fn is_on(&self, agent: u64) -> bool {
        self.shares.iter().any(|(on, _)| *on == agent)
    }
}

impl Launcher for ClusterLauncher {
    fn is_ready(&self) -> bool {
        self.seats.values().all(|seat| seat.is_ready)
    }

    fn launch(&mut self, order: LaunchOrder) -> Result<(), LaunchError> {
        let (shares, attempt) = (self.shares_of(&order)?, order.attempt);
        let first = shares[0].0;
        let is_wide = shares.len() > 1;
        let directory = attempt_dir(&self.run_dir, &order.spec.dir, attempt);
        let is_inspection = order.parts.is_empty();
        let live = Live { shares, directory, is_inspection, has_ended: false };
        self.attempts.insert(attempt, live);
        if is_wide {
            self.launch_across(order, first);
            return Ok(());
        }
        let (order, memory_by_type) = (Box::new(order), self.memory_by_type());
        self.send(first, ToAgent::Launch { order, memory_by_type, part: None });
        Ok(())
    }

    fn stop(&mut self, attempt: AttemptId) {
        self.tell_agents_of(attempt, || ToAgent::Stop { attempt });
    }

    fn until(&mut self, attempt: AttemptId, step: Option<u64>) {
        self.tell_agents_of(attempt, || ToAgent::Until { attempt, step });
    }

    fn go_on(&mut self, attempt: AttemptId, steps: u64) {
        self.tell_agents_of(attempt, || ToAgent::GoOn { attempt, steps });
    }

    fn kill(&mut self, attempt: AttemptId) {
        if self.forget_waiting(attempt) {
            // It never came to have processes.
            let shares = self.attempts.get(&attempt).map(|live| live.shares.clone());
            for rank in shares.into_iter().flatten().flat_map(|(_, ranks)| ranks) {
                self.tell_end(attempt, rank);
            }
            return;
        }
        self.tell_agents_of(attempt, || ToAgent::Kill { attempt });
    }

    fn ended(&mut self, attempt: AttemptId, end: &AttemptEnd) {
        self.tell_agents_of(attempt, || ToAgent::Ended { attempt, end: end.clone() });
        if let Some(live) = self.attempts.get_mut(&attempt) {
            live.has_ended = true;
        }
        self.forget_if_over(attempt);
    }

    fn poll(&mut self) -> Option<News> {
        if self.news.is_empty() {
            for _ in 0..MAX_ARRIVALS {
                let Some(arrival) = self.exchange.next() else { break };
                self.take_in(arrival);
            }
        }
        self.news.pop_front()
    }
}

impl Drop for ClusterLauncher {
    fn drop(&mut self) {
        self.exchange.close();
    }
}

#[cfg(test)]
mod tests {
    use saturn_core::{Knobs, Strategy};
    use saturn_engine::{
        Allowed, Level, Purpose, RankFailure, TaskId, TaskSpec, TechniqueRef, Wishes, Work,
    };

    use super::*;

    const HARDWARE: &str = r#"{"kind": "cpu", "host_memory_bytes": null, "warnings": [], "nodes": [
        {"node": {"name": "n0", "gpus": 2, "type": "slot"}, "device_memory_bytes": null, "text": ""}]}"#;

    /// A launcher with an agent that nobody serves, and what it hears.
    fn launcher(run_dir: PathBuf) -> (ClusterLauncher, Exchange, Outbox) {
        let exchange = Exchange::default();
        exchange.join(0, HARDWARE).unwrap();
        let settings = LaunchSettings {
            python: String::new(),
            python_path: Vec::new(),
            cwd: PathBuf::new(),
            preload: Vec::new(),
            devices: None,
            locks_dir: None,
            run_id: "run".to_owned(),
            store: None,
            platform: None,
        };
        let (founders, bell) = (exchange.founders(), Bell::default());
        let disk = Disk::default();
        let made =
            ClusterLauncher::start(exchange.clone(), founders, run_dir, settings, bell, disk);
        (made.unwrap(), exchange, Outbox::new("driver".to_owned()))
    }

    fn order(attempt: AttemptId) -> LaunchOrder {
        let name = || "t".to_owned();
        let technique =
            TechniqueRef { name: name(), level: Level::Managed, import: None, pickle: None };
        LaunchOrder {
            attempt,
            task: TaskId(0),
            spec: TaskSpec {
                name: name(),
                dir: name(),
                steps: Some(10),
                epochs: None,
                batches_a_step: std::num::NonZeroU64::MIN,
                can_resume: true,
                gpu_range: None,
                allowed: Allowed::default(),
                profile_key: name(),
                measured: Vec::new(),
                wishes: Wishes::default(),
                evaluation: None,
                parameters: Knobs::new(),
                goal: None,
            },
            purpose: Purpose::Train,
            strategy: Strategy { technique: name(), gpus: 2, knobs: Knobs::new() },
            work: Work::Run(technique),
            num_ranks: 2,
            parts: vec![GangPart { node: Node::new("n0", 2, "slot"), devices: vec![0, 1] }],
            steps: Some(10),
            until_step: None,
            device_memory_bytes: None,
            warmup_steps: 1,
            timed_steps: 1,
            max_timed_steps: 1,
            checkpoint_every_s: None,
            failure_every_s: 1.0,
        }
    }

    #[test]
    fn what_lives_on_after_its_end_is_on_record_is_heard_until_it_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let (mut launcher, exchange, mut outbox) = launcher(directory.path().to_owned());
        let attempt = AttemptId(1);
        launcher.launch(order(attempt)).unwrap();
        let mut exited = |launcher: &mut ClusterLauncher, rank| {
            let last_words = String::new();
            let word = FromAgent::Exited { attempt, rank, code: -9, last_words };
            exchange.deliver(0, &[outbox.seal(word).unwrap()]).unwrap();
            matches!(launcher.poll(), Some(News::Event(Event::RankExited { rank: told, .. })) if told == rank)
        };
        assert!(exited(&mut launcher, 1));
        // The other was killed and has not ended: the attempt is given up.
        let (error, traceback) = ("it died".to_owned(), String::new());
        let failure = RankFailure { rank: 1, kind: FailureKind::Died, error, traceback };
        launcher.ended(attempt, &AttemptEnd::Failed { failure });
        assert!(exited(&mut launcher, 0), "its devices are free from now on");
        assert!(launcher.attempts.is_empty());
    }
}
