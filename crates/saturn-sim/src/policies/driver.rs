//! The virtual cluster as a policy uses it: launch a task, stop it at a checkpoint, try a strategy,
//! wait until a gang has ended or jobs have arrived.
//!
//! The driver decides nothing. It counts free devices and finished steps, by the reports of the
//! world's processes.

mod posed;
mod time;
mod trials;

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Gang, Placement};
use saturn_engine::{AttemptId, Launcher, NodeId, Purpose, Record, TaskId};

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::cases::outcome::{Held, Outcome, Span};
use crate::cases::script::Script;
use saturn_solver::Options;

use crate::world::cluster::World;
use crate::world::gang::Order;

/// A live gang.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) job: usize,
    pub(super) way: Way,
    pub(super) gang: Gang,
    held: Held,
    pub(super) launched_s: f64,
    ready_s: Option<f64>,
    /// Finished steps, and when they were reported.
    step: u64,
    told_s: f64,
    num_ranks: u32,
}

impl Live {
    /// Seconds until it has trained its task to the end, by the beliefs.
    pub(super) fn time_left_s(&self, case: &Case, now_s: f64) -> f64 {
        let (load_s, save_s) = case.load_and_save_s(self.job);
        let left_s = case.jobs[self.job].steps.saturating_sub(self.step) as f64 * self.way.step_s;
        let steps = case.jobs[self.job].steps;
        let evaluations_s = case.evaluations_s(self.job, self.step, steps);
        let told_s = self.ready_s.map_or(self.launched_s + load_s, |_| self.told_s);
        (told_s + left_s + evaluations_s + save_s - now_s).max(0.0)
    }
}

/// A task's state.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// Whether it has arrived.
    has_arrived: bool,
    /// Finished steps in its newest checkpoint.
    pub(super) step: u64,
    /// Whether its gang has reported that it is finished.
    is_finished: bool,
    /// When it was done, seconds.
    pub(super) ended_s: Option<f64>,
    /// Whether a gang trains it.
    pub(super) is_live: bool,
}

/// The virtual cluster in a policy's hands.
pub(super) struct Driver<'a> {
    pub(super) case: &'a Case,
    policy: &'static str,
    is_stopped: &'a dyn Fn() -> bool,
    world: World,
    free: Vec<BTreeSet<u32>>,
    live: BTreeMap<AttemptId, Live>,
    num_attempts: u64,
    jobs: Vec<Progress>,
    spans: Vec<Span>,
    /// Jobs in the order of arrival.
    by_arrival: Vec<usize>,
    script: Script,
    /// When the policy counts as one that never ends, seconds.
    give_up_s: f64,
    /// Nodes that are lost.
    away: BTreeSet<usize>,
    /// Whether jobs have arrived, or nodes were lost or came back, since the policy last asked.
    has_changed: bool,
    /// Strategies to be measured once the job has arrived.
    wanted: Vec<(usize, Way)>,
}

