//! The state of a run: its tasks, groups, nodes, attempts and plan. How it changes: the room
//! `changes`.
//!
//! It holds what decisions depend on: tasks, nodes, live attempts, outcomes of trials, and the plan
//! in force. Ended attempts and earlier plans, which only people need, are not here: a reader of
//! the records keeps those. So the state stays small however long the run is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saturn_core::{Cluster, Strategy, TrialOutcome};

use crate::facts::config::RunConfig;
use crate::facts::ids::{AttemptId, TaskId};
use crate::facts::plan::RunPlan;
use crate::facts::record::{Purpose, RunEnd, TaskEnd};
use crate::facts::sharing::Uid;
use crate::state::attempt::Attempt;
use crate::state::breadth::Breadth;
use crate::state::device::NodeState;
use crate::state::group::Group;
use crate::state::lesson::Offsets;
use crate::state::order::Order;
use crate::state::people::Person;
use crate::state::soon_free::SoonFree;
use crate::state::space::NoSpace;
use crate::state::stage::Stage;
use crate::state::task::{TaskState, TaskStatus};
use crate::state::trial::TrialState;

/// How often attempts are assumed to fail before any has failed: once a day. The reason may be a
/// driver that is killed, a machine that restarts or a device that is lost. Large data centres
/// report a failure in 5.8 years of one GPU (Llama 3, 2024); machines that people share fare worse.
const ASSUMED_FAILURE_EVERY_S: f64 = 86_400.0;

/// Open trials by type of device and width, widest first: group, then technique.
pub(crate) type OpenTrials = BTreeMap<(String, Reverse<u32>), BTreeSet<(usize, String)>>;

/// All that the engine knows of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// What the run was told at its start; memory limits and kind of device are the present ones.
    pub config: RunConfig,
    /// Every node that ever joined, by [`NodeId`](crate::NodeId). `nodes` says which of them are
    /// gone.
    pub cluster: Cluster,
    /// The state of each node, by [`NodeId`](crate::NodeId).
    pub nodes: Vec<NodeState>,
    /// The state of each task, by [`TaskId`].
    pub tasks: Vec<TaskState>,
    /// Tasks that perform alike.
    pub groups: Vec<Group>,
    /// Attempts that have not ended.
    pub attempts: BTreeMap<AttemptId, Attempt>,
    /// The inspections and trials among them.
    pub(crate) measuring: BTreeSet<AttemptId>,
    /// From when to when the inspection that ended last was young, seconds.
    pub(crate) last_inspection: Option<(f64, f64)>,
    /// The plan in force, as it was adopted. Which of its places are still open: `open_places`.
    pub plan: Option<Arc<RunPlan>>,
    /// Plans that have been in force, this one included.
    pub num_plans: usize,
    /// Grows with every change on which plans depend, except progress: tasks that come, go, pause
    /// or change their wishes, nodes and devices, exclusions, measurements.
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
    /// Groups in whose trials functions have raised, by index into `groups`: those trials come last.
    pub(crate) have_raised: BTreeSet<usize>,
    /// How much slower techniques are, as the groups of `learns_from` show.
    pub(crate) offsets: Arc<Offsets>,
    /// The groups that last learnt from one another.
    pub(crate) learns_from: Vec<usize>,
    /// How many nodes have room for trials.
    pub(crate) soon_free: SoonFree,
    /// The order of the plan in force, by task and by device.
    pub(crate) order: Order,
    /// The tasks that wait for each task, or once did.
    pub(crate) followers: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// Types of devices in the pool, each with the devices of its largest node.
    pub(crate) breadths: Vec<Breadth>,
    /// The same for the devices that can be used now. It is kept because every plan compares every
    /// task with it: a count for each task would cost tasks times devices.
    pub(crate) usable_breadths: Vec<Breadth>,
    /// For each type of device, how many devices the largest node has that the run has had.
    pub(crate) node_widths: BTreeMap<String, u32>,
    /// The largest host memory of a node of each type, bytes, where every node of the type has a
    /// number of its own. It is kept for the same reason as `usable_breadths`.
    pub(crate) host_memory_of_types: BTreeMap<String, u64>,
    /// The people whose tasks the run has had. It is kept up whether or not they share the run.
    pub(crate) people: BTreeMap<Uid, Person>,
    /// Their login names, by their numbers on the machine.
    pub(crate) logins: BTreeMap<u32, String>,
    /// The people whose ranks nobody can start now, by their numbers on the machine.
    pub(crate) away: BTreeSet<u32>,
    /// Tasks that wait for host memory, numbered in the order in which they came. No record says so, and
    /// a driver that takes over doesn't know it.
    pub memory_waiters: BTreeMap<TaskId, u64>,
}

