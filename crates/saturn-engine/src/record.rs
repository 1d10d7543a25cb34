//! The facts that a journal keeps. Folding them over a fresh [`crate::State`] rebuilds the run.

use std::collections::BTreeSet;

use saturn_core::{Cluster, Gang, PlanStatus, Strategy, TrialOutcome, WHOLE};
use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::event::RankFailure;
use crate::ids::{AttemptId, TaskId};

/// What an attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A trial: the index of its slot in [`crate::State::trials`].
    Trial(usize),
    /// Training.
    Train,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum AttemptEnd {
    /// It did all that it was launched for.
    Finished,
    /// It stopped at a checkpoint when asked to.
    Stopped,
    /// It was killed because the run stops at once.
    Killed,
    /// The process that drove the run went away under it.
    Lost,
    /// A rank failed.
    Failed {
        /// The cause: the first failure that is not an echo of another.
        failure: RankFailure,
    },
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum TaskEnd {
    /// All steps are trained.
    Done {
        /// Loss of the last step.
        loss: Option<f64>,
    },
    /// It was given up.
    Failed {
        /// One line.
        error: String,
        /// The worker's own traceback, or empty.
        traceback: String,
    },
}

/// Why a running attempt is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// A better plan moves it.
    Replan,
    /// The person asked.
    Interrupt,
    /// The part of its task that the plan has it do is done.
    Switch,
}

/// The place of a task, or of one segment of it, in a run's plan. Times are on the run's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedTask {
    /// Which task.
    pub task: TaskId,
    /// How it runs.
    pub strategy: Strategy,
    /// Where.
    pub gang: Gang,
    /// The part of what was left of the task when the plan was made that is done here.
    #[serde(default = "whole")]
    pub share: f64,
    /// Finished steps at which the task is to be switched; `None` where it is trained to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_step: Option<u64>,
    /// When it starts, seconds.
    pub start_s: f64,
    /// When it ends, seconds.
    pub end_s: f64,
}

fn whole() -> f64 {
    WHOLE
}

impl PlannedTask {
    /// Whether a task with so many finished steps is through with this.
    pub fn is_done_at(&self, step: u64) -> bool {
        self.until_step.is_some_and(|until| step >= until)
    }
}

/// A plan in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// When it was adopted, seconds on the run's clock.
    pub at_s: f64,
    /// What the solver proved.
    pub status: PlanStatus,
    /// Seconds from `at_s` to the end of the last task.
    pub makespan_s: f64,
    /// Proven lower bound of that, seconds.
    pub lower_bound_s: f64,
    /// Seconds that the solve took.
    pub solve_s: f64,
    /// What current practice would take from `at_s`, seconds.
    pub current_practice_s: Option<f64>,
    /// By start; a task that is to be switched has several, one for each of its segments.
    pub tasks: Vec<PlannedTask>,
}

impl RunPlan {
    /// Tasks that have a place in it.
    pub fn num_tasks(&self) -> usize {
        self.tasks.iter().map(|planned| planned.task).collect::<BTreeSet<_>>().len()
    }

    /// Switches that it plans.
    pub fn num_switches(&self) -> usize {
        self.tasks.len() - self.num_tasks()
    }

    /// A task's places, in the order in which it takes them.
    pub fn places_of(&self, task: TaskId) -> impl Iterator<Item = &PlannedTask> {
        self.tasks.iter().filter(move |planned| planned.task == task)
    }

    /// (makespan − lower bound) / lower bound; 0 where the bound is 0.
    pub fn gap(&self) -> f64 {
        if self.lower_bound_s > 0.0 {
            ((self.makespan_s - self.lower_bound_s) / self.lower_bound_s).max(0.0)
        } else {
            0.0
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// Every task is done or given up (in a search: every trial has its outcome).
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
        /// The pool it found.
        cluster: Cluster,
        /// What each device may hold from here on, bytes.
        #[serde(default)]
        device_memory_bytes: Option<u64>,
    },
    /// A gang is about to be launched.
    Launched {
        /// Number of the attempt.
        attempt: AttemptId,
        /// Its task.
        task: TaskId,
        /// Trial or training.
        purpose: Purpose,
        /// How it runs.
        strategy: Strategy,
        /// Where.
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
        /// Seconds of those for which training stood still.
        blocked_s: f64,
    },
    /// A trial has its outcome.
    Tried {
        /// Its slot.
        trial: usize,
        /// The strategy with the knobs that the technique chose.
        strategy: Strategy,
        /// What came of it.
        outcome: TrialOutcome,
    },
    /// A plan is in force from now on.
    Planned {
        /// The plan.
        plan: RunPlan,
    },
    /// Introspection found no plan worth a switch.
    PlanKept {
        /// Seconds that the plan in force still needs.
        time_left_s: f64,
        /// Seconds that the best plan found would need, switches included.
        best_s: f64,
    },
    /// An attempt was asked to stop.
    Stopping {
        /// Which attempt.
        attempt: AttemptId,
        /// Why.
        reason: StopReason,
    },
    /// All processes of an attempt are gone.
    Ended {
        /// Which attempt.
        attempt: AttemptId,
        /// How it ended.
        end: AttemptEnd,
        /// Finished steps that are not lost.
        step: u64,
    },
    /// A failed task will be tried again.
    Retrying {
        /// Which task.
        task: TaskId,
        /// Not before this time, seconds.
        not_before_s: f64,
    },
    /// A task must not run under this technique and device count again.
    Excluded {
        /// Which task.
        task: TaskId,
        /// What is excluded.
        strategy: Strategy,
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
    /// A word for the person watching.
    Noted {
        /// The task that it is about.
        task: TaskId,
        /// The word.
        text: String,
    },
    /// The person asked to stop.
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
