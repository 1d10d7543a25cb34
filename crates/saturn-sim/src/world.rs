//! The virtual cluster: nodes, processes, a disk, and a clock that jumps from one thing that happens
//! to the next.
//!
//! It does what the engine's actions say, and answers with events, as a launcher and its ranks do. It
//! never looks into the engine. What goes wrong is drawn from its seed.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::{Node, TrialOutcome};
use saturn_engine::{
    AttemptId, DeviceId, Event, LaunchError, NodeId, Purpose, RankReport, Record, TaskId, devices,
};

use crate::fate::draw;
use crate::faults::{Fault, Hits, Odds};
use crate::gang::{Failure, LiveGang, Order, Phase};
use crate::heap::Heap;
use crate::history::{Fact, History};
use crate::truth::Truth;

/// Seconds until ranks that lost a peer say so.
const ECHO_S: f64 = 0.3;
/// Seconds for which a process lives on after its kill, where nothing goes wrong.
const DEATH_S: f64 = 0.1;

/// Something that is to happen.
#[derive(Debug)]
enum Happening {
    /// A word reaches the engine.
    Tell(Event),
    /// A gang comes to the end of what it is at.
    Turn { attempt: AttemptId, turn: u64 },
    /// A gang's fate comes.
    Fate { attempt: AttemptId, failure: Failure },
    /// A gang gets slower.
    Slow { attempt: AttemptId, factor: f64 },
    /// A gang hears that it is to stop.
    Stop(AttemptId),
    /// A process ends.
    Ends { attempt: AttemptId, rank: u32, code: i32 },
}

/// How a world behaves, but for what goes wrong.
#[derive(Debug, Clone)]
pub struct Manners {
    /// Most steps between two words on progress.
    pub look_up_every: u64,
    /// Seconds between a gang's last word and the end of its processes.
    pub teardown_s: f64,
    /// Seconds that a trial takes, beside loading.
    pub trial_s: f64,
}

/// The virtual cluster.
#[derive(Debug)]
pub struct World {
    /// What is true of it.
    pub truth: Truth,
    /// What can go wrong, and how likely.
    pub odds: Odds,
    /// What went wrong.
    pub hits: Hits,
    /// What happened.
    pub history: History,
    pub(crate) rng: Xoshiro256PlusPlus,
    pub(crate) manners: Manners,
    now_s: f64,
    heap: Heap<Happening>,
    gangs: BTreeMap<AttemptId, LiveGang>,
    /// Steps of each task's newest checkpoint.
    disk: BTreeMap<TaskId, u64>,
    /// Nodes that are there, by name.
    nodes: BTreeMap<String, Node>,
    numbered: Vec<(String, String)>,
    bad: BTreeSet<DeviceId>,
    save_every_s: f64,
}

impl World {
    /// A world without nodes and tasks.
    pub fn new(truth: Truth, odds: Odds, manners: Manners, save_every_s: f64, seed: u64) -> Self {
        Self {
            truth,
            odds,
            hits: Hits::new(),
            history: History::default(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            manners,
            now_s: 0.0,
            heap: Heap::default(),
            gangs: BTreeMap::new(),
            disk: BTreeMap::new(),
            nodes: BTreeMap::new(),
            numbered: Vec::new(),
            bad: BTreeSet::new(),
            save_every_s,
        }
    }

    /// The time, seconds.
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// Finished steps in a task's newest checkpoint.
    pub fn saved_step(&self, task: TaskId) -> u64 {
        self.disk.get(&task).copied().unwrap_or(0)
    }

    /// Nodes that are there.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Attempts that have processes, with how many, and the devices that these hold.
    pub fn processes(&self) -> impl Iterator<Item = (AttemptId, usize, Vec<DeviceId>)> + '_ {
        self.gangs.iter().map(|(id, gang)| {
            let all = devices(&gang.order.gang);
            (*id, gang.live.len(), all.collect())
        })
    }

    /// When something happens next, seconds.
    pub fn next_s(&self) -> Option<f64> {
        self.heap.next_s()
    }

    /// Lets time pass; never backwards.
    pub fn wait_until(&mut self, at_s: f64) {
        self.now_s = self.now_s.max(at_s);
    }