impl State {
    /// The state of a run that has just begun: no nodes, no tasks.
    pub fn new(config: RunConfig) -> Self {
        let offsets = Arc::new(Offsets::before(config.device_kind));
        Self {
            config,
            cluster: Cluster::default(),
            nodes: Vec::new(),
            tasks: Vec::new(),
            groups: Vec::new(),
            attempts: BTreeMap::new(),
            measuring: BTreeSet::new(),
            last_inspection: None,
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
            have_raised: BTreeSet::new(),
            offsets,
            learns_from: Vec::new(),
            soon_free: SoonFree::default(),
            order: Order::default(),
            followers: BTreeMap::new(),
            breadths: Vec::new(),
            usable_breadths: Vec::new(),
            memory_waiters: BTreeMap::new(),
            node_widths: BTreeMap::new(),
            host_memory_of_types: BTreeMap::new(),
            people: BTreeMap::new(),
            logins: BTreeMap::new(),
            away: BTreeSet::new(),
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

    /// What is said where the run has no task of this name.
    pub fn unknown_task(&self, name: &str) -> String {
        let known: Vec<&str> = self.tasks.iter().map(|task| task.spec.name.as_str()).collect();
        saturn_core::names::unknown_task(name, &known)
    }

    /// Ids of all tasks.
    pub fn task_ids(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..self.tasks.len()).map(TaskId)
    }

    /// Ids of the tasks that have not ended, in the order in which they came.
    pub fn tasks_left(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.open_tasks.iter().copied()
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
            TaskStatus::Waiting if state.is_owner_away => Stage::Waiting,
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

    /// The live attempts of a group's tasks.
    pub(crate) fn attempts_of_group(&self, group: usize) -> impl Iterator<Item = &Attempt> {
        self.groups[group].attempts.iter().filter_map(|id| self.attempts.get(id))
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

    /// The full disk that keeps a waiting task from training: it was full for the task itself, or
    /// for a trial of its group.
    pub fn no_space(&self, task: TaskId) -> Option<&NoSpace> {
        let of = self.task(task);
        if of.status != TaskStatus::Waiting {
            return None;
        }
        let of_trials =
            || self.group_of(task).no_space.as_ref().filter(|_| !self.is_measured(task));
        of.no_space.as_ref().or_else(of_trials).filter(|one| one.until_s() > self.now_s)
    }

    /// Tasks that wait for space on a disk, in the order in which they came.
    pub fn without_space(&self) -> impl Iterator<Item = (TaskId, &NoSpace)> {
        self.open_tasks.iter().filter_map(|task| Some((*task, self.no_space(*task)?)))
    }

    /// Whether an attempt is not to be moved: its task could not go on from a checkpoint.
    pub fn is_to_stay(&self, attempt: &Attempt) -> bool {
        attempt.purpose == Purpose::Train
            && (!self.task(attempt.task).spec.can_resume || self.was_just_moved(attempt.task))
    }

    /// Whether a task's functions are not to be called yet: they have raised before the tasks that
    /// it comes after were done.
    pub fn is_measured_later(&self, task: TaskId) -> bool {
        self.task(task).raised_early && self.waits_for(task).next().is_some()
    }

    /// Seconds of the run between failures of attempts that are not their task's fault, about.
    pub fn failure_every_s(&self) -> f64 {
        (ASSUMED_FAILURE_EVERY_S + self.now_s) / f64::from(1 + self.num_lost)
    }
}
