//! The state of a run, and how each record changes it.
//!
//! [`State::apply`] is the only way in which a run's durable state changes. It never fails: a record
//! that names something unknown (a damaged journal) changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Gang, Knobs, Strategy, TrialOutcome};

use crate::config::{Mode, RunConfig};
use crate::event::{FailureKind, RankFailure};
use crate::ids::{AttemptId, TaskId};
use crate::record::{AttemptEnd, Purpose, Record, RunEnd, RunPlan, StopReason, TaskEnd};

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
    /// Seconds that its newest checkpoint took; 0 before the first.
    pub save_s: f64,
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

    /// Makes the slots that the present cluster and techniques call for, keeping outcomes that are
    /// known. Wide trials come first, so that narrow ones fill the gaps that they leave.
    fn lay_out_trials(&mut self) {
        let groups: Vec<TaskId> =
            self.task_ids().filter(|task| self.group_of(*task) == *task).collect();
        for task in groups {
            let spec = &self.config.tasks[task.0];
            for gpus in widths(self.config.widest()) {
                if spec.gpu_range.as_ref().is_some_and(|range| !range.contains(&gpus)) {
                    continue;
                }
                for technique in &self.config.techniques {
                    let is_known = self.trials.iter().any(|trial| {
                        trial.task == task
                            && trial.strategy.technique == technique.name
                            && trial.strategy.gpus == gpus
                    });
                    if is_known {
                        continue;
                    }
                    let measured = spec.measured.iter().find(|trial| {
                        trial.strategy.technique == technique.name && trial.strategy.gpus == gpus
                    });
                    self.trials.push(TrialSlot {
                        task,
                        strategy: measured.map_or_else(
                            || Strategy {
                                technique: technique.name.clone(),
                                gpus,
                                knobs: Knobs::new(),
                            },
                            |trial| trial.strategy.clone(),
                        ),
                        outcome: measured.map(|trial| trial.outcome.clone()),
                        reused: measured.is_some(),
                    });
                }
            }
        }
        let learned: Vec<(TaskId, TrialOutcome)> = self
            .trials
            .iter()
            .filter_map(|trial| Some((trial.task, trial.outcome.clone()?)))
            .collect();
        for (group, outcome) in learned {
            self.learn_steps(group, &outcome);
        }
    }

    /// Takes the number of steps of tasks that are given in epochs from a trial.
    fn learn_steps(&mut self, group: TaskId, outcome: &TrialOutcome) {
        let TrialOutcome::Measured { batches_per_epoch: Some(batches), .. } = outcome else {
            return;
        };
        let tasks: Vec<TaskId> = self.tasks_like(group).collect();
        for task in tasks {
            if let Some(epochs) = self.config.tasks[task.0].epochs {
                self.tasks[task.0].steps = Some(epochs.saturating_mul(*batches));
            }
        }
    }

    /// Applies a record that was made at `now_s`.
    pub fn apply(&mut self, record: &Record, now_s: f64) {
        self.now_s = self.now_s.max(now_s);
        match record {
            Record::Began { .. } | Record::PlanKept { .. } | Record::Noted { .. } => {}
            Record::Resumed { cluster } => {
                self.config.cluster = cluster.clone();
                self.lay_out_trials();
                self.interrupted = None;
                self.plan_is_stale = true;
                if self.ended == Some(RunEnd::Interrupted) {
                    self.ended = None;
                }
                for task in &mut self.tasks {
                    task.failures = 0;
                    task.not_before_s = 0.0;
                }
            }
            Record::Launched { attempt, task, purpose, strategy, gang } => {
                self.apply_launch(*attempt, *task, *purpose, strategy, gang, now_s);
            }
            Record::Started { attempt, step, setup_s } => {
                if let Some(state) = self.attempts.get_mut(attempt) {
                    state.started = Some((*step, now_s));
                    state.step = *step;
                    if state.purpose == Purpose::Train
                        && let Some(task) = self.tasks.get_mut(state.task.0)
                    {
                        task.step = *step;
                        task.checkpoint_step = *step;
                        if *step > 0 {
                            task.load_s = Some(*setup_s);
                        }
                    }
                }
            }
            Record::Checkpointed { attempt, step, save_s } => {
                let task = self.attempts.get(attempt).map(|state| state.task.0);
                if let Some(task) = task.and_then(|index| self.tasks.get_mut(index)) {
                    if *step > task.checkpoint_step {
                        task.failures = 0;
                    }
                    task.checkpoint_step = *step;
                    task.step = task.step.max(*step);
                    task.save_s = *save_s;
                }
            }
            Record::Tried { trial, strategy, outcome } => {
                if let Some(slot) = self.trials.get_mut(*trial) {
                    slot.strategy = strategy.clone();
                    slot.outcome = Some(outcome.clone());
                    let group = slot.task;
                    self.learn_steps(group, outcome);
                }
            }
            Record::Planned { plan } => {
                self.plans.push(plan.clone());
                self.plan_is_stale = false;
            }
            Record::Stopping { attempt, reason } => {
                if let Some(state) = self.attempts.get_mut(attempt) {
                    state.stopping = Some(*reason);
                }
            }
            Record::Ended { attempt, end, step } => {
                self.apply_end(*attempt, end, *step, now_s);
            }
            Record::Retrying { task, not_before_s } => {
                if let Some(task) = self.tasks.get_mut(task.0) {
                    task.failures += 1;
                    task.not_before_s = *not_before_s;
                }
            }
            Record::Excluded { task, strategy, reason } => {
                if let Some(task) = self.tasks.get_mut(task.0) {
                    task.excluded.push((strategy.clone(), reason.clone()));
                    self.plan_is_stale = true;
                }
            }
            Record::TaskEnded { task, end } => {
                if let Some(task) = self.tasks.get_mut(task.0) {
                    task.status = TaskStatus::Ended(end.clone());
                    if let TaskEnd::Done { loss } = end {
                        task.loss = loss.or(task.loss);
                    }
                }
            }
            Record::Interrupted { at_once } => self.interrupted = Some(*at_once),
            Record::RunEnded { end } => self.ended = Some(*end),
        }
    }

    fn apply_launch(
        &mut self,
        attempt: AttemptId,
        task: TaskId,
        purpose: Purpose,
        strategy: &Strategy,
        gang: &Gang,
        now_s: f64,
    ) {
        let Some(task_state) = self.tasks.get_mut(task.0) else { return };
        if purpose == Purpose::Train {
            task_state.status = TaskStatus::Running(attempt);
        }
        self.attempts.insert(
            attempt,
            Attempt {
                task,
                purpose,
                strategy: strategy.clone(),
                gang: gang.clone(),
                launched_s: now_s,
                started: None,
                stopping: None,
                ended: None,
                step: task_state.checkpoint_step,
                step_s: None,
                heard_s: now_s,
                live_ranks: self.config.num_ranks(strategy),
                failure: None,
                failed_ranks: BTreeSet::new(),
                echo_s: None,
                killing: false,
                completed: false,
            },
        );
    }

    fn apply_end(&mut self, attempt: AttemptId, end: &AttemptEnd, step: u64, now_s: f64) {
        let Some(state) = self.attempts.get_mut(&attempt) else { return };
        state.ended = Some((end.clone(), now_s));
        state.step = step;
        state.live_ranks = 0;
        if state.purpose != Purpose::Train {
            return;
        }
        let Some(task) = self.tasks.get_mut(state.task.0) else { return };
        if task.status == TaskStatus::Running(attempt) {
            task.status = TaskStatus::Waiting;
        }
        task.step = step;
        if !matches!(end, AttemptEnd::Finished | AttemptEnd::Stopped) {
            // Its time ran on to its end, but its steps only to its last checkpoint.
            return;
        }
        task.checkpoint_step = step;
        if let (Some((from_step, from_s)), Some(predicted)) = (
            state.started,
            predicted_step_s(&self.trials, &self.config, state.task, &state.strategy),
        ) {
            let trained = step.saturating_sub(from_step);
            if trained >= MIN_STEPS_TO_CORRECT && predicted > 0.0 {
                task.correction = (now_s - from_s) / trained as f64 / predicted;
            }
        }
    }

    /// Seconds a step that the trials predict for a task under a strategy.
    pub fn predicted_step_s(&self, task: TaskId, strategy: &Strategy) -> Option<f64> {
        predicted_step_s(&self.trials, &self.config, task, strategy)
    }
}

/// Device counts to try on nodes of `widest` devices, wide first: all of them up to 8, then powers of
/// two and the whole node, since neighbours differ little there and every trial costs time.
fn widths(widest: u32) -> impl Iterator<Item = u32> {
    (1..=widest).rev().filter(move |gpus| *gpus <= 8 || gpus.is_power_of_two() || *gpus == widest)
}

/// An attempt shorter than this says too little about its speed.
pub(crate) const MIN_STEPS_TO_CORRECT: u64 = 10;

fn predicted_step_s(
    trials: &[TrialSlot],
    config: &RunConfig,
    task: TaskId,
    strategy: &Strategy,
) -> Option<f64> {
    let key = &config.tasks.get(task.0)?.profile_key;
    trials
        .iter()
        .filter(|trial| config.tasks[trial.task.0].profile_key == *key)
        .filter(|trial| {
            trial.strategy.technique == strategy.technique && trial.strategy.gpus == strategy.gpus
        })
        .find_map(|trial| match trial.outcome {
            Some(TrialOutcome::Measured { step_s, .. }) => Some(step_s),
            _ => None,
        })
}
