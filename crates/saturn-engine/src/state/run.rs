//! The state of a run as data, and the questions that it answers. How it changes: `apply`.
//!
//! It holds what decisions rest on: tasks, nodes, live attempts, what trials found, the plan in
//! force. What is over and needed by people alone (ended attempts, earlier plans) is not here: a
//! reader of the records keeps that. So the state stays small however long the run is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saturn_core::{Cluster, Gang, Strategy, StrategyKey, TrialOutcome};

use crate::facts::config::{RunConfig, TaskSpec};
use crate::facts::evaluation::{BestEvaluation, Evaluation};
use crate::facts::event::RankFailure;
use crate::facts::ids::{AttemptId, DeviceId, NodeId, TaskId, devices};
use crate::facts::judgement::Judged;
use crate::facts::record::{Purpose, RunEnd, RunPlan, StopReason, TaskEnd};
use crate::knowledge::durations::Warm;
use crate::state::breadth::Breadth;
use crate::state::group::{Group, TrialKey, TrialState};
use crate::state::order::Order;
use crate::state::space::NoSpace;
use crate::state::stage::Stage;

/// What a task is doing.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskStatus {
    /// Not training: for want of a measurement, a plan, its devices, a retry's time.
    Waiting,
    /// Training.
    Running(AttemptId),
    /// Ended.
    Ended(TaskEnd),
}

/// A task and its progress.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskState {
    /// What it is, with the wishes of the moment.
    pub spec: TaskSpec,
    /// Index into [`State::groups`].
    pub group: usize,
    /// What it is doing.
    pub status: TaskStatus,
    /// It is to do nothing until it is taken up again. It may still be running: then it stops.
    pub is_paused: bool,
    /// What the stopper said of it, where it is not to train. It may still be running: then it stops.
    pub judged: Option<Judged>,
    /// The stopper has let it go on after it was held, and it was not launched since.
    pub is_let_go_on: bool,
    /// When it came, seconds.
    pub added_s: f64,
    /// Steps in all; unknown until a trial has found the length of the loader.
    pub steps: Option<u64>,
    /// Finished steps, live.
    pub step: u64,
    /// Finished steps in the newest checkpoint.
    pub checkpoint_step: u64,
    /// Loss of the last of `step`, live.
    pub loss: Option<f64>,
    /// Loss of the last of `checkpoint_step`.
    pub checkpoint_loss: Option<f64>,
    /// Failures since the last new checkpoint that count towards its end.
    pub failures: u32,
    /// No launch before this time, seconds.
    pub not_before_s: f64,
    /// Its last attempt at training met a full disk.
    pub no_space: Option<NoSpace>,
    /// Technique and device count that must not be used again, and why.
    pub excluded: Vec<(StrategyKey, String)>,
    /// Seconds that its last checkpoint took while training waited for it; `None` before the first.
    pub save_s: Option<f64>,
    /// Seconds for which its training stood still for checkpoints, all together.
    pub blocked_s: f64,
    /// What its last evaluation found.
    pub evaluation: Option<Evaluation>,
    /// Its best evaluation, where it says which is that.
    pub best: Option<BestEvaluation>,
    /// Seconds for which its training stood still for evaluations, all together.
    pub evaluating_s: f64,
    /// How many times it was launched to train.
    pub num_attempts: u32,
    /// When it last ended an attempt at training, seconds; 0 before.
    pub trained_until_s: f64,
    /// Its last attempt was killed from outside, under this strategy, and nothing was saved in it.
    pub was_killed: Option<StrategyKey>,
}

impl TaskState {
    /// Whether training has diverged: its last loss is no finite number.
    pub fn has_diverged(&self) -> bool {
        self.loss.is_some_and(|loss| !loss.is_finite())
    }

    /// So many steps are finished, of which no more are lost: its loss is that of the last of them,
    /// as far as it is known. Evaluations of lost steps are forgotten; they are found again.
    pub(crate) fn stands_at(&mut self, step: u64) {
        let told = self.loss.filter(|_| step == self.step);
        let saved = self.checkpoint_loss.filter(|_| step == self.checkpoint_step);
        (self.step, self.loss) = (step, told.or(saved));
        self.evaluation.take_if(|last| last.step > step);
        self.best.take_if(|best| best.evaluation.step > step);
    }
}

