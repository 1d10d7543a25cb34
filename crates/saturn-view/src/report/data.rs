//! A run as data: the content of `report.json`, which `report.html` draws.
//!
//! Times are seconds on the run's clock, which is 0 at the run's beginning and stands still while
//! no process drives the run. Within one `version`, fields are added and never removed or changed.

use std::collections::BTreeSet;

use saturn_core::{Gang, Inspection, Knobs, Lateness, PlanStatus, TrialOutcome, WHOLE, measure};
use saturn_engine::{
    BestEvaluation, DeviceKind, Evaluation, Goal, Mode, PlanSource, Purpose, Stage, Wishes,
};
use serde::{Deserialize, Serialize};

use crate::explain::candidates::Candidate;
use crate::facts::run_status::RunStatus;
use crate::report::device_time::DeviceTimeReport;
use crate::report::metrics::LossPoint;

/// The version that [`Report::build`] makes.
pub(crate) const VERSION: u32 = 3;

/// A device of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Index of its node.
    pub node: usize,
    /// Name of its node.
    pub node_name: String,
    /// Its id on the node.
    pub device: u32,
    /// Its type.
    pub gpu_type: String,
    /// Whether it is still in the pool.
    pub is_there: bool,
    /// Why it is set aside, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
}

/// Numbers of the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Tasks of the workload.
    pub tasks: usize,
    /// Tasks that were trained to their end.
    pub done: usize,
    /// Tasks that were trained to their end with a loss that is not a finite number. They don't
    /// count as done.
    #[serde(default)]
    pub diverged: usize,
    /// Tasks that were given up after failures.
    pub failed: usize,
    /// Tasks that were cancelled.
    pub cancelled: usize,
    /// Tasks that the stopper ended.
    #[serde(default)]
    pub stopped: usize,
    /// The index of the reference plan, by which the run is judged: the first plan that covers
    /// every task that ever got a place. The fields below that name this plan count from its
    /// adoption.
    pub reference_plan: Option<usize>,
    /// Seconds from the run's start, or from the first task's arrival if that was later, to the end
    /// of the last training attempt. Trials and the starts of drivers count.
    #[serde(default)]
    pub total_s: Option<f64>,
    /// The part of `total_s` in which drivers started, seconds.
    #[serde(default)]
    pub startup_s: f64,
    /// Seconds that current practice would take from its start to its end.
    #[serde(default)]
    pub current_practice_total_s: Option<f64>,
    /// Whether current practice uses a strategy that was only estimated, never measured.
    #[serde(default)]
    pub current_practice_is_estimate: bool,
    /// Whether all steps of all planned tasks were trained. If not, as in a search, the run did
    /// less work than its plan, its bound and current practice assume.
    #[serde(default)]
    pub did_all_that_was_planned: bool,
    /// Seconds from the reference plan to the end of the last training attempt.
    pub makespan_s: Option<f64>,
    /// The makespan of the reference plan, seconds.
    pub planned_makespan_s: Option<f64>,
    /// A proven lower bound of the makespan under the reference plan's estimates, seconds.
    pub lower_bound_s: Option<f64>,
    /// Seconds that current practice would take from the reference plan on, by the profile. Current
    /// practice trains one task at a time on all devices, each by its best technique.
    pub current_practice_s: Option<f64>,
    /// Whether the run was stopped before all its tasks had come: more may come once it is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacks_tasks: bool,
    /// The share of device-seconds within the realised makespan that training attempts held.
    pub device_use: Option<f64>,
    /// How late tasks are after their deadlines: those that ended by themselves, and open tasks whose
    /// deadline has passed. Null without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
    /// Seconds from the run's beginning to its first plan, or to its end if it had none.
    pub trials_s: f64,
    /// Trials that were run or taken from an earlier run.
    pub trials: usize,
    /// Trials that measured a strategy.
    pub trials_measured: usize,
}

impl Totals {
    /// Whether the run can be compared with its plan, the bound and current practice. It can't if
    /// it ended with less training than these assume.
    pub(crate) fn is_compared(&self, status: RunStatus) -> bool {
        self.did_all_that_was_planned || status != RunStatus::Complete
    }
}

