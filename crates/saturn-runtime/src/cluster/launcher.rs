//! The launcher of a run on a cluster, which starts gangs through the agents of its nodes.
//!
//! - The launcher ignores what an agent says of an attempt that the agent does not have.
//! - When a node is lost, the launcher first marks the node's attempts as given up, and then tells
//!   the engine. The mark is a file `given-up` in the attempt's directory. Ranks look for it before
//!   they give a checkpoint its name. So ranks of a node that was only silent publish nothing after
//!   their task was started elsewhere. A thread writes these files, since a shared disk may hang
//!   and the driver must not.
//! - The engine hears that a node has joined once its agent can start processes at once. A run
//!   begins when all of its first agents are ready, or some time after the first of them is ready.
//!   Later agents join as new nodes do.
//! - A gang on several nodes has an agent on each. Its ranks meet at a store, which the first agent
//!   opens when a gang first needs it. Stop and kill go to all of these agents. The gang is over
//!   when the ranks on all nodes have ended; ranks of a lost node count as ended.

mod across;
mod leaving;
mod marking;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use saturn_engine::{
    AttemptEnd, AttemptId, Event, FailureKind, GangPart, LaunchError, LaunchOrder, Launcher, News,
    RankReport,
};
use saturn_store::Disk;

use crate::cluster::exchange::{Arrival, Exchange};
use crate::cluster::launcher::across::Store;
use crate::cluster::launcher::leaving::LATE;
use crate::cluster::launcher::marking::Marker;
use crate::cluster::letters::{FromAgent, Outbox, ToAgent};
use crate::devices::hardware::Hardware;
use crate::launching::files::{Share, attempt_dir};
use crate::launching::settings::LaunchSettings;
use crate::system::bell::Bell;
use crate::system::clock::{deadline, is_past, pause};
use crate::system::error::RuntimeError;
use crate::system::run_id::new_run_id;

/// Deliveries of heartbeats that all agents together make in a second. Each is a call of Ray, which
/// costs the driver some hundred microseconds.
const DELIVERIES_A_SECOND: f64 = 100.0;
/// The shortest time between two deliveries of heartbeats, seconds. Ranks send heartbeats at this
/// pace.
const LEAST_PACE_S: f64 = 0.25;
/// The most arrivals taken in before news are handed out.
const MAX_ARRIVALS: usize = 64;
/// How long agents may take to end their processes.
const END: Duration = Duration::from_secs(10);
/// How often the launcher checks whether agents have ended theirs.
const POLL: Duration = Duration::from_millis(20);

/// The agents, and the attempts that they were told to launch.
#[derive(Debug)]
pub(crate) struct ClusterLauncher {
    exchange: Exchange,
    epoch: String,
    run_dir: PathBuf,
    settings: LaunchSettings,
    marker: Marker,
    /// Until when the run's start waits for agents that are not ready. `None` until a first agent
    /// is ready.
    late: Option<Instant>,
    seats: BTreeMap<u64, Seat>,
    /// Lost agents with the reasons, while their attempts are being marked.
    leaving: BTreeMap<u64, (Seat, String)>,
    /// Attempts that have live processes or whose end is not on record.
    attempts: BTreeMap<AttemptId, Live>,
    news: VecDeque<News>,
    /// Processes that outlived agents that have ended.
    left: Vec<i32>,
}

/// The driver's view of an agent.
#[derive(Debug)]
struct Seat {
    hardware: Hardware,
    outbox: Outbox,
    /// The agent starts processes without delay.
    is_ready: bool,
    /// The engine knows the agent's nodes.
    is_told: bool,
    store: Store,
}

#[derive(Debug)]
struct Live {
    /// The agents that run this attempt, each with its ranks that have not ended.
    shares: Vec<(u64, BTreeSet<u32>)>,
    directory: PathBuf,
    /// The attempt is an inspection, which holds no device. So the loss of its node does not by
    /// itself tell the engine that the attempt failed.
    is_inspection: bool,
    /// The attempt's end is on record. Its remaining processes were killed and have not ended yet.
    has_ended: bool,
}

