//! The judge's memory.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Gang, Inspection, Strategy, StrategyKey};
use saturn_engine::{
    AttemptEnd, AttemptId, DeviceId, FailureKind, Place, Purpose, RankReport, Ruling, RunConfig,
    RunEnd, TaskEnd, TaskId, devices,
};

use crate::driving::seam::Violation;
use crate::judge::duty::Duty;
use crate::judge::outside::Outside;
use crate::judge::recovery::Failures;

/// A task.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct TaskBook {
    pub(super) name: String,
    pub(super) group: String,
    pub(super) gpu_range: Option<Vec<u32>>,
    pub(super) steps: Option<u64>,
    pub(super) can_resume: bool,
    pub(super) end: Option<TaskEnd>,
    pub(super) is_paused: bool,
    /// Whose it is, in a pool of several people.
    pub(super) owner: Option<u32>,
    /// The process that would start its ranks is not there.
    pub(super) is_owner_away: bool,
    /// When a plan last moved it, seconds.
    pub(super) moved_s: Option<f64>,
    /// The last ruling of its stopper.
    pub(super) ruling: Ruling,
    pub(super) release_s: f64,
    pub(super) after: Vec<TaskId>,
    pub(super) not_before_s: f64,
    pub(super) excluded: BTreeSet<StrategyKey>,
    /// Steps of its checkpoint, by its records.
    pub(super) checkpoint: u64,
    /// Steps of its checkpoint, in the world.
    pub(super) on_disk: u64,
    /// Steps of the furthest of its checkpoints that were damaged.
    pub(super) damaged: u64,
    /// Failures that count since its last new checkpoint, at most.
    pub(super) failures: u32,
    /// Its functions have worked: a trial has measured with them, or it was launched to train.
    pub(super) has_worked: bool,
    /// Its functions have raised in an inspection or trial before the tasks that it comes after were
    /// done.
    pub(super) raised_early: bool,
    /// How its attempts at training failed.
    pub(super) failed: Failures,
}

impl TaskBook {
    /// The steps of its checkpoint are told. They may be fewer than before if that was damaged.
    pub(super) fn has_checkpoint(&mut self, step: u64) {
        if step > self.checkpoint || self.checkpoint <= self.damaged {
            self.checkpoint = step;
        }
    }

    /// Its stopper rules. A ruling to end is final.
    pub(super) fn judged(&mut self, ruling: Ruling) {
        if self.ruling != Ruling::Stop {
            self.ruling = ruling;
        }
    }
}

/// An attempt.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct AttemptBook {
    pub(super) task: TaskId,
    pub(super) purpose: Purpose,
    pub(super) strategy: Strategy,
    pub(super) gang: Gang,
    pub(super) until_step: Option<u64>,
    pub(super) is_performed: bool,
    pub(super) launch_failed: bool,
    pub(super) live: BTreeSet<u32>,
    pub(super) has_begun: bool,
    /// Finished steps in the checkpoint that it has loaded.
    pub(super) loaded_step: Option<u64>,
    /// It was told to stop before it had processes.
    pub(super) stopped_unstarted: bool,
    /// Its task's functions raised, before the tasks that it comes after were done.
    pub(super) was_early: bool,
    pub(super) is_stopping: bool,
    /// As a trial: the step at which it waits for a word.
    pub(super) waits_at: Option<u64>,
    /// It has reported that, once. A further report is an echo.
    pub(super) has_waited: bool,
    /// It was a trial, and goes on as training.
    pub(super) is_let_on: bool,
    pub(super) stop_performed: bool,
    pub(super) until_due: bool,
    pub(super) is_killed: bool,
    pub(super) end: Option<AttemptEnd>,
    pub(super) is_lost: bool,
    /// Its driver has died, and its ranks go on.
    pub(super) outlives: bool,
    pub(super) num_ranks: u32,
    /// The number of its ranks' ends that the engine was told of.
    pub(super) num_exits: u32,
    /// The first failure of a rank that the engine was told of, without echoes.
    pub(super) cause: Option<FailureKind>,
    /// How the rank died that told the engine of its failure by its death: code and last words.
    pub(super) death: Option<(i32, String)>,
    /// It was given up while processes of it were left, as far as the engine knew.
    pub(super) is_left: bool,
    /// The gang is on several nodes, and the engine was told that a node of the gang has gone.
    pub(super) has_lost_node: bool,
    /// Ranks that have said that they fail.
    pub(super) failed_ranks: BTreeSet<u32>,
    /// Reports of its rank 0 about its trial.
    pub(super) said: Vec<RankReport>,
}