/// One task's place in a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedReport {
    /// Index into the report's tasks.
    pub task: usize,
    /// Technique.
    pub technique: String,
    /// Device count.
    pub gpus: u32,
    /// Devices by node.
    pub gang: Gang,
    /// The share of the task's work that this place does; less than 1 if the task is to switch.
    #[serde(default = "whole", skip_serializing_if = "is_whole")]
    pub share: f64,
    /// The finished steps at which the task is to switch to its next place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_step: Option<u64>,
    /// Whether its times rest on an estimate, since the strategy was not measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_estimate: bool,
    /// Planned start.
    pub start_s: f64,
    /// Planned end.
    pub end_s: f64,
}

fn whole() -> f64 {
    WHOLE
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_whole(share: &f64) -> bool {
    *share >= WHOLE
}

/// A plan that was in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanReport {
    /// When it was adopted.
    pub at_s: f64,
    /// The source of the plan.
    pub source: PlanSource,
    /// What is proven of the plan.
    pub status: PlanStatus,
    /// The makespan from `at_s` on, seconds.
    pub makespan_s: f64,
    /// A lower bound of the makespan, seconds; 0 if nothing is proven.
    pub lower_bound_s: f64,
    /// (makespan − lower bound) / lower bound.
    pub gap: f64,
    /// How long the solve took, seconds.
    pub solve_s: f64,
    /// Seconds that current practice would take from `at_s` on.
    pub current_practice_s: Option<f64>,
    /// Seconds that the plan before would have taken from `at_s` on.
    pub instead_of_s: Option<f64>,
    /// Its places by start; a task that is to switch has several. Empty for plans in the middle of
    /// very many.
    pub tasks: Vec<PlannedReport>,
}

impl PlanReport {
    /// How many tasks have a place in the plan.
    pub fn num_tasks(&self) -> usize {
        self.tasks.iter().map(|planned| planned.task).collect::<BTreeSet<_>>().len()
    }
}

/// A task, planned and realised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: Stage,
    /// When it was added.
    pub added_s: f64,
    /// Its priority, deadline and the like.
    pub wishes: Wishes,
    /// The loss of its last finished step.
    #[serde(default, with = "measure::optional")]
    pub final_loss: Option<f64>,
    /// Finished steps.
    pub step: u64,
    /// All of its steps.
    pub steps: Option<u64>,
    /// Technique of the last training attempt.
    pub technique: Option<String>,
    /// The number of devices of that attempt.
    pub gpus: Option<u32>,
    /// The knobs of that attempt.
    pub knobs: Knobs,
    /// When it was first launched for training.
    pub start_s: Option<f64>,
    /// When its last training attempt ended.
    pub end_s: Option<f64>,
    /// Seconds that the first plan with a place for it planned.
    pub planned_s: Option<f64>,
    /// Seconds in which it trained: the sum over its training attempts, from launch to end.
    #[serde(alias = "realised_s")]
    pub train_s: Option<f64>,
    /// Seconds of `train_s` in which training stood still for checkpoints.
    #[serde(default)]
    pub blocked_s: f64,
    /// The ratio of `train_s` to `planned_s`, less one. Only for a task that trained in one attempt
    /// as first planned.
    pub estimate_error: Option<f64>,
    /// The number of its training attempts.
    pub attempts: usize,
    /// Why it failed, or was cancelled or stopped.
    pub error: Option<String>,
    /// The worker's traceback; may be empty.
    pub traceback: String,
    /// Its directory of checkpoints, logs and metrics, within the run directory.
    pub dir: String,
    /// The parameters that distinguish it from other tasks.
    #[serde(default, skip_serializing_if = "Knobs::is_empty")]
    pub parameters: Knobs,
    /// Whether it is the part of a script after its training, where the training is another task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_rest: bool,
    /// The metric that it is judged by; absent: its loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// Its loss by step, thinned. Steps whose loss was not a finite number are left out.
    pub losses: Vec<LossPoint>,
    /// Its evaluations; null if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<EvaluationReport>,
}

/// A task's evaluations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationReport {
    /// The last evaluation; null before the first.
    pub last: Option<Evaluation>,
    /// The best evaluation, if the task says which is best.
    pub best: Option<BestEvaluation>,
    /// Seconds of training time in which training stood still for evaluations.
    pub taken_s: f64,
    /// All evaluations by step, thinned.
    pub all: Vec<Evaluation>,
}

