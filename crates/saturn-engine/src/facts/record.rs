//! The facts that a journal keeps. Folding them over a fresh [`crate::State`] rebuilds the run.
//!
//! A record says what happened, never what a policy concluded from it. It names tasks, nodes and
//! attempts by numbers that are never reused, and trials by group, type of device and strategy. It
//! holds every number that its meaning depends on. So a journal means the same under every later
//! policy. `migrate` translates records of kinds that no longer exist.

use std::sync::Arc;

use saturn_core::{
    Gang, Inspection, Knobs, Node, Strategy, StrategyKey, Trained, TrialOutcome, measure,
};
use serde::{Deserialize, Serialize};

use crate::facts::config::{RunConfig, TaskSpec, Wishes};
pub use crate::facts::ends::{AttemptEnd, StopReason, TaskEnd};
use crate::facts::evaluation::{BestEvaluation, Evaluation};
use crate::facts::ids::{AttemptId, NodeId, TaskId};
use crate::facts::judgement::Judgement;
use crate::facts::machines::{MachineMemory, Machines};
use crate::facts::plan::RunPlan;
use crate::facts::sharing::{Guaranteed, Sharing, Uid};

/// What an attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// An inspection of the model of all tasks that perform like its task, on no device.
    Inspection,
    /// A trial of its strategy, for all tasks that perform like its task.
    Trial,
    /// Training.
    Train,
}

/// The strategy of an inspection: no technique has an empty name, and no gang has no device.
pub fn no_strategy() -> Strategy {
    Strategy { technique: String::new(), gpus: 0, knobs: Knobs::new() }
}

/// A trial that was chosen for what it may save.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenTrial {
    /// The profile key of the tasks that it speaks for.
    pub group: String,
    /// The type of device that it is to run on.
    pub gpu_type: String,
    /// Technique and device count.
    #[serde(flatten)]
    pub strategy: StrategyKey,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// Nothing more was to come, and every task has ended (in a search: every trial).
    Complete,
    /// Stopped by the person; it can be resumed.
    Interrupted,
}