/// One launch of a gang that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Its task.
    pub task: TaskId,
    /// What it is for.
    pub purpose: Purpose,
    /// How it runs.
    pub strategy: Arc<Strategy>,
    /// Where; without the nodes of it that have gone.
    pub gang: Gang,
    /// Finished steps at which it stops by itself, where that is before the task's end.
    pub until_step: Option<u64>,
    /// Time of launch, seconds.
    pub launched_s: f64,
    /// Finished steps when it began to train, and the time of that.
    pub started: Option<(u64, f64)>,
    /// When its first step was over, live.
    pub warm: Option<Warm>,
    /// Up to where its steps are on record as measured, live; `None` before the first interval.
    pub recorded: Option<Warm>,
    /// It was asked to stop: why, and when.
    pub stopping: Option<(StopReason, f64)>,
    /// Finished steps, live.
    pub step: u64,
    /// Time at which that step was reported, live, seconds.
    pub stepped_s: f64,
    /// Recent seconds a step, live.
    pub step_s: Option<f64>,
    /// Seconds for which it stood still for checkpoints and evaluations.
    pub blocked_s: f64,
    /// Its newest checkpoint is of this step; `None` where it has written none.
    pub saved_step: Option<u64>,
    /// Time of the last word from any of its ranks, live, seconds.
    pub heard_s: f64,
    /// Ranks whose processes have not been reaped, live.
    pub live_ranks: u32,
    /// The first failure that is not an echo; else the first echo. Live.
    pub failure: Option<RankFailure>,
    /// Ranks that have said that they fail, live.
    pub failed_ranks: BTreeSet<u32>,
    /// When a rank first said that it had lost its peer, live, seconds.
    pub echo_s: Option<f64>,
    /// When it was told to die, live, seconds.
    pub killed_s: Option<f64>,
    /// A node of its gang has gone: the others' ranks are to end too, and nobody failed. Live.
    pub is_lost: bool,
    /// It said that it did what it was launched for, live.
    pub completed: bool,
    /// It said that its task is trained, with all its steps or without, live.
    pub says_trained: bool,
}

/// A device of the pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceState {
    /// The attempt that holds it.
    pub held_by: Option<AttemptId>,
    /// Why it is not used, where it is set aside.
    pub set_aside: Option<String>,
    /// Tasks that failed on it as a machine's fault makes them fail, one entry a failure, since a
    /// task last did well on it.
    pub suspects: Vec<TaskId>,
}

/// A node of the pool, at present or once.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeState {
    /// It is in the pool.
    pub is_there: bool,
    /// Its devices.
    pub devices: Vec<DeviceState>,
}

/// Open trials by type of device and width, widest first: group, then technique.
pub(crate) type OpenTrials = BTreeMap<(String, Reverse<u32>), BTreeSet<(usize, String)>>;

/// All that is known of a run and still matters.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// What the run was told at its start; memory limits and kind of device are the present ones.
    pub config: RunConfig,
    /// Every node that ever joined, by [`NodeId`]. Those of `nodes` that are not there are gone.
    pub cluster: Cluster,
    /// What is known of each of them.
    pub nodes: Vec<NodeState>,
    /// By [`TaskId`].
    pub tasks: Vec<TaskState>,
    /// Tasks that perform alike.
    pub groups: Vec<Group>,
    /// Attempts that have not ended.
    pub attempts: BTreeMap<AttemptId, Attempt>,
    /// The plan in force, as it was adopted. Which of its places are still open: `open_places`.
    pub plan: Option<Arc<RunPlan>>,
    /// Plans that have been in force, this one included.
    pub num_plans: usize,
    /// Grows with everything that a plan rests on but progress: tasks that come, go, pause or change
    /// their wishes, nodes and devices, exclusions, measurements.
    pub version: u64,
    /// No more tasks will come.
    pub is_closed: bool,
    /// The person asked to stop; `true`: at once.
    pub interrupted: Option<bool>,
    /// The run has ended.
    pub ended: Option<RunEnd>,
    /// Time of the last record, seconds.
    pub now_s: f64,
    /// Tasks that have not ended.
    pub(crate) open_tasks: BTreeSet<TaskId>,
    /// Device-seconds that trials have taken.
    pub trials_s: f64,
    /// Attempts that ended through no fault of their task.
    pub(crate) num_lost: u32,
    /// Number of the next attempt.
    pub(crate) next_attempt: u64,
    pub(crate) group_by_key: BTreeMap<String, usize>,
    pub(crate) task_by_name: BTreeMap<String, TaskId>,
    pub(crate) open_trials: OpenTrials,
    /// Groups whose inspection is to be run, by index into `groups`.
    pub(crate) to_inspect: BTreeSet<usize>,
    /// Of the plan in force.
    pub(crate) order: Order,
    /// The tasks that wait for each task, or once did.
    pub(crate) followers: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// Types of devices in the pool, each with the devices of its largest node.
    pub(crate) breadths: Vec<Breadth>,
    /// The same of the devices that can be used now. Kept, since every task is held against it at
    /// every plan: counted anew each time, that would be tasks times devices.
    pub(crate) usable_breadths: Vec<Breadth>,
    /// Of each type of device, the devices of the largest node that the run has had.
    pub(crate) node_widths: BTreeMap<String, u32>,
}

