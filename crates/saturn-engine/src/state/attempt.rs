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
    /// It began as a trial, and went on as training after so many finished steps.
    pub went_on: Option<u64>,
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
    /// Its steps on slow nodes, live.
    pub slowed: LeftOut,
    /// Its steps beside inspections that were not also on slow nodes, live.
    pub beside_inspections: LeftOut,
    /// The mark of its last report of a finished step after `warm`, live.
    pub last_report: Option<Warm>,
    /// How its newest steps compare with its earlier steps, live; `None` until its first step ends.
    pub recent: Option<Recent>,
    /// Its newest checkpoint is of this step; `None` where it has written none.
    pub saved_step: Option<u64>,
    /// Time of the last report of any of its ranks, live, seconds.
    pub heard_s: f64,
    /// Reports up to this time may have waited for a driver that stood still: its steps are not
    /// clocked by them. Live, seconds; 0 if no driver stood still.
    pub settled_s: f64,
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
    /// Its steps on slow nodes until then.
    pub slowed: LeftOut,
    /// Its steps beside inspections until then.
    pub beside_inspections: LeftOut,
}

/// Steps of an attempt that its clock leaves out, since they tell nothing of its strategy: steps on
/// slow nodes, or beside an inspection that took a core's time from them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LeftOut {
    /// Steps.
    pub steps: u64,
    /// Seconds that they took.
    pub seconds: f64,
}

/// How long the newest steps of an attempt took, compared with the expected time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recent {
    /// The mark from which the reference steps count. Newer steps are compared with them.
    pub since: Warm,
    /// How many other attempts were on the attempt's nodes at `since`.
    pub num_neighbours: usize,
    /// The mark up to which steps have been compared.
    pub from: Warm,
    /// When the steps of the last comparison began, seconds.
    pub began_s: f64,
    /// The time of these steps over their expected time; `None` if no time was expected.
    pub ratio: Option<f64>,
    /// The mark at which the attempt left its pace, and how many comparisons in a row say that its
    /// nodes are not the cause.
    pub departed: Option<(Warm, u32)>,
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

    /// Steps that were clocked up to a mark, and the seconds that they took; `None` if the steps are
    /// too few to tell.
    pub(crate) fn clocked_until(&self, mark: Warm) -> Option<(f64, f64)> {
        let (steps, taken_s) = self.warm?.clocked_until(mark);
        (steps >= MIN_STEPS_TO_CORRECT && taken_s > 0.0).then_some((steps as f64, taken_s))
    }

    /// Steps since a mark, and the seconds that they took.
    pub(crate) fn clocked_since(&self, mark: Warm) -> (u64, f64) {
        mark.clocked_until(self.here())
    }

    /// A mark at its last report.
    pub(crate) fn here(&self) -> Warm {
        let Self { step, stepped_s: at_s, blocked_s, slowed, beside_inspections, .. } = *self;
        Warm { step, at_s, blocked_s, slowed, beside_inspections }
    }
}

impl Warm {
    /// Steps up to a later mark, and the seconds that they took.
    pub(crate) fn clocked_until(&self, later: Self) -> (u64, f64) {
        let left_out = self.left_out_until(&later);
        let taken_s =
            later.at_s - self.at_s - (later.blocked_s - self.blocked_s) - left_out.seconds;
        (later.step.saturating_sub(self.step).saturating_sub(left_out.steps), taken_s)
    }

    /// What is left out of the clock between this mark and a later mark.
    fn left_out_until(&self, later: &Self) -> LeftOut {
        let between = |now: LeftOut, before: LeftOut| LeftOut {
            steps: now.steps.saturating_sub(before.steps),
            seconds: now.seconds - before.seconds,
        };
        let mut left_out = between(later.slowed, self.slowed);
        left_out.add(between(later.beside_inspections, self.beside_inspections));
        left_out
    }
}

impl LeftOut {
    /// Leaves out more.
    pub(crate) fn add(&mut self, more: Self) {
        self.steps += more.steps;
        self.seconds += more.seconds;
    }
}