impl AttemptBook {
    /// The step from which it trains, if it has said so.
    pub(super) fn began_at(&self) -> Option<u64> {
        let mut steps = self.said.iter().filter_map(|report| match report {
            RankReport::Started { step, .. } => Some(*step),
            _ => None,
        });
        steps.next().or(self.waits_at).or(self.is_let_on.then_some(0))
    }

    /// Whether it has saved steps that it has trained.
    pub(super) fn has_saved_more(&self) -> bool {
        let Some(from) = self.began_at() else { return false };
        let is_more = |report: &RankReport| matches!(report, RankReport::Checkpoint { step, .. } if *step > from);
        self.purpose == Purpose::Train && !self.is_let_on && self.said.iter().any(is_more)
    }
}

/// The whole memory.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Books {
    pub(super) config: RunConfig,
    pub(super) now_s: f64,
    pub(super) violations: Vec<Violation>,
    pub(super) tasks: Vec<TaskBook>,
    pub(super) attempts: BTreeMap<AttemptId, AttemptBook>,
    pub(super) newest: Option<AttemptId>,
    /// Nodes by number: name, type, devices; 0 devices if it is away.
    pub(super) nodes: Vec<(String, String, u32)>,
    /// Devices of each node, now or when it was last there.
    pub(super) node_gpus: Vec<u32>,
    /// Devices of each node that exists in the world.
    pub(super) machines: BTreeMap<String, u32>,
    pub(super) set_aside: BTreeSet<DeviceId>,
    /// People whose agents are not there, as the launcher has told.
    pub(super) away: BTreeSet<u32>,
    pub(super) outside: Outside,
    /// Who uses each device in the world.
    pub(super) used: BTreeMap<DeviceId, AttemptId>,
    pub(super) plan: Option<Vec<Place>>,
    pub(super) is_closed: bool,
    pub(super) ended: Option<RunEnd>,
    pub(super) duties: Vec<Duty>,
    pub(super) asked: Vec<saturn_engine::Command>,
    pub(super) open_solves: BTreeSet<u64>,
    pub(super) newest_solve: u64,
    /// Strategies that are measured, by group.
    pub(super) measured: BTreeMap<String, BTreeSet<(StrategyKey, String)>>,
    /// Strategies that were ruled out, by inspected group.
    pub(super) ruled_out: BTreeMap<String, BTreeSet<(StrategyKey, String)>>,
    /// How often the inspection of a group's model has failed since the driver began.
    pub(super) failed_looks: BTreeMap<String, u32>,
    /// The finding of each inspected group.
    pub(super) looked_at: BTreeMap<String, Inspection>,
    /// Tasks that failed on each device in a way that a machine's fault could cause, since a task
    /// did well on it.
    pub(super) suspects: BTreeMap<DeviceId, Vec<TaskId>>,
    /// Tasks for whose failures devices were set aside.
    pub(super) accusers: BTreeSet<TaskId>,
    /// Tasks whose failures in a row had these devices set aside.
    pub(super) accused: Vec<(BTreeSet<TaskId>, BTreeSet<DeviceId>)>,
    /// Tasks have just had devices of one node set aside. The next records may set aside devices of
    /// other nodes for the same tasks.
    pub(super) accuses: bool,
    /// In this decision devices are taken back because a task can run on no others.
    pub(super) returns_for_want: bool,
    /// Devices that may be taken back in this decision.
    pub(super) may_return: BTreeSet<DeviceId>,
    /// Until when each group is neither inspected nor tried, after failures of Saturn's own.
    pub(super) rests_until_s: BTreeMap<String, f64>,
    /// A person has asked the run to stop.
    pub(super) is_interrupted: bool,
    /// What tasks were told in this decision.
    pub(super) noted: Vec<(TaskId, String)>,
    /// The driver has just said that the disk has room again.
    pub(super) has_space: bool,
    /// Attempts that were killed, and have processes that outlived the last driver.
    pub(super) undead: BTreeSet<AttemptId>,
    /// The same of the driver that dies next.
    pub(super) outlive: BTreeSet<AttemptId>,
    /// What trials have shown of each group, measured or not.
    pub(super) tried: BTreeMap<String, BTreeSet<(StrategyKey, String)>>,
    /// Groups of which an inspection or a trial has told how long a pass over the data is.
    pub(super) known_lengths: BTreeSet<String>,
    /// What a search has said that it did not try.
    pub(super) not_tried: String,
}