impl State {
    /// The state of a run that has just begun: no nodes, no tasks.
    pub fn new(config: RunConfig) -> Self {
        Self {
            config,
            cluster: Cluster::default(),
            nodes: Vec::new(),
            tasks: Vec::new(),
            groups: Vec::new(),
            attempts: BTreeMap::new(),
            plan: None,
            num_plans: 0,
            version: 0,
            is_closed: false,
            interrupted: None,
            ended: None,
            now_s: 0.0,
            open_tasks: BTreeSet::new(),
            trials_s: 0.0,
            num_lost: 0,
            next_attempt: 1,
            group_by_key: BTreeMap::new(),
            task_by_name: BTreeMap::new(),
            open_trials: OpenTrials::new(),
            to_inspect: BTreeSet::new(),
            order: Order::default(),
            followers: BTreeMap::new(),
            breadths: Vec::new(),
            usable_breadths: Vec::new(),
            node_widths: BTreeMap::new(),
        }
    }

    /// A task's state.
    pub fn task(&self, id: TaskId) -> &TaskState {
        &self.tasks[id.0]
    }

    /// A task's name.
    pub fn name(&self, id: TaskId) -> &str {
        &self.tasks[id.0].spec.name
    }

    /// The task of that name.
    pub fn task_named(&self, name: &str) -> Option<TaskId> {
        self.task_by_name.get(name).copied()
    }