    /// Does what happens next; the word that reaches the engine by it, if any.
    pub(crate) fn happen(&mut self) -> Option<Event> {
        let (at_s, next) = self.heap.take()?;
        self.wait_until(at_s);
        match next {
            Happening::Tell(event) => return Some(event),
            Happening::Turn { attempt, turn } => self.turn(attempt, turn),
            Happening::Fate { attempt, failure } => self.fail(attempt, failure),
            Happening::Slow { attempt, factor } => self.slow_down(attempt, factor),
            Happening::Stop(attempt) => self.hear_stop(attempt),
            Happening::Ends { attempt, rank, code } => self.rank_ends(attempt, rank, code),
        }
        None
    }

    /// Has the engine told something at a time.
    pub fn tell(&mut self, at_s: f64, event: Event) {
        self.heap.add(at_s, Happening::Tell(event));
    }

    /// Draws whether a fault occurs, and counts it.
    pub(crate) fn is_hit(&mut self, fault: Fault) -> bool {
        let odds = self.odds.get(&fault).copied().unwrap_or(0.0);
        let is_hit = odds > 0.0 && self.rng.random::<f64>() < odds;
        if is_hit {
            self.hit(fault);
        }
        is_hit
    }

    /// Counts a fault.
    pub(crate) fn hit(&mut self, fault: Fault) {
        *self.hits.entry(fault).or_default() += 1;
        self.history.add(self.now_s, || Fact::Hit(fault));
    }

    /// Takes in a record that was stored: which number means what.
    pub fn stored(&mut self, record: &Record) {
        if let Record::NodeJoined { node, spec } = record {
            let named = (spec.name.clone(), spec.gpu_type.clone());
            if node.0 < self.numbered.len() {
                self.numbered[node.0] = named;
            } else {
                self.numbered.push(named);
            }
        }
    }

    /// A node is there from now on; the engine is not told by this.
    pub fn add_node(&mut self, node: Node) {
        let (name, gpus) = (node.name.clone(), node.gpus);
        self.history.add(self.now_s, || Fact::Node { name, gpus });
        self.nodes.insert(node.name.clone(), node);
    }

    /// A node goes with everything on it; the engine is not told by this.
    pub fn remove_node(&mut self, name: &str) -> Option<Node> {
        let node = self.nodes.remove(name)?;
        self.history.add(self.now_s, || Fact::Node { name: name.to_owned(), gpus: 0 });
        let lost: Vec<AttemptId> = self.gangs_on(name);
        for attempt in lost {
            self.vanish(attempt);
        }
        Some(node)
    }

    fn gangs_on(&self, name: &str) -> Vec<AttemptId> {
        let on = |gang: &LiveGang| {
            gang.order.gang.iter().any(|part| {
                self.numbered.get(part.node).is_some_and(|(numbered, _)| numbered == name)
            })
        };
        self.gangs.iter().filter(|(_, gang)| on(gang)).map(|(id, _)| *id).collect()
    }

    /// All processes of a gang are gone at once, without a word.
    fn vanish(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.remove(&attempt) else { return };
        for rank in gang.live {
            self.history.add(self.now_s, || Fact::Gone { attempt, rank });
        }
    }

    /// A device is bad or well from now on.
    pub fn set_bad(&mut self, device: DeviceId, is_bad: bool) {
        if is_bad {
            self.hit(Fault::BadDevice);
            self.bad.insert(device);
        } else {
            self.bad.remove(&device);
        }
    }

    /// Nothing goes wrong from now on; the nodes with processes that won't die.
    pub fn calm(&mut self) -> BTreeSet<String> {
        self.odds.clear();
        self.bad.clear();
        let mut stuck = BTreeSet::new();
        for gang in self.gangs.values_mut() {
            if gang.is_killed && !gang.fate.outlives_kill_s.is_finite() {
                let nodes = gang.order.gang.iter().filter_map(|part| self.numbered.get(part.node));
                stuck.extend(nodes.map(|(name, _)| name.clone()));
            }
            gang.fate.outlives_kill_s = 0.0;
        }
        stuck
    }

    /// The driver is dead: ranks die with it, words are lost. What is immortal goes too, since no new
    /// driver begins beside ranks of the last one.
    pub fn driver_died(&mut self) {
        self.history.add(self.now_s, || Fact::DriverDied);
        let all: Vec<AttemptId> = self.gangs.keys().copied().collect();
        for attempt in all {
            let gang = &self.gangs[&attempt];
            let (task, step) = (gang.order.task, gang.step);
            if matches!(gang.phase, Phase::Saving { .. }) && self.is_hit(Fault::SavedAfterDeath) {
                self.save(attempt, task, step);
            }
            self.vanish(attempt);
        }
        self.heap.retain(|_| false);
    }