impl Books {
    pub(super) fn new(config: &RunConfig) -> Self {
        Self {
            config: config.clone(),
            now_s: 0.0,
            violations: Vec::new(),
            tasks: Vec::new(),
            attempts: BTreeMap::new(),
            newest: None,
            nodes: Vec::new(),
            node_gpus: Vec::new(),
            machines: BTreeMap::new(),
            set_aside: BTreeSet::new(),
            away: BTreeSet::new(),
            outside: Outside::default(),
            used: BTreeMap::new(),
            plan: None,
            is_closed: false,
            ended: None,
            duties: Vec::new(),
            asked: Vec::new(),
            open_solves: BTreeSet::new(),
            newest_solve: 0,
            measured: BTreeMap::new(),
            ruled_out: BTreeMap::new(),
            failed_looks: BTreeMap::new(),
            looked_at: BTreeMap::new(),
            suspects: BTreeMap::new(),
            accusers: BTreeSet::new(),
            accused: Vec::new(),
            accuses: false,
            returns_for_want: false,
            may_return: BTreeSet::new(),
            rests_until_s: BTreeMap::new(),
            is_interrupted: false,
            noted: Vec::new(),
            has_space: false,
            undead: BTreeSet::new(),
            outlive: BTreeSet::new(),
            tried: BTreeMap::new(),
            known_lengths: BTreeSet::new(),
            not_tried: String::new(),
        }
    }

    pub(super) fn wrong(&mut self, rule: &'static str, what: impl std::fmt::Display) {
        let what = format!("at {:.3} s: {what}", self.now_s);
        self.violations.push(Violation { rule, what });
    }

    /// Whether a gang is what its strategy needs, on devices that may be used.
    pub(super) fn is_sound(&self, gang: &Gang, strategy: &Strategy) -> bool {
        let all: BTreeSet<DeviceId> = devices(gang).collect();
        let types: BTreeSet<&str> = gang
            .iter()
            .filter_map(|part| self.nodes.get(part.node))
            .map(|(_, gpu_type, _)| gpu_type.as_str())
            .collect();
        let is_wide = types.iter().all(|gpu_type| strategy.gpus > self.width_of(gpu_type));
        let most_nodes = if is_wide { self.config.policy.max_nodes as usize } else { 1 };
        let nodes: BTreeSet<usize> = gang.iter().map(|part| part.node).collect();
        (1..=most_nodes).contains(&gang.len())
            && nodes.len() == gang.len()
            && all.len() == strategy.gpus as usize
            && devices(gang).count() == all.len()
            && types.len() == 1
            && all.iter().all(|device| {
                let gpus = self.nodes.get(device.node.0).map_or(0, |(_, _, gpus)| *gpus);
                device.device < gpus && !self.set_aside.contains(device)
            })
    }

    /// The devices of the largest node of a type so far.
    pub(super) fn width_of(&self, gpu_type: &str) -> u32 {
        let nodes = self.nodes.iter().zip(&self.node_gpus);
        let of_type = nodes.filter(|((_, of, _), _)| of == gpu_type);
        of_type.map(|(_, gpus)| *gpus).max().unwrap_or(0)
    }
}
