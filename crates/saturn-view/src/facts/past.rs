//! What a [`History`](crate::History) keeps: past attempts, tasks, trials, notes and changes of the
//! pool.

use saturn_core::{Gang, Node, Strategy, Trained, TrialOutcome};
use saturn_engine::{AttemptEnd, AttemptId, NodeId, Place, Purpose, StopReason, TaskId};

use crate::facts::planned_by::PlannedBy;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub struct PastEnd {
    /// How the attempt ended.
    pub end: AttemptEnd,
    /// When it ended, seconds.
    pub at_s: f64,
    /// Finished steps that were saved.
    pub step: u64,
}

/// An attempt, live or ended.
#[derive(Debug, Clone, PartialEq)]
pub struct PastAttempt {
    /// Its task.
    pub task: TaskId,
    /// Its purpose.
    pub purpose: Purpose,
    /// Its strategy.
    pub strategy: Strategy,
    /// Its devices.
    pub gang: Gang,
    /// Time of launch, seconds.
    pub launched_s: f64,
    /// Seconds from launch to end, as forecast at launch. `None` if nothing was known, or if the
    /// attempt was given another end later.
    pub forecast_s: Option<f64>,
    /// The finished steps when it began to train, and the time of that, seconds.
    pub started: Option<(u64, f64)>,
    /// The steps that were clocked in training, and the seconds that they took, without launch,
    /// first step, checkpoints and evaluations.
    pub(crate) clocked: (u64, f64),
    /// The reason and the time of a request to stop, if there was one.
    pub stopping: Option<(StopReason, f64)>,
    /// Its end; `None` while it lives.
    pub ended: Option<PastEnd>,
}

impl PastAttempt {
    /// Seconds from launch to its end, or to `now_s` while it lives.
    pub fn taken_s(&self, now_s: f64) -> f64 {
        self.ended.as_ref().map_or(now_s, |ended| ended.at_s) - self.launched_s
    }

    /// Adds an interval of training.
    pub(crate) fn add_clocked(&mut self, trained: Trained) {
        let (steps, seconds) = self.clocked;
        let more_s = trained.step_s * trained.steps as f64;
        self.clocked = (steps.saturating_add(trained.steps), seconds + more_s);
    }
}

/// The past of a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PastTask {
    /// When it ended, seconds.
    pub ended_s: Option<f64>,
    /// Its training attempts, oldest first.
    pub attempts: Vec<AttemptId>,
    /// Index of the first plan that had a place for it.
    pub first_plan: Option<usize>,
    /// Its first place in that plan, with the end of its last place there.
    pub first_place: Option<Place>,
    /// The seconds of a step that this place counted on.
    pub(crate) planned_by: Option<PlannedBy>,
    /// When it was paused, seconds; `None` if it is not paused.
    pub paused_s: Option<f64>,
}

/// A trial with its outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct PastTrial {
    /// When, seconds.
    pub at_s: f64,
    /// The profile key of the group that it measured.
    pub group: String,
    /// The type of device that it ran on.
    pub gpu_type: String,
    /// The strategy that it tried.
    pub strategy: Strategy,
    /// Its outcome.
    pub outcome: TrialOutcome,
}

/// A move: a task continued under another strategy or on other devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Move<'a> {
    /// The attempt that the task left.
    pub from: &'a PastAttempt,
    /// The attempt that the task continued in.
    pub to: &'a PastAttempt,
}

/// A message for the person who watches the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// When, seconds.
    pub at_s: f64,
    /// The task that it concerns; `None` if it concerns the run.
    pub task: Option<TaskId>,
    /// The text.
    pub text: String,
}

/// A change of the pool.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolEvent {
    /// A node joined, or came back.
    Joined(Node),
    /// A node has left, and why.
    Left(String),
    /// Devices were set aside, and why.
    SetAside(Vec<u32>, String),
    /// Devices were taken back, and why.
    TakenBack(Vec<u32>, String),
}

/// A change of the pool, with its time and node.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolChange {
    /// When, seconds.
    pub at_s: f64,
    /// Which node.
    pub node: NodeId,
    /// What happened.
    pub what: PoolEvent,
}

/// The start of a process that drives the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Startup {
    /// When, seconds. The clock stands still during a start, so this is both its begin and its end.
    pub at_s: f64,
    /// Seconds that the start took.
    pub took_s: f64,
}
