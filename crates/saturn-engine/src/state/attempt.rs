//! One launch of a gang that has not ended, and how its steps are clocked.

use std::collections::BTreeSet;
use std::sync::Arc;

use saturn_core::{Gang, Strategy};

use crate::facts::failure::RankFailure;
use crate::facts::ids::{DeviceId, TaskId, devices};
use crate::facts::record::{Purpose, StopReason};

/// An attempt shorter than this says too little about its speed, steps.
pub(crate) const MIN_STEPS_TO_CORRECT: u64 = 10;

/// One launch of a gang that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Its task.
    pub task: TaskId,
    /// What it is for.
    pub purpose: Purpose,
    /// How it runs.
    pub strategy: Arc<Strategy>,
    /// On which devices; without nodes of the gang that have gone.
    pub gang: Gang,
    /// Finished steps at which it stops by itself, where that is before the task's end.
    pub until_step: Option<u64>,
    /// Time of launch, seconds.
    pub launched_s: f64,
    /// Finished steps when it began to train, and the time of that.
    pub started: Option<(u64, f64)>,
    /// When its first step was over, live.
    pub warm: Option<Warm>,
    /// Up to which step its training is on record as a measurement, live; `None` before the first
    /// interval.
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
    /// Time of the last report of any of its ranks, live, seconds.
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
    /// A node of its gang has gone: the ranks on other nodes are to end too, and nobody failed.
    /// Live.
    pub is_lost: bool,
    /// It reported that it did all that it was launched for, live.
    pub completed: bool,
    /// It reported that its task is trained, with all its steps or ended by its own code, live.
    pub says_trained: bool,
}

/// A mark from which an attempt's steps are clocked: the end of its first step, or the end of an
/// interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Warm {
    /// Finished steps.
    pub step: u64,
    /// Time, seconds.
    pub at_s: f64,
    /// Seconds for which it had stood still for checkpoints.
    pub blocked_s: f64,
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

    /// Steps that were clocked, and the seconds that they took; `None` if the steps are too few to
    /// tell. They count up to the last step that was reported, not up to now.
    pub(crate) fn clocked(&self) -> Option<(f64, f64)> {
        let (steps, taken_s) = self.clocked_since(self.warm?);
        (steps >= MIN_STEPS_TO_CORRECT && taken_s > 0.0).then_some((steps as f64, taken_s))
    }

    /// Steps since a mark, and the seconds that they took.
    pub(crate) fn clocked_since(&self, mark: Warm) -> (u64, f64) {
        let taken_s = self.stepped_s - mark.at_s - (self.blocked_s - mark.blocked_s);
        (self.step.saturating_sub(mark.step), taken_s)
    }
}
