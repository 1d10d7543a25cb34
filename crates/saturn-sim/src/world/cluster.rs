//! The virtual cluster: nodes, processes, a disk, and a clock that jumps from one event to the
//! next.
//!
//! It performs the engine's actions, and answers with events, as a launcher and its ranks do. It
//! never looks into the engine. Its faults are drawn from its seed.

mod damage;
mod early;
mod holding;
mod letters;
mod life;
mod neighbours;
mod nodes;
mod orders;
pub(crate) mod outliving;
mod people;

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use saturn_core::{Node, TrialOutcome};
use saturn_engine::{
    AttemptId, DeviceId, Event, LaunchError, NodeId, Purpose, RankReport, Record, TaskId, devices,
};

use crate::workloads::truth::Truth;
use crate::world::cluster::damage::Damage;
use crate::world::cluster::early::Early;
use crate::world::cluster::holding::HeldGang;
use crate::world::fate::draw;
use crate::world::faults::{Fault, Hits, Odds};
use crate::world::gang::{Failure, LiveGang, Order, Paces, Phase, Telling};
use crate::world::heap::Heap;
use crate::world::history::{Fact, History};
use crate::world::recorded::Recorded;

/// Seconds for which a process lives on after its kill, without faults.
pub(crate) const DEATH_S: f64 = 0.1;

/// A future event.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every one is told")]
enum Happening {
    /// A report reaches the engine.
    Tell(Event),
    /// A gang that was held back gets its processes.
    Begins(AttemptId),
    /// A gang comes to the end of its present work.
    Turn { attempt: AttemptId, turn: u64 },
    /// A gang meets its fate.
    Fate { attempt: AttemptId, failure: Failure },
    /// A gang gets slower.
    Slow { attempt: AttemptId, factor: f64 },
    /// A gang hears that it is to stop.
    Stop(AttemptId),
    /// A process ends.
    Ends { attempt: AttemptId, rank: u32, code: i32 },
}

/// The behaviour of a world, without its faults.
#[derive(Debug, Clone)]
pub struct Manners {
    /// Most steps between two reports of progress.
    pub look_up_every: u64,
    /// Least seconds between two reports of progress.
    pub tell_every_s: f64,
    /// Seconds between a gang's last report and the end of its processes.
    pub teardown_s: f64,
    /// Seconds that a trial takes, beside loading and its steps.
    pub trial_s: f64,
    /// Steps of a trial; their time is added.
    pub trial_steps: u32,
    /// Whether trials train their tasks, and may go on doing so.
    pub trials_train: bool,
    /// The error of a trial's measurement: the standard deviation of its logarithm.
    pub trial_noise: f64,
}

impl Manners {
    /// Trials that take a second, are exact and train nothing, and gangs that end at once. At most
    /// `look_up_every` steps lie between two reports of progress.
    pub fn exact(look_up_every: u64) -> Self {
        Self {
            look_up_every,
            tell_every_s: 0.0,
            teardown_s: 0.0,
            trial_s: 1.0,
            trial_steps: 0,
            trials_train: false,
            trial_noise: 0.0,
        }
    }
}

/// A checkpoint of a task whose node died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its finished steps.
    pub step: u64,
    /// How many of these steps came after the task was last heard of.
    pub unheard: u64,
}

/// The virtual cluster.
#[derive(Debug)]
pub struct World {
    /// The truth.
    pub truth: Truth,
    /// The beliefs that trials find in place of the truth, if they are wrong.
    pub(crate) found: Option<Truth>,
    /// Finished steps at which a task's own code ends it, if that is before its last step.
    pub(crate) last_steps: BTreeMap<TaskId, u64>,
    /// The same by the names of tasks that are still to come.
    pub(crate) own_ends: BTreeMap<String, u64>,
    /// Processes that were killed may outlive their driver.
    pub(crate) has_undead: bool,
    /// The factors by which steps on nodes take longer, by name.
    paces: BTreeMap<String, f64>,
    /// The factor by which steps take longer while another gang is on the node.
    pub(crate) neighbours: f64,
    /// How long things took in a recorded run, which holds in place of the truth.
    pub(crate) recorded: Option<Box<dyn Recorded>>,
    /// The faults that can occur, and how likely each is.
    pub odds: Odds,
    /// The faults that occurred.
    pub hits: Hits,
    /// The history.
    pub history: History,
    pub(crate) rng: Xoshiro256PlusPlus,
    pub(crate) manners: Manners,
    now_s: f64,
    heap: Heap<Happening>,
    gangs: BTreeMap<AttemptId, LiveGang>,
    /// Gangs that were launched and have no processes yet.
    held: BTreeMap<AttemptId, HeldGang>,
    /// Steps of each task's newest checkpoint.
    disk: BTreeMap<TaskId, u64>,
    damage: Damage,
    pub(crate) early: Early,
    /// The task all of whose launches fail, by name, and its number once it has come.
    pub(crate) always_fails: (String, Option<TaskId>),
    /// Attempts take as long as their trials say: no fault makes them slower or faster.
    pub(crate) is_exact: bool,
    /// Present nodes, by name.
    nodes: BTreeMap<String, Node>,
    numbered: Vec<(String, String)>,
    /// Present nodes that are dead, by name.
    silent: BTreeSet<String>,
    /// How often nodes have gone without the engine being told yet, by name.
    leaving: BTreeMap<String, u32>,
    bad: BTreeSet<DeviceId>,
    /// Until when nodes' letters wait, by name.
    letters: BTreeMap<String, f64>,
    /// When the last letter of each gang arrives whose letters had to wait.
    arrived: BTreeMap<AttemptId, f64>,
    /// Until when nodes start no rank, by name.
    parents: BTreeMap<String, f64>,
    save_every_s: f64,
    lost_device_s: f64,
}