    fn save(&mut self, attempt: AttemptId, task: TaskId, step: u64) {
        self.disk.insert(task, step);
        self.history.add(self.now_s, || Fact::Saved { attempt, task, step });
    }

    /// Starts a gang, or fails to.
    pub(crate) fn begin(&mut self, order: Order) -> Result<(), LaunchError> {
        let attempt = order.attempt;
        let (gpu_type, group) = (order.gpu_type.clone(), order.group.clone());
        let is_bad = devices(&order.gang).any(|device| self.bad.contains(&device));
        let fate = draw(self, &order, &group, &gpu_type, is_bad)?;
        let true_step_s = self.truth.step_s(&group, &order.strategy, &gpu_type);
        let noise =
            if self.is_hit(Fault::NoisySteps) { self.rng.random_range(0.8..1.25) } else { 1.0 };
        let (load_s, save_s) =
            self.truth.groups.get(&group).map_or((1.0, 1.0), |group| (group.load_s, group.save_s));
        let gang = LiveGang {
            launched_s: self.now_s,
            live: (0..order.num_ranks).collect(),
            phase: if order.purpose == Purpose::Trial { Phase::Trying } else { Phase::Loading },
            turn: 0,
            stops: false,
            is_killed: false,
            load_s,
            step_s: true_step_s.unwrap_or(1.0) * noise,
            save_s: save_s * fate.save_factor.unwrap_or(1.0),
            look_up_every: self.manners.look_up_every,
            save_every_s: self.save_every_s,
            step: 0,
            since_s: self.now_s,
            saved_s: self.now_s,
            order,
            fate,
        };
        self.history.add(self.now_s, || Fact::Started {
            attempt,
            task: gang.order.task,
            purpose: gang.order.purpose,
            gang: gang.order.gang.clone(),
            num_ranks: gang.order.num_ranks,
        });
        if let Some((after_s, failure)) = gang.fate.failure.clone() {
            self.heap.add(self.now_s + after_s, Happening::Fate { attempt, failure });
        }
        if let Some((after_s, factor)) = gang.fate.slow {
            self.heap.add(self.now_s + after_s, Happening::Slow { attempt, factor });
        }
        let first_s = match gang.order.purpose {
            Purpose::Trial => gang.load_s + self.manners.trial_s,
            Purpose::Train => gang.load_s,
        };
        self.gangs.insert(attempt, gang);
        self.next_turn(attempt, self.now_s + first_s);
        Ok(())
    }

    /// Asks a gang to stop at a checkpoint.
    pub(crate) fn ask_to_stop(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get(&attempt) else { return };
        if gang.fate.stop_delay_s > 0.0 {
            let at_s = self.now_s + gang.fate.stop_delay_s;
            self.hit(Fault::LateStop);
            self.heap.add(at_s, Happening::Stop(attempt));
        } else {
            self.hear_stop(attempt);
        }
    }

    fn hear_stop(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.stops = true;
        self.replan(attempt);
    }