/// The world of a case, with its nodes and without tasks.
fn world(case: &Case) -> World {
    let mut world = case.calm(false).world(&case.nodes, case.truth.clone());
    for (node, spec) in case.nodes.iter().enumerate() {
        world.stored(&Record::NodeJoined {
            node: NodeId(node),
            spec: spec.clone(),
            host_memory_bytes: None,
        });
    }
    world.last_steps = case.last_steps(TaskId);
    world.neighbours = case.neighbours;
    world
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        policy: &'static str,
        case: &'a Case,
        is_stopped: &'a dyn Fn() -> bool,
    ) -> Self {
        let mut driver = Self {
            case,
            policy,
            is_stopped,
            world: world(case),
            free: case.nodes.iter().map(|node| (0..node.gpus).collect()).collect(),
            live: BTreeMap::new(),
            num_attempts: 0,
            jobs: vec![Progress::default(); case.jobs.len()],
            spans: Vec::new(),
            by_arrival: case.by_arrival(),
            script: Script::of(case),
            give_up_s: case.give_up_s(),
            away: BTreeSet::new(),
            has_changed: false,
            wanted: Vec::new(),
        };
        driver.change();
        driver
    }

    pub(super) fn now_s(&self) -> f64 {
        self.world.now_s()
    }

    pub(super) fn job(&self, job: usize) -> Progress {
        self.jobs[job]
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &Live> {
        self.live.values()
    }

    /// Whether jobs have arrived, or nodes were lost or came back, since the last call.
    pub(super) fn takes_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    pub(super) fn is_done(&self) -> bool {
        self.jobs.iter().all(|job| job.ended_s.is_some())
    }

    /// Jobs that have arrived and are neither done nor in training, in the order of arrival.
    pub(super) fn waiting(&self) -> Vec<usize> {
        let is_waiting = |job: &usize| {
            let job = &self.jobs[*job];
            job.has_arrived && job.ended_s.is_none() && !job.is_live
        };
        self.by_arrival.iter().copied().filter(is_waiting).collect()
    }

    /// Whether every device of a gang is free.
    pub(super) fn is_free(&self, gang: &Gang) -> bool {
        gang.iter().all(|part| {
            let free = self.free.get(part.node);
            free.is_some_and(|free| part.devices.iter().all(|device| free.contains(device)))
        })
    }

    /// Free devices of a node.
    pub(super) fn num_free(&self, node: usize) -> u32 {
        self.free.get(node).map_or(0, |free| u32::try_from(free.len()).unwrap_or(u32::MAX))
    }

    /// Nodes on which a gang of that many devices may start now, the node with the fewest free
    /// devices first.
    pub(super) fn nodes_for(&self, gpus: u32) -> Vec<usize> {
        let mut nodes: Vec<usize> =
            (0..self.free.len()).filter(|node| self.num_free(*node) >= gpus).collect();
        nodes.sort_by_key(|node| (self.num_free(*node), *node));
        nodes
    }

    /// The first free devices of a node.
    pub(super) fn gang_on(&self, node: usize, gpus: u32) -> Gang {
        let devices = self.free[node].iter().copied().take(gpus as usize).collect();
        vec![Placement { node, devices }]
    }

    /// Trains a job from its newest checkpoint on, to its end or to a step.
    pub(super) fn launch(
        &mut self,
        job: usize,
        way: Way,
        gang: Gang,
        until_step: Option<u64>,
    ) -> Result<(), PolicyError> {
        self.jobs[job].is_live = true;
        self.begin(job, way, gang, until_step, Held::Training)
    }

    fn begin(
        &mut self,
        job: usize,
        way: Way,
        gang: Gang,
        until_step: Option<u64>,
        held: Held,
    ) -> Result<(), PolicyError> {
        if !self.is_free(&gang) {
            return Err(self.stuck("it launches on devices that are not free"));
        }
        let attempt = AttemptId(self.num_attempts);
        self.num_attempts += 1;
        let spec = &self.case.jobs[job];
        let order = Order {
            attempt,
            task: TaskId(job),
            group: spec.group.clone(),
            gpu_type: self.case.gpu_type().to_owned(),
            purpose: if held == Held::Trial { Purpose::Trial } else { Purpose::Train },
            strategy: way.strategy(),
            asked: Vec::new(),
            gang: gang.clone(),
            steps: Some(spec.steps),
            until_step,
            num_ranks: way.gpus,
        };
        if let Err(error) = self.world.begin(order) {
            return Err(self.stuck(&error.error));
        }
        for part in &gang {
            for device in &part.devices {
                self.free[part.node].remove(device);
            }
        }
        let now_s = self.now_s();
        let (num_ranks, step) = (way.gpus, self.jobs[job].step);
        let live = Live {
            job,
            way,
            gang,
            held,
            launched_s: now_s,
            ready_s: None,
            step,
            told_s: now_s,
            num_ranks,
        };
        self.live.insert(attempt, live);
        Ok(())
    }

    /// Has every gang train its job to the end.
    pub(super) fn train_to_the_end(&mut self) {
        for attempt in self.live.keys() {
            self.world.until(*attempt, None);
        }
    }

    /// Stops gangs at checkpoints, and waits until they have ended.
    pub(super) fn stop(&mut self, is_it: impl Fn(&Live) -> bool) -> Result<(), PolicyError> {
        let all = self.live.iter().filter(|(_, live)| is_it(live));
        let attempts: Vec<AttemptId> = all.map(|(attempt, _)| *attempt).collect();
        for attempt in &attempts {
            self.world.stop(*attempt);
        }
        while attempts.iter().any(|attempt| self.live.contains_key(attempt)) {
            self.wait_once(f64::INFINITY)?;
        }
        Ok(())
    }

    /// The options of a solve, with as many moves as `saturn` has for planning again unless it is
    /// the first solve: nothing has been trained.
    pub(super) fn short_unless_first(&self, options: &Options) -> Options {
        let is_first = self.jobs.iter().all(|job| job.step == 0 && !job.is_live);
        let max_moves = if is_first { options.max_moves } else { Some(self.case.moves.again) };
        Options { max_moves, ..options.clone() }
    }

    /// Jobs that have arrived, in the order of arrival.
    pub(super) fn arrived(&self) -> Vec<usize> {
        self.by_arrival.iter().copied().filter(|job| self.jobs[*job].has_arrived).collect()
    }

    /// Each gang that trains or has trained: its job, its devices, and from when to when it has held
    /// them, seconds.
    pub(super) fn held(&self) -> impl Iterator<Item = (usize, u32, f64, f64)> {
        let now_s = self.now_s();
        let over = self.spans.iter().filter(|span| span.held == Held::Training);
        let over = over.map(|span| (span.job, span.gpus, span.launched_s, span.ended_s));
        let live = self.live.values();
        over.chain(live.map(move |live| (live.job, live.way.gpus, live.launched_s, now_s)))
    }

    pub(super) fn stuck(&self, reason: &str) -> PolicyError {
        PolicyError::Stuck { policy: self.policy, reason: reason.to_owned() }
    }

    /// The outcome, once every job is done.
    pub(super) fn outcome(self) -> Result<Outcome, PolicyError> {
        let ends_s: Option<Vec<f64>> = self.jobs.iter().map(|job| job.ended_s).collect();
        match ends_s {
            Some(ends_s) => {
                let arrives_s = self.case.jobs.iter().map(|job| job.arrives_s).collect();
                Ok(Outcome { spans: self.spans, arrives_s, ends_s })
            }
            None => Err(self.stuck("a task is not done")),
        }
    }
}