impl World {
    /// A world without nodes and tasks.
    pub fn new(truth: Truth, odds: Odds, manners: Manners, save_every_s: f64, seed: u64) -> Self {
        Self {
            truth,
            found: None,
            last_steps: BTreeMap::new(),
            own_ends: BTreeMap::new(),
            has_undead: false,
            paces: BTreeMap::new(),
            neighbours: 1.0,
            recorded: None,
            odds,
            hits: Hits::new(),
            history: History::default(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            manners,
            now_s: 0.0,
            heap: Heap::default(),
            gangs: BTreeMap::new(),
            held: BTreeMap::new(),
            disk: BTreeMap::new(),
            damage: Damage::default(),
            early: Early::default(),
            always_fails: (String::new(), None),
            is_exact: false,
            nodes: BTreeMap::new(),
            numbered: Vec::new(),
            silent: BTreeSet::new(),
            leaving: BTreeMap::new(),
            bad: BTreeSet::new(),
            letters: BTreeMap::new(),
            arrived: BTreeMap::new(),
            parents: BTreeMap::new(),
            save_every_s,
            lost_device_s: 0.0,
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

    /// Steps that a task has finished as far as its gang has looked up, or has saved.
    pub(crate) fn progress(&self, task: TaskId) -> u64 {
        let live = self.gangs.values().filter(|gang| gang.order.task == task).map(|gang| gang.step);
        live.fold(self.saved_step(task), u64::max)
    }

    /// Devices times seconds that were lost with nodes: the work of their gangs since their last
    /// checkpoints, or their loading, and the time of loading once more.
    pub fn lost_device_s(&self) -> f64 {
        self.lost_device_s
    }

    /// Present nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Attempts that have processes, with the number of processes, and their devices.
    pub fn processes(&self) -> impl Iterator<Item = (AttemptId, usize, Vec<DeviceId>)> + '_ {
        self.gangs.iter().map(|(id, gang)| {
            let all = devices(&gang.order.gang).filter(|one| !gang.lost.contains(&one.node.0));
            (*id, gang.live.len(), all.collect())
        })
    }

    /// The time of the next event, seconds.
    pub fn next_s(&self) -> Option<f64> {
        self.heap.next_s()
    }

    /// Lets time pass; never backwards.
    pub fn wait_until(&mut self, at_s: f64) {
        self.now_s = self.now_s.max(at_s);
    }

    /// Lets the next event happen. Returns the report that reaches the engine by it, if any.
    pub(crate) fn happen(&mut self) -> Option<Event> {
        let (at_s, next) = self.heap.take()?;
        self.wait_until(at_s);
        match next {
            Happening::Tell(event) => return Some(event),
            Happening::Begins(attempt) => self.release(attempt),
            Happening::Turn { attempt, turn } => self.turn(attempt, turn),
            Happening::Fate { attempt, failure } => self.fail(attempt, &failure),
            Happening::Slow { attempt, factor } => self.slow_down(attempt, factor),
            Happening::Stop(attempt) => self.hear_stop(attempt),
            Happening::Ends { attempt, rank, code } => self.rank_ends(attempt, rank, code),
        }
        None
    }

    /// Has the engine told an event at a time.
    pub fn tell(&mut self, at_s: f64, event: Event) {
        let at_s = self.arrives_s(&event, at_s);
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

    /// Takes in a stored record, which may give a number its meaning.
    pub fn stored(&mut self, record: &Record) {
        match record {
            Record::NodeJoined { node, spec, .. } => {
                let named = (spec.name.clone(), spec.gpu_type.clone());
                if node.0 < self.numbered.len() {
                    self.numbered[node.0] = named;
                } else {
                    self.numbered.push(named);
                }
            }
            // The checkpoint of the task that it continues.
            Record::TaskAdded { task, spec } => {
                self.disk.insert(*task, spec.start_step);
                self.early.note(*task, spec);
                self.last_steps.extend(self.own_ends.get(&spec.name).map(|step| (*task, *step)));
                if self.always_fails.0 == spec.name {
                    self.always_fails.1 = Some(*task);
                }
            }
            _ => {}
        }
    }

    /// Nothing goes wrong from now on. Returns the nodes with processes that won't die.
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

    fn save(&mut self, attempt: AttemptId, task: TaskId, step: u64) {
        let before = self.disk.insert(task, step);
        self.damage.note_saved(task, step, before);
        self.history.add(self.now_s, || Fact::Saved { attempt, task, step });
    }

    /// Starts a gang's processes, or fails to start them.
    pub(crate) fn begin(&mut self, order: Order) -> Result<(), LaunchError> {
        self.check_nodes(&order)?;
        let attempt = order.attempt;
        let (gpu_type, group) = (order.gpu_type.clone(), order.group.clone());
        let is_bad = devices(&order.gang).any(|device| self.bad.contains(&device));
        let mut fate = draw(self, &order, &group, &gpu_type, is_bad)?;
        if let Some(TrialOutcome::Measured { step_s, .. }) = &mut fate.outcome
            && self.manners.trial_noise > 0.0
        {
            *step_s *= (self.manners.trial_noise * normal(&mut self.rng)).exp();
        }
        let true_step_s = self.truth.step_s(&group, &order.strategy, &gpu_type);
        let trial_steps = f64::from(self.manners.trial_steps);
        let trial_steps_s = true_step_s.as_ref().map_or(0.0, |step_s| step_s * trial_steps);
        let noise =
            if self.is_hit(Fault::NoisySteps) { self.rng.random_range(0.8..1.25) } else { 1.0 };
        let known = self.truth.groups.get(&group);
        let (load_s, save_s) = known.map_or((1.0, 1.0), |group| (group.load_s, group.save_s));
        let evaluating = known.and_then(|group| group.evaluating);
        let save_s = save_s * fate.save_factor.unwrap_or(1.0);
        let mut gang = LiveGang {
            lost: BTreeSet::new(),
            launched_s: self.now_s,
            live: (0..order.num_ranks).collect(),
            phase: match order.purpose {
                Purpose::Inspection => Phase::Inspecting,
                Purpose::Trial => Phase::Trying,
                Purpose::Train => Phase::Loading,
            },
            turn: 0,
            stops: false,
            is_killed: false,
            load_s,
            step_s: true_step_s.unwrap_or(1.0) * noise * self.pace(&order.gang),
            warmup_s: 0.0,
            save_s,
            block_s: save_s,
            teardown_s: self.manners.teardown_s,
            evaluating,
            beside: 1.0,
            trying: None,
            marks: BTreeSet::new(),
            paces: Paces::default(),
            save_steps: None,
            stop_steps: BTreeMap::new(),
            fails_at: None,
            last_step: self.last_steps.get(&order.task).copied(),
            is_fresh: false,
            look_up_every: self.manners.look_up_every,
            telling: Telling { every_s: self.manners.tell_every_s, ..Telling::default() },
            save_every_s: self.save_every_s,
            step: 0,
            loaded_step: 0,
            since_s: self.now_s,
            saved_s: self.now_s,
            order,
            fate,
        };
        if self.early.lacks_output(gang.order.task) {
            gang.fate.failure = Some((load_s / 2.0, Failure::Early));
        }
        if let Some(costs) = &mut self.recorded {
            let saved_step = self.disk.get(&gang.order.task).copied().unwrap_or(0);
            costs.pace(&mut gang, saved_step, &gpu_type);
        }
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
            Purpose::Trial if gang.trying.is_some() => {
                gang.trying.as_ref().map_or(0.0, |trying| trying.takes_s)
            }
            Purpose::Trial => gang.load_s + self.manners.trial_s + trial_steps_s,
            Purpose::Inspection | Purpose::Train => gang.load_s,
        };
        let is_silent = self.is_silent(&gang);
        self.gangs.insert(attempt, gang);
        self.next_turn(attempt, self.now_s + first_s);
        if is_silent {
            self.stand_still(attempt);
        }
        self.settle_neighbours();
        Ok(())
    }

    /// The number of the node of a name, if the engine has given it a number.
    pub fn number_of(&self, name: &str) -> Option<NodeId> {
        // A node that comes back with devices of another type gets another number.
        self.numbered.iter().rposition(|(numbered, _)| numbered == name).map(NodeId)
    }

    /// A report of an attempt that may be long over.
    pub(crate) fn word_from_the_past(&mut self, attempt: AttemptId) {
        self.hit(Fault::WordFromThePast);
        let report = RankReport::Finished { step: 1_000_000, loss: None };
        self.tell(self.now_s, Event::Reported { attempt, rank: 0, report });
        let last_words = String::new();
        self.tell(self.now_s, Event::RankExited { attempt, rank: 0, code: 0, last_words });
    }
}

/// A standard Normal number (Box and Muller, 1958).
pub(crate) fn normal(rng: &mut impl RngExt) -> f64 {
    let radius = (-2.0 * rng.random_range(f64::MIN_POSITIVE..1.0).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}
