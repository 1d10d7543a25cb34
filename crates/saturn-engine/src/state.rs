//! The state of a run as data, and the questions that it answers. How it changes: `apply`.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Gang, Strategy, TrialOutcome};

use crate::config::{Mode, RunConfig};
use crate::event::{FailureKind, RankFailure};
use crate::ids::{AttemptId, TaskId};
use crate::record::{AttemptEnd, Purpose, RunEnd, RunPlan, StopReason, TaskEnd};

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Some trial has no outcome yet.
    Trials,
    /// All trials have outcomes; no plan is in force.
    Planning,
    /// A plan is in force.
    Training,
    /// The person asked to stop; attempts are ending.
    Stopping,
    /// Nothing is left to do.
    Ended(RunEnd),
}

/// A trial to run: shared by all tasks of equal profile key.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialSlot {
    /// The task that is measured for the group: the first with its profile key.
    pub task: TaskId,
    /// What is tried; knobs are filled in by the outcome.
    pub strategy: Strategy,
    /// What came of it; `None` until it has ended.
    pub outcome: Option<TrialOutcome>,
    /// The outcome came from an earlier search.
    pub reused: bool,
}

/// What a task is doing.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskStatus {
    /// Waiting for its devices, for a retry, or for a plan.
    Waiting,
    /// Training.
    Running(AttemptId),
    /// Ended.
    Ended(TaskEnd),
}

/// A task's progress.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskState {
    /// What it is doing.
    pub status: TaskStatus,
    /// Steps in all; unknown until a trial has found the length of the loader.
    pub steps: Option<u64>,
    /// Finished steps, live.
    pub step: u64,
    /// Finished steps in the newest checkpoint.
    pub checkpoint_step: u64,
    /// Loss of the last step, live.
    pub loss: Option<f64>,
    /// Failures since the last new checkpoint.
    pub failures: u32,
    /// No launch before this time, seconds.
    pub not_before_s: f64,
    /// Technique and device count that must not be used again, and why.
    pub excluded: Vec<(Strategy, String)>,
    /// Observed over predicted seconds a step, from the newest training that was long enough and
    /// ended well.
    pub correction: f64,
    /// Seconds that a checkpoint takes while training waits for it, as at a switch and at the end: as
    /// the newest such took, else as its trial measured; 0 before either is known.
    pub save_s: f64,
    /// Seconds for which its training stood still for checkpoints, all together.
    pub blocked_s: f64,
    /// Seconds from launch to the first step, checkpoint loaded, when it last went on from one.
    pub load_s: Option<f64>,
}

/// One launch of a gang.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Its task.
    pub task: TaskId,
    /// Trial or training.
    pub purpose: Purpose,
    /// How it runs.
    pub strategy: Strategy,
    /// Where.
    pub gang: Gang,
    /// Finished steps at which it stops by itself, where that is before the task's end.
    pub until_step: Option<u64>,
    /// Time of launch, seconds.
    pub launched_s: f64,
    /// Finished steps when it began to train, and the time of that.
    pub started: Option<(u64, f64)>,
    /// It was asked to stop.
    pub stopping: Option<StopReason>,
    /// How and when it ended.
    pub ended: Option<(AttemptEnd, f64)>,
    /// Finished steps when it ended, or live.
    pub step: u64,
    /// Recent seconds a step, live.
    pub step_s: Option<f64>,
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
    /// It was told to die, live.
    pub killing: bool,
    /// It said that it did what it was launched for, live.
    pub completed: bool,
}

impl Attempt {
    /// Whether any of its processes may live.
    pub fn is_live(&self) -> bool {
        self.ended.is_none()
    }

    /// Whether it ended by signal 9 that Saturn did not send.
    pub(crate) fn was_killed_from_outside(&self) -> bool {
        matches!(&self.ended, Some((AttemptEnd::Failed { failure }, _))
            if failure.kind == FailureKind::Killed)
    }

    /// Finished steps that it left behind when it ended.
    pub(crate) fn ended_at_step(&self) -> Option<u64> {
        self.ended.as_ref().map(|_| self.step)
    }
}

/// All that is known of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// What the run was told; the cluster is the present one.
    pub config: RunConfig,
    /// In the order in which they are tried.
    pub trials: Vec<TrialSlot>,
    /// By task.
    pub tasks: Vec<TaskState>,
    /// Every attempt that was ever launched.
    pub attempts: BTreeMap<AttemptId, Attempt>,
    /// Every plan that was ever in force; the last one is, unless `plan_is_stale`.
    pub plans: Vec<RunPlan>,
    /// The last plan must be replaced before anything is launched by it.
    pub plan_is_stale: bool,
    /// The person asked to stop; `true`: at once.
    pub interrupted: Option<bool>,
    /// The run has ended.
    pub ended: Option<RunEnd>,
    /// Time of the last record, seconds.
    pub now_s: f64,
}