    /// Ids of all tasks.
    pub fn task_ids(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..self.tasks.len()).map(TaskId)
    }

    /// The group of a task.
    pub fn group_of(&self, task: TaskId) -> &Group {
        &self.groups[self.task(task).group]
    }

    /// Where a task stands.
    pub fn stage(&self, task: TaskId) -> Stage {
        let state = self.task(task);
        match &state.status {
            TaskStatus::Ended(TaskEnd::Done { .. }) if state.has_diverged() => Stage::Diverged,
            TaskStatus::Ended(TaskEnd::Done { .. }) => Stage::Done,
            TaskStatus::Ended(TaskEnd::Failed { .. }) => Stage::Failed,
            TaskStatus::Ended(TaskEnd::Cancelled { .. }) => Stage::Cancelled,
            TaskStatus::Ended(TaskEnd::Stopped { .. }) => Stage::Stopped,
            _ if state.is_paused => Stage::Paused,
            _ if state.held().is_some() => Stage::Held,
            TaskStatus::Running(_) => Stage::Running,
            TaskStatus::Waiting if self.is_measured(task) => Stage::Waiting,
            TaskStatus::Waiting => self.group_of(task).stage(),
        }
    }

    /// Whether a task has ended.
    pub fn has_ended(&self, task: TaskId) -> bool {
        matches!(self.task(task).status, TaskStatus::Ended(_))
    }

    /// Whether it is known how long a task takes under some strategy.
    pub fn is_measured(&self, task: TaskId) -> bool {
        self.task(task).steps.is_some()
            && self
                .group_of(task)
                .trials
                .values()
                .any(|trial| matches!(trial.outcome, Some(TrialOutcome::Measured { .. })))
    }

    /// The attempt in which a task trains.
    pub fn attempt_of(&self, task: TaskId) -> Option<(AttemptId, &Attempt)> {
        let TaskStatus::Running(id) = self.task(task).status else { return None };
        Some((id, self.attempts.get(&id)?))
    }

    /// Tasks that train now, with their attempts.
    pub fn running(&self) -> impl Iterator<Item = (TaskId, &Attempt)> {
        self.attempts
            .iter()
            .filter(|(id, attempt)| {
                attempt.purpose == Purpose::Train
                    && self.task(attempt.task).status == TaskStatus::Running(**id)
            })
            .map(|(_, attempt)| (attempt.task, attempt))
    }

    /// The tasks that must be done before a task starts and are not.
    pub fn waits_for(&self, task: TaskId) -> impl Iterator<Item = TaskId> + '_ {
        self.task(task).spec.wishes.after.iter().copied().filter(|before| {
            !matches!(self.task(*before).status, TaskStatus::Ended(TaskEnd::Done { .. }))
        })
    }

    /// The type of a node's devices.
    pub fn gpu_type(&self, node: NodeId) -> &str {
        self.cluster.nodes.get(node.0).map_or("", |node| node.gpu_type.as_str())
    }

    /// The type of a gang's devices.
    pub fn gang_type(&self, gang: &Gang) -> &str {
        gang.first().map_or("", |placement| self.gpu_type(NodeId(placement.node)))
    }

    /// What is known of a device; `None` where there is none of that number.
    pub fn device(&self, id: DeviceId) -> Option<&DeviceState> {
        self.nodes.get(id.node.0)?.devices.get(id.device as usize)
    }

    /// Whether a device is in the pool and not set aside.
    pub fn is_usable(&self, id: DeviceId) -> bool {
        let is_there = self.nodes.get(id.node.0).is_some_and(|node| node.is_there);
        is_there && self.device(id).is_some_and(|device| device.set_aside.is_none())
    }

    /// Whether a device is usable and held by no attempt.
    pub fn is_free(&self, id: DeviceId) -> bool {
        self.is_usable(id) && self.device(id).is_some_and(|device| device.held_by.is_none())
    }

    /// Whether all of a gang's devices are usable.
    pub fn can_hold(&self, gang: &Gang) -> bool {
        devices(gang).all(|device| self.is_usable(device))
    }

    /// Usable devices of a node, ascending.
    pub fn usable_devices(&self, node: NodeId) -> impl Iterator<Item = u32> + '_ {
        let state = self.nodes.get(node.0).filter(|node| node.is_there);
        state.into_iter().flat_map(|node| {
            let numbered = (0u32..).zip(&node.devices);
            numbered.filter(|(_, one)| one.set_aside.is_none()).map(|(device, _)| device)
        })
    }

    /// Ids of the nodes in the pool.
    pub fn present_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_there).map(|(id, _)| NodeId(id))
    }

    /// Usable devices in all.
    pub fn num_devices(&self) -> usize {
        self.present_nodes().map(|node| self.usable_devices(node).count()).sum()
    }

    /// Trials that have no outcome and are to be run.
    pub fn num_open_trials(&self) -> usize {
        self.open_trials.values().map(BTreeSet::len).sum()
    }

    /// Trials that have no outcome and are to be run, each with its group (an index into
    /// [`State::groups`]).
    pub fn open_trials(&self) -> impl Iterator<Item = (usize, TrialKey)> + '_ {
        self.open_trials.iter().flat_map(|((gpu_type, Reverse(gpus)), open)| {
            open.iter().map(move |(group, technique)| {
                let strategy = StrategyKey { technique: technique.clone(), gpus: *gpus };
                (*group, TrialKey { strategy, gpu_type: gpu_type.clone() })
            })
        })
    }

    /// Whether a trial of a group has no outcome and is to be run.
    pub fn is_open_trial(&self, group: usize, key: &TrialKey) -> bool {
        let on = (key.gpu_type.clone(), Reverse(key.strategy.gpus));
        let one = (group, key.strategy.technique.clone());
        self.open_trials.get(&on).is_some_and(|open| open.contains(&one))
    }

    /// Number of the next attempt.
    pub(crate) fn next_attempt(&self) -> AttemptId {
        AttemptId(self.next_attempt)
    }

    /// What is known of a strategy for a task on a type of device.
    pub fn trial_of(
        &self,
        task: TaskId,
        strategy: &Strategy,
        gpu_type: &str,
    ) -> Option<&TrialState> {
        self.group_of(task).trial(strategy, gpu_type)
    }
}

impl Attempt {
    /// Whether it was told to die.
    pub fn is_dying(&self) -> bool {
        self.killed_s.is_some()
    }

    /// Its devices.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        devices(&self.gang)
    }
}