/// A trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialReport {
    /// The index of the task that was measured.
    pub task: usize,
    /// The indices of all tasks that the trial measures for.
    pub speaks_for: Vec<usize>,
    /// Technique.
    pub technique: String,
    /// Device count.
    pub gpus: u32,
    /// Type of device.
    pub gpu_type: String,
    /// The knobs that the technique chose.
    pub knobs: Knobs,
    /// Whether it came from an earlier run.
    pub reused: bool,
    /// Whether it never ran, since an inspection gave the outcome.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ruled_out: bool,
    /// Its outcome; null until it has ended.
    pub result: Option<TrialOutcome>,
}

/// The inspection of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InspectionReport {
    /// The index of the first task with this model.
    pub task: usize,
    /// The indices of all tasks with this model.
    pub speaks_for: Vec<usize>,
    /// What the inspection found.
    #[serde(flatten)]
    pub found: Inspection,
}

/// The strategies that a set of tasks could have had, all with the same numbers and reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChoiceReport {
    /// The indices of the tasks.
    pub tasks: Vec<usize>,
    /// Their strategies, as `saturn explain` shows them for the first of these tasks.
    pub candidates: Vec<Candidate>,
}

/// One launch of a gang.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptReport {
    /// Its number.
    pub attempt: u64,
    /// Index into the report's tasks.
    pub task: usize,
    /// Its purpose.
    pub purpose: Purpose,
    /// Technique.
    pub technique: String,
    /// Device count.
    pub gpus: u32,
    /// Devices by node.
    pub gang: Gang,
    /// When it was launched.
    pub launched_s: f64,
    /// When training began.
    pub started_s: Option<f64>,
    /// When it ended; null while it runs.
    pub ended_s: Option<f64>,
    /// `finished`, `stopped`, `killed`, `lost`, `abandoned`, `failed`; null while it runs.
    pub how: Option<String>,
    /// The finished steps when it began.
    pub from_step: Option<u64>,
    /// The finished steps when it ended.
    pub step: u64,
    /// The error of a failed attempt: one line.
    pub error: Option<String>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// 3.
    pub version: u32,
    /// Name of the run.
    pub name: String,
    /// Whether it searched or trained.
    pub mode: Mode,
    /// Its status.
    pub status: RunStatus,
    /// The kind of its devices.
    pub device_kind: DeviceKind,
    /// How much each device may hold, bytes; null if only the device's size limits it.
    #[serde(default)]
    pub device_memory_bytes: Option<u64>,
    /// Every device that was ever in the pool.
    pub devices: Vec<DeviceReport>,
    /// Names of the techniques tried.
    pub techniques: Vec<String>,
    /// Time of the last record.
    pub now_s: f64,
    /// The whole run in numbers.
    pub totals: Totals,
    /// Every plan that was in force, oldest first.
    pub plans: Vec<PlanReport>,
    /// The tasks.
    pub tasks: Vec<TaskReport>,
    /// The inspections of models.
    #[serde(default)]
    pub inspections: Vec<InspectionReport>,
    /// The trials.
    pub trials: Vec<TrialReport>,
    /// The strategies that each task could have, and why it does not have them.
    #[serde(default)]
    pub choices: Vec<ChoiceReport>,
    /// Every attempt.
    pub attempts: Vec<AttemptReport>,
    /// Where the time of the devices went.
    #[serde(default)]
    pub device_time: DeviceTimeReport,
}

impl Report {
    /// The plan that the run is judged by.
    pub fn reference_plan(&self) -> Option<&PlanReport> {
        self.plans.get(self.totals.reference_plan?)
    }

    /// A task's name; `?` for an unknown index, which only a foreign file can have.
    pub fn task_name(&self, task: usize) -> &str {
        self.tasks.get(task).map_or("?", |task| task.name.as_str())
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        // Plain data with string keys always serialises. If it did not, this would give an empty
        // object.
        serde_json::to_string_pretty(self).map_or_else(|_| "{}\n".to_owned(), |text| text + "\n")
    }
}