impl ClusterLauncher {
    /// Tells the founding agents to begin. The engine knows their nodes already.
    pub(crate) fn start(
        exchange: Exchange,
        founders: BTreeMap<u64, Hardware>,
        run_dir: PathBuf,
        settings: LaunchSettings,
        bell: Bell,
        disk: Disk,
    ) -> Result<Self, RuntimeError> {
        exchange.wake(bell);
        let marker = Marker::start(disk, exchange.clone());
        let mut launcher = Self {
            late: None,
            exchange,
            epoch: format!("{}/{}", settings.run_id, new_run_id()?),
            run_dir,
            settings,
            marker,
            seats: BTreeMap::new(),
            leaving: BTreeMap::new(),
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

    /// Tells every agent to end its processes. Returns the processes that live on.
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

    /// Marks attempts as given up, in their directories.
    pub(crate) fn give_up(&self, directories: &[PathBuf], reason: &str) {
        self.marker.mark_now(directories, reason);
    }

    /// Takes an agent on and tells it to begin; `num_agents` counts it too.
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
            Arrival::Lost { agent, reason } => self.lose(agent, reason),
            Arrival::Marked { agent } => self.gone(agent),
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
                self.late.get_or_insert_with(|| deadline(LATE));
                self.tell_who_joined();
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

    /// Reports a rank's failure on behalf of a rank that could not report it.
    fn tell_failure(&mut self, attempt: AttemptId, rank: u32, kind: FailureKind, error: String) {
        let report = RankReport::Failed { kind, error, traceback: String::new() };
        self.tell(Event::Reported { attempt, rank, report });
    }

    /// Reports the end of a rank's process on behalf of an agent that did not.
    fn tell_end(&mut self, attempt: AttemptId, rank: u32) {
        self.tell(Event::RankExited { attempt, rank, code: 1, last_words: String::new() });
    }

    /// The least memory of a device of each type, over all nodes, bytes.
    fn memory_by_type(&self) -> BTreeMap<String, u64> {
        let all = Hardware::of_all(self.seats.values().map(|seat| &seat.hardware));
        all.map(|all| all.memory_by_type()).unwrap_or_default()
    }

    /// The agents that will run a gang, each with its ranks.
    fn shares_of(&self, order: &LaunchOrder) -> Result<Vec<(u64, BTreeSet<u32>)>, LaunchError> {
        let failed = |error: String| LaunchError { kind: FailureKind::Saturn, error };
        if order.parts.is_empty() {
            // An inspection holds no device, so it goes to the agent with the fewest inspections.
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
            let has = |seat: &Seat| {
                seat.is_told && seat.hardware.nodes.iter().any(|one| one.node == *node)
            };
            let found = self.seats.iter().find(|(_, seat)| has(seat)).map(|(agent, _)| *agent);
            let agent = found.ok_or_else(|| failed(format!("node `{}` has gone", node.name)))?;
            let is_whole = order.parts.len() == 1;
            let ranks = if is_whole { 0..order.num_ranks } else { Share::ranks(part, order) };
            shares.push((agent, ranks.collect()));
        }
        Ok(shares)
    }

    /// Forgets an attempt once its end is on record and none of its processes lives.
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
        self.seats.values().all(|seat| seat.is_ready || !seat.is_told)
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
        match self.orders_to(attempt) {
            Some(orders) => orders.stop = true,
            None => self.tell_agents_of(attempt, || ToAgent::Stop { attempt }),
        }
    }

    fn until(&mut self, attempt: AttemptId, step: Option<u64>) {
        match self.orders_to(attempt) {
            Some(orders) => orders.until = Some(step),
            None => self.tell_agents_of(attempt, || ToAgent::Until { attempt, step }),
        }
    }

    fn go_on(&mut self, attempt: AttemptId, steps: u64) {
        self.tell_agents_of(attempt, || ToAgent::GoOn { attempt, steps });
    }

    fn kill(&mut self, attempt: AttemptId) {
        if self.forget_waiting(attempt) {
            // The attempt waited for its store and never had processes.
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
            self.go_on_without_late_ones();
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
pub(crate) mod tests;