/// A fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "record")]
pub enum Record {
    /// The run began. Always the first record.
    Began {
        /// What it was told.
        config: RunConfig,
    },
    /// Another process took the run over.
    Resumed {
        /// What each device may hold from here on, bytes.
        #[serde(default)]
        device_memory_bytes: Option<u64>,
        /// What its machines are from here on; `None` in journals that don't say so: as before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machines: Option<Machines>,
        /// Attempts whose ranks had gone on training without a driver, and go on under this one.
        /// All others that were live have ended as lost.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        adopted: Vec<AttemptId>,
    },
    /// A node joined, or came back; then it may have another number of devices than before.
    NodeJoined {
        /// Its number.
        node: NodeId,
        /// What it is.
        spec: Node,
        /// The host memory of its machine; `None`: as before, or no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host_memory_bytes: Option<MachineMemory>,
    },
    /// A node has gone. Attempts on it are lost.
    NodeLeft {
        /// Which.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// Devices are used no more until they are taken back.
    SetAside {
        /// Their node.
        node: NodeId,
        /// Which.
        devices: Vec<u32>,
        /// Why.
        reason: String,
        /// Tasks whose failures in a row count as failures of these devices, not of the tasks.
        #[serde(default)]
        absolved: Vec<TaskId>,
    },
    /// Devices that were set aside are used again.
    TakenBack {
        /// Their node.
        node: NodeId,
        /// Which.
        devices: Vec<u32>,
        /// Why.
        reason: String,
    },
    /// A task came.
    TaskAdded {
        /// Its number.
        task: TaskId,
        /// What it is.
        spec: TaskSpec,
    },
    /// No more tasks will come: the run ends when all tasks have ended.
    Closed,
    /// The user changed the wishes for a task's schedule.
    Wished {
        /// Which task.
        task: TaskId,
        /// All of its wishes.
        wishes: Wishes,
    },
    /// A task is to do nothing until it is taken up again.
    Paused {
        /// Which.
        task: TaskId,
    },
    /// A paused task is taken up again.
    Unpaused {
        /// Which.
        task: TaskId,
    },
    /// The process that starts the ranks of a person's tasks is not there: these tasks do nothing
    /// until it comes.
    OwnerLeft {
        /// The person's number on the machine.
        uid: u32,
    },
    /// That process has come.
    OwnerCame {
        /// The person's number on the machine.
        uid: u32,
    },
    /// From here on several people share the run, by these rules.
    Shared {
        /// The rules.
        sharing: Sharing,
    },
    /// The guarantees of a person's tasks were planned anew: because of a new task or wish of the
    /// person, or because people or devices have come or gone.
    Guaranteed {
        /// Whose tasks they are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Uid,
        /// The tasks.
        tasks: Vec<Guaranteed>,
    },
    /// The stopper judged a task.
    Judged {
        /// Which.
        task: TaskId,
        /// What it saw of the task, and what comes of that.
        #[serde(flatten)]
        judgement: Judgement,
    },
    /// A gang is about to be launched.
    Launched {
        /// Number of the attempt.
        attempt: AttemptId,
        /// Its task.
        task: TaskId,
        /// Whether the attempt inspects, tries or trains.
        purpose: Purpose,
        /// How it runs; [`no_strategy`] in an inspection.
        strategy: Strategy,
        /// Where; on no device in an inspection.
        gang: Gang,
        /// Finished steps at which it stops by itself, where that is before the task's end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_step: Option<u64>,
    },
    /// An attempt has loaded and trains.
    Started {
        /// Which attempt.
        attempt: AttemptId,
        /// Finished steps that it goes on from.
        step: u64,
        /// Seconds from launch.
        setup_s: f64,
    },
    /// A checkpoint is in place.
    Checkpointed {
        /// The attempt that wrote it.
        attempt: AttemptId,
        /// Finished steps in it.
        step: u64,
        /// Seconds that saving it took.
        save_s: f64,
        /// The part of `save_s` for which training stood still, seconds.
        blocked_s: f64,
        /// Loss of that step, where known.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "measure::optional")]
        loss: Option<f64>,
    },
    /// A task's model was evaluated.
    Evaluated {
        /// The attempt that trains it.
        attempt: AttemptId,
        /// What was found.
        evaluation: Evaluation,
        /// The best evaluation so far, if the task names a metric and a mode.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        best: Option<BestEvaluation>,
        /// Seconds that the evaluation took; absent if an earlier attempt made it unreported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        evaluation_s: Option<f64>,
    },
    /// A group's model was inspected. Strategies that this rules out have their outcome from it.
    Inspected {
        /// The profile key of the tasks that it speaks for.
        group: String,
        /// What was found.
        inspection: Inspection,
    },
    /// A trial has its outcome.
    Tried {
        /// The profile key of the tasks that it speaks for.
        group: String,
        /// The type of device that it ran on.
        gpu_type: String,
        /// The strategy with the knobs that the technique chose.
        strategy: Strategy,
        /// What came of it.
        outcome: TrialOutcome,
    },
    /// A measured trial goes on as its task's training: its steps count.
    WentOn {
        /// The trial's attempt, which trains from now on.
        attempt: AttemptId,
        /// Finished steps.
        step: u64,
    },
    /// Trials were chosen, because a plan that used their strategies might be better.
    TrialsChosen {
        /// Which.
        trials: Vec<ChosenTrial>,
        /// Seconds by which the run might end earlier, at best.
        saves_s: f64,
        /// Device-seconds that they are expected to take.
        cost_s: f64,
    },
    /// Training has shown a strategy's seconds a step. They differ from what plans counted on, or
    /// no trial has measured the strategy.
    Observed {
        /// The profile key of the tasks that it speaks for.
        group: String,
        /// The type of device that it ran on.
        gpu_type: String,
        /// The strategy as it trained.
        strategy: Strategy,
        /// Seconds a step.
        step_s: f64,
    },
    /// The launcher is ready: from now on a launch takes effect at once.
    DriverStarted {
        /// Seconds that its start took, while the run's clock stood still.
        startup_s: f64,
    },
    /// The driver had stood still until now, and heard nothing meanwhile.
    StoodStill {
        /// How long it stood still, seconds.
        for_s: f64,
    },
    /// An interval of training has measured its strategy, beside whatever else ran then.
    Clocked {
        /// The attempt that trains.
        attempt: AttemptId,
        /// What its steps took since the record before, or since its first step.
        #[serde(flatten)]
        trained: Trained,
    },
    /// The solver has answered. If a plan is adopted because of the answer, its record follows. A
    /// solve that its driver's death or the run's end cuts short has no such record.
    Solved {
        /// When the solver was asked, seconds on the run's clock.
        asked_s: f64,
        /// Seconds that the solver took for the plan; `None` where it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        solve_s: Option<f64>,
    },
    /// A plan is in force from now on.
    Planned {
        /// The plan; shared with the state that it is in force in.
        plan: Arc<RunPlan>,
    },
    /// Introspection found no plan worth a switch.
    PlanKept {
        /// Seconds that the plan in force still needs.
        time_left_s: f64,
        /// Seconds that the best plan found would need, switches included.
        best_s: f64,
    },
    /// The solver gave nothing that can be used.
    NotSolved {
        /// Why.
        reason: String,
    },
    /// An attempt was asked to stop.
    Stopping {
        /// Which attempt.
        attempt: AttemptId,
        /// Why.
        reason: StopReason,
    },
    /// A running attempt is to stop at another step than it was launched for.
    Until {
        /// Which attempt.
        attempt: AttemptId,
        /// Finished steps at which it stops by itself; `None` where it trains to the task's end.
        step: Option<u64>,
    },
    /// An attempt is over: all its processes are gone, or it is abandoned.
    Ended {
        /// Which attempt.
        attempt: AttemptId,
        /// How it ended.
        end: AttemptEnd,
        /// Finished steps that are not lost.
        step: u64,
        /// Seconds a step, without checkpoints; `None` if the attempt trained too briefly to tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step_s: Option<f64>,
    },
    /// A failed task will be tried again.
    Retrying {
        /// Which task.
        task: TaskId,
        /// Not before this time, seconds.
        not_before_s: f64,
        /// Whether the failure counts towards `max_failures`.
        #[serde(default = "yes")]
        counts: bool,
    },
    /// A task must not run under this technique and device count again.
    Excluded {
        /// Which task.
        task: TaskId,
        /// What is excluded.
        #[serde(flatten)]
        key: StrategyKey,
        /// Why.
        reason: String,
    },
    /// A task has ended.
    TaskEnded {
        /// Which task.
        task: TaskId,
        /// How.
        end: TaskEnd,
    },
    /// A message for the person who watches the run.
    Noted {
        /// The task that the message is about; `None` if it is about the run.
        task: Option<TaskId>,
        /// The message.
        text: String,
    },
    /// The person asked to stop the run.
    Interrupted {
        /// At once, not at checkpoints.
        at_once: bool,
    },
    /// The run has ended.
    RunEnded {
        /// How.
        end: RunEnd,
    },
}

fn yes() -> bool {
    true
}