    /// Tells a gang where to stop by itself.
    pub(crate) fn set_until(&mut self, attempt: AttemptId, step: Option<u64>) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.order.until_step = step;
        self.replan(attempt);
    }

    /// What a training gang is to do has changed: it finishes its present step first.
    fn replan(&mut self, attempt: AttemptId) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if !matches!(gang.phase, Phase::Training { .. }) {
            return;
        }
        let in_step = gang.look_up(now_s);
        let more = if gang.stops || gang.step >= gang.target() {
            u64::from(in_step)
        } else {
            gang.next_steps()
        };
        self.train(attempt, more);
    }

    /// Kills all processes of a gang.
    pub(crate) fn kill_all(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if gang.is_killed {
            return;
        }
        gang.is_killed = true;
        gang.phase = Phase::Still;
        gang.turn += 1;
        let outlives_s = gang.fate.outlives_kill_s;
        let ranks: Vec<u32> = gang.live.iter().copied().collect();
        for (index, rank) in ranks.iter().enumerate() {
            let extra_s = if index + 1 == ranks.len() { outlives_s } else { 0.0 };
            let at_s = self.now_s + DEATH_S + extra_s;
            if at_s.is_finite() {
                self.heap.add(at_s, Happening::Ends { attempt, rank: *rank, code: -9 });
            }
        }
        if outlives_s > 0.0 {
            self.hit(if outlives_s.is_finite() { Fault::Unkillable } else { Fault::Immortal });
        }
    }

    fn next_turn(&mut self, attempt: AttemptId, at_s: f64) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.turn += 1;
        let turn = gang.turn;
        self.heap.add(at_s, Happening::Turn { attempt, turn });
    }

    fn train(&mut self, attempt: AttemptId, more: u64) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.phase = Phase::Training { more };
        let at_s = gang.since_s + more as f64 * gang.step_s;
        self.next_turn(attempt, at_s);
    }

    fn turn(&mut self, attempt: AttemptId, turn: u64) {
        let Some(gang) = self.gangs.get(&attempt).filter(|gang| gang.turn == turn) else { return };
        match gang.phase {
            Phase::Loading => self.loaded(attempt),
            Phase::Trying => self.tried(attempt),
            Phase::Training { more } => self.trained(attempt, more),
            Phase::Saving { since_s, ends } => self.saved(attempt, since_s, ends),
            Phase::Closing => self.close(attempt),
            Phase::Still => {}
        }
    }

    fn loaded(&mut self, attempt: AttemptId) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        let step = self.disk.get(&gang.order.task).copied().unwrap_or(0);
        (gang.step, gang.since_s, gang.saved_s) = (step, now_s, now_s);
        let setup_s = now_s - gang.launched_s;
        let is_done = step >= gang.target();
        let more = if gang.stops { 1 } else { gang.next_steps() };
        self.history.add(now_s, || Fact::Loaded { attempt, step });
        self.say(attempt, RankReport::Started { step, setup_s });
        if is_done {
            self.end_well(attempt);
        } else {
            self.train(attempt, more);
        }
    }

    fn tried(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        let outcome =
            gang.fate.outcome.clone().unwrap_or(TrialOutcome::NotApplicable {
                reason: "nothing is known of it".to_owned(),
            });
        let knobs = gang.order.strategy.knobs.clone();
        if !gang.fate.loses_last_word {
            self.say(attempt, RankReport::Trial { knobs, outcome });
        }
        self.begin_closing(attempt);
    }

    fn trained(&mut self, attempt: AttemptId, more: u64) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.step += more;
        gang.since_s = now_s;
        let (step, step_s) = (gang.step, gang.step_s);
        let ends = gang.stops || step >= gang.target();
        let saves = ends || now_s >= gang.saved_s + gang.save_every_s;
        let next_steps = gang.next_steps();
        if saves {
            gang.phase = Phase::Saving { since_s: now_s, ends };
        }
        let (save_s, loses_progress) = (gang.save_s, gang.fate.loses_progress);
        if !loses_progress {
            let loss = Some(1.0 / (1.0 + step as f64));
            self.say(attempt, RankReport::Progress { step, loss, step_s: Some(step_s) });
        }
        if saves {
            self.next_turn(attempt, now_s + save_s);
        } else {
            self.train(attempt, next_steps);
        }
    }

    fn saved(&mut self, attempt: AttemptId, began_s: f64, ends: bool) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        let save_s = now_s - began_s;
        let (task, step) = (gang.order.task, gang.step);
        (gang.saved_s, gang.since_s) = (now_s, now_s);
        let loses = gang.fate.loses_checkpoints;
        self.save(attempt, task, step);
        if !loses {
            self.say(attempt, RankReport::Checkpoint { step, save_s, blocked_s: save_s });
        }
        let Some(gang) = self.gangs.get(&attempt) else { return };
        if ends {
            self.end_well(attempt);
        } else {
            // It may have been told to stop while it saved: after one more step, as ranks do.
            let more = if gang.stops { 1 } else { gang.next_steps() };
            self.train(attempt, more);
        }
    }

    /// The last word of a gang that has done its work.
    fn end_well(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get(&attempt) else { return };
        let step = gang.step;
        let report = if gang.order.steps.is_some_and(|steps| step >= steps) {
            RankReport::Finished { step, loss: Some(1.0 / (1.0 + step as f64)) }
        } else {
            RankReport::Stopped { step }
        };
        if !gang.fate.loses_last_word {
            self.say(attempt, report);
        }
        self.begin_closing(attempt);
    }

    fn begin_closing(&mut self, attempt: AttemptId) {
        let teardown_s = self.manners.teardown_s;
        if let Some(gang) = self.gangs.get_mut(&attempt) {
            gang.phase = Phase::Closing;
        }
        if teardown_s > 0.0 {
            self.next_turn(attempt, self.now_s + teardown_s);
        } else {
            self.close(attempt);
        }
    }

    fn close(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.turn += 1;
        let teardown_fails = gang.fate.teardown_fails;
        let ranks: Vec<u32> = gang.live.iter().copied().collect();
        for rank in ranks {
            let code = i32::from(teardown_fails && rank == 0);
            self.rank_ends(attempt, rank, code);
        }
        if teardown_fails {
            self.hit(Fault::TeardownFails);
        }
    }

    fn rank_ends(&mut self, attempt: AttemptId, rank: u32, code: i32) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if !gang.live.remove(&rank) {
            return;
        }
        if gang.live.is_empty() {
            self.gangs.remove(&attempt);
        }
        self.history.add(self.now_s, || Fact::Gone { attempt, rank });
        let last_words = String::new();
        self.tell(self.now_s, Event::RankExited { attempt, rank, code, last_words });
    }

    fn slow_down(&mut self, attempt: AttemptId, factor: f64) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.look_up(now_s);
        gang.step_s *= factor;
        self.hit(Fault::Straggler);
        self.replan(attempt);
    }

    /// Rank 0 says something.
    fn say(&mut self, attempt: AttemptId, report: RankReport) {
        let Some(gang) = self.gangs.get(&attempt) else { return };
        let at_s = self.now_s + gang.fate.word_delay_s;
        let doubles = gang.fate.doubles_words;
        if doubles {
            self.tell(at_s, Event::Reported { attempt, rank: 0, report: report.clone() });
        }
        self.tell(at_s, Event::Reported { attempt, rank: 0, report });
    }

    fn says_failed(&mut self, attempt: AttemptId, rank: u32, kind: saturn_engine::FailureKind) {
        let (error, traceback) = (format!("{kind:?}"), "Traceback …".to_owned());
        let report = RankReport::Failed { kind, error, traceback };
        self.tell(self.now_s, Event::Reported { attempt, rank, report });
    }

    fn fail(&mut self, attempt: AttemptId, failure: Failure) {
        let rng = &mut self.rng;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if matches!(gang.phase, Phase::Closing | Phase::Still) {
            return;
        }
        let num_live = u32::try_from(gang.live.len()).unwrap_or(1);
        let rank = rng.random_range(0..num_live.max(1));
        let peer = (rank + 1) % num_live.max(1);
        gang.phase = Phase::Still;
        gang.turn += 1;
        let fault = match &failure {
            Failure::Ends { code: -9, .. } => Fault::RankKilled,
            Failure::Ends { code: 1, .. } => Fault::RankExit,
            Failure::Ends { .. } => Fault::RankCrash,
            Failure::Says { kind, .. } => match kind {
                saturn_engine::FailureKind::OutOfMemory => Fault::LateOutOfMemory,
                saturn_engine::FailureKind::NoSpace => Fault::NoSpace,
                saturn_engine::FailureKind::Machine => Fault::MachineError,
                _ => Fault::TaskError,
            },
            Failure::EchoOnly => Fault::EchoOnly,
            Failure::Hang => Fault::Hang,
        };
        self.hit(fault);
        let echo = saturn_engine::FailureKind::PeerLost;
        match failure {
            Failure::Ends { code, echo_first } => {
                if echo_first && num_live > 1 {
                    self.hit(Fault::EchoFirst);
                    self.says_failed(attempt, peer, echo);
                    self.heap.add(self.now_s + ECHO_S, Happening::Ends { attempt, rank, code });
                } else {
                    self.rank_ends(attempt, rank, code);
                }
            }
            Failure::Says { kind, echo_first } => {
                if echo_first && num_live > 1 {
                    self.hit(Fault::EchoFirst);
                    self.says_failed(attempt, peer, echo);
                }
                self.says_failed(attempt, rank, kind);
            }
            Failure::EchoOnly => self.says_failed(attempt, peer, echo),
            Failure::Hang => {}
        }
    }

    /// The number of the node of a name, where the engine has given it one.
    pub fn number_of(&self, name: &str) -> Option<NodeId> {
        // A node that comes back with devices of another type gets another number.
        self.numbered.iter().rposition(|(numbered, _)| numbered == name).map(NodeId)
    }

    /// A word of an attempt that may be long over.
    pub(crate) fn word_from_the_past(&mut self, attempt: AttemptId) {
        self.hit(Fault::WordFromThePast);
        let report = RankReport::Finished { step: 1_000_000, loss: None };
        self.tell(self.now_s, Event::Reported { attempt, rank: 0, report });
        let last_words = String::new();
        self.tell(self.now_s, Event::RankExited { attempt, rank: 0, code: 0, last_words });
    }
}