impl State {
    /// The state of a run that has just begun.
    pub fn new(config: RunConfig) -> Self {
        let tasks = config
            .tasks
            .iter()
            .map(|spec| TaskState {
                status: TaskStatus::Waiting,
                steps: spec.steps,
                step: 0,
                checkpoint_step: 0,
                loss: None,
                failures: 0,
                not_before_s: 0.0,
                excluded: Vec::new(),
                correction: 1.0,
                save_s: 0.0,
                blocked_s: 0.0,
                load_s: None,
            })
            .collect();
        let mut state = Self {
            config,
            trials: Vec::new(),
            tasks,
            attempts: BTreeMap::new(),
            plans: Vec::new(),
            plan_is_stale: false,
            interrupted: None,
            ended: None,
            now_s: 0.0,
        };
        state.lay_out_trials();
        state
    }

    /// Where the run stands.
    pub fn phase(&self) -> Phase {
        if let Some(end) = self.ended {
            Phase::Ended(end)
        } else if self.interrupted.is_some() {
            Phase::Stopping
        } else if self.trials.iter().any(|trial| self.is_open(trial)) {
            Phase::Trials
        } else if self.config.mode == Mode::Search || self.plan().is_some() {
            Phase::Training
        } else {
            Phase::Planning
        }
    }

    /// The plan in force.
    pub fn plan(&self) -> Option<&RunPlan> {
        if self.plan_is_stale { None } else { self.plans.last() }
    }

    /// Whether a trial is still to be run. One that is wider than the present pool, which may have
    /// been larger once, waits for no one.
    pub fn is_open(&self, trial: &TrialSlot) -> bool {
        trial.outcome.is_none() && trial.strategy.gpus <= self.config.widest()
    }

    /// A task's state.
    pub fn task(&self, id: TaskId) -> &TaskState {
        &self.tasks[id.0]
    }

    /// A task's name.
    pub fn name(&self, id: TaskId) -> &str {
        &self.config.tasks[id.0].name
    }

    /// Ids of all tasks.
    pub fn task_ids(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..self.tasks.len()).map(TaskId)
    }

    /// Attempts whose processes may live.
    pub fn live_attempts(&self) -> impl Iterator<Item = (AttemptId, &Attempt)> {
        self.attempts
            .iter()
            .filter(|(_, attempt)| attempt.is_live())
            .map(|(id, attempt)| (*id, attempt))
    }

    /// A task's training attempts, oldest first.
    pub fn training_attempts(&self, task: TaskId) -> impl Iterator<Item = (AttemptId, &Attempt)> {
        self.attempts
            .iter()
            .filter(move |(_, attempt)| attempt.task == task && attempt.purpose == Purpose::Train)
            .map(|(id, attempt)| (*id, attempt))
    }

    /// The trials that speak for a task.
    pub fn trials_of(&self, task: TaskId) -> impl Iterator<Item = &TrialSlot> {
        let group = self.group_of(task);
        self.trials.iter().filter(move |trial| trial.task == group)
    }

    /// The task that is measured for all tasks that perform like this one.
    pub fn group_of(&self, task: TaskId) -> TaskId {
        let key = &self.config.tasks[task.0].profile_key;
        let first = self.config.tasks.iter().position(|spec| spec.profile_key == *key);
        TaskId(first.unwrap_or(task.0))
    }

    /// The tasks that a trial speaks for.
    pub fn tasks_like(&self, group: TaskId) -> impl Iterator<Item = TaskId> {
        self.task_ids().filter(move |task| self.group_of(*task) == group)
    }

    /// Number of the next attempt.
    pub(crate) fn next_attempt(&self) -> AttemptId {
        AttemptId(self.attempts.keys().next_back().map_or(1, |last| last.0 + 1))
    }

    /// The trial that speaks for a task under a strategy, whatever its knobs.
    pub fn trial_of(&self, task: TaskId, strategy: &Strategy) -> Option<&TrialSlot> {
        self.trials_of(task).find(|trial| {
            trial.strategy.technique == strategy.technique && trial.strategy.gpus == strategy.gpus
        })
    }

    /// Seconds a step that the trials predict for a task under a strategy.
    pub fn predicted_step_s(&self, task: TaskId, strategy: &Strategy) -> Option<f64> {
        match self.trial_of(task, strategy)?.outcome {
            Some(TrialOutcome::Measured { step_s, .. }) => Some(step_s),
            _ => None,
        }
    }
}

/// An attempt shorter than this says too little about its speed.
pub(crate) const MIN_STEPS_TO_CORRECT: u64 = 10;
