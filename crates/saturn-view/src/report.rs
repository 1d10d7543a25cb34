//! A run as data: what `report.json` holds and `report.html` draws.
//!
//! Times are seconds on the run's clock (0 is the run's beginning; it stands still while no process
//! drives the run). Fields are only ever added within one `version`.

mod build;
mod choices;
mod metrics;
mod ranking;

use std::collections::BTreeSet;

use saturn_core::{Gang, Inspection, Knobs, PlanStatus, TrialOutcome, WHOLE, measure};
use saturn_engine::{BestEvaluation, DeviceKind, Evaluation, Goal, Mode, PlanSource, Wishes};
use serde::{Deserialize, Serialize};

use crate::explain::Candidate;

pub(crate) use ranking::{Ranked, judged_by, value};

pub use metrics::{LossPoint, MAX_POINTS, TaskMetrics, read_metrics};

/// The version that [`Report::build`] makes.
pub const VERSION: u32 = 3;

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Every task has ended (in a search: every trial).
    Complete,
    /// Stopped by the person; it can be resumed.
    Interrupted,
    /// Its driver went away without a word; it can be resumed.
    Died,
    /// None of these: a driver has it in hand.
    Unfinished,
}

impl RunStatus {
    /// How files and people call it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Interrupted => "interrupted",
            Self::Died => "died",
            Self::Unfinished => "unfinished",
        }
    }
}

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskReportStatus {
    /// No strategy of it has been measured yet, and nothing that would be runs.
    Unmeasured,
    /// Its model, or one like it, is looked at.
    Inspecting,
    /// No strategy of it has been measured yet, and one is.
    Measuring,
    /// It could train, and waits.
    Waiting,
    /// Training.
    Running,
    /// Paused.
    Paused,
    /// Held by the stopper.
    Held,
    /// Trained to the end.
    Done,
    /// Trained to the end, where the loss was no finite number.
    Diverged,
    /// Given up.
    Failed,
    /// Not wanted any more.
    Cancelled,
    /// Ended by the stopper.
    Stopped,
}

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
    /// Whether it is in the pool still.
    pub is_there: bool,
    /// Why it is not used, where it is set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
}

/// The numbers of the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Tasks of the workload.
    pub tasks: usize,
    /// Of these, trained to the end.
    pub done: usize,
    /// Of these, trained to the end, where the loss was no finite number; they don't count as done.
    #[serde(default)]
    pub diverged: usize,
    /// Of these, given up.
    pub failed: usize,
    /// Of these, not wanted any more.
    pub cancelled: usize,
    /// Of these, ended by the stopper.
    #[serde(default)]
    pub stopped: usize,
    /// Index of the plan that the run is judged by: the first with a place for every task that ever
    /// got one. What follows speaks of the time from its adoption on.
    pub reference_plan: Option<usize>,
    /// From the run's start, or the first task's arrival where that was later, to the end of the last
    /// training attempt: trials and the starts of drivers included.
    #[serde(default)]
    pub total_s: Option<f64>,
    /// The part of `total_s` in which drivers started, seconds.
    #[serde(default)]
    pub startup_s: f64,
    /// What current practice would take from its start to its end.
    #[serde(default)]
    pub current_practice_total_s: Option<f64>,
    /// Whether that rests on an estimate of a strategy that nobody has measured.
    #[serde(default)]
    pub current_practice_is_estimate: bool,
    /// Whether all steps of all planned tasks were trained. If not, as in a search, the run did less than
    /// its plan, the bound and current practice speak of.
    #[serde(default)]
    pub did_all_that_was_planned: bool,
    /// From that plan to the end of the last training attempt.
    pub makespan_s: Option<f64>,
    /// Makespan of that plan.
    pub planned_makespan_s: Option<f64>,
    /// Proven lower bound of the makespan, by the estimates of that plan.
    pub lower_bound_s: Option<f64>,
    /// What current practice (all devices for one task at a time, its best technique) would take from
    /// that plan on, by the profile.
    pub current_practice_s: Option<f64>,
    /// Share of the devices' time within the realised makespan that training attempts held.
    pub device_use: Option<f64>,
    /// From the run's beginning to its first plan, or to its end without one.
    pub trials_s: f64,
    /// Trials run, and taken from an earlier search.
    pub trials: usize,
    /// Of these, measured.
    pub trials_measured: usize,
}

impl Totals {
    /// Whether a run may be held against its plan, the bound and current practice: not if it has ended
    /// with less training than these speak of.
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
    /// The part of the task's work that is done here, less than 1 where it is to be switched.
    #[serde(default = "whole", skip_serializing_if = "is_whole")]
    pub share: f64,
    /// Finished steps at which it is to be switched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_step: Option<u64>,
    /// Whether its times rest on an estimate, where nobody had measured the strategy.
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
    /// Where it comes from.
    pub source: PlanSource,
    /// What is proven of it.
    pub status: PlanStatus,
    /// From `at_s`.
    pub makespan_s: f64,
    /// Of the makespan; 0 where nothing is proven.
    pub lower_bound_s: f64,
    /// (makespan − lower bound) / lower bound.
    pub gap: f64,
    /// How long the solve took.
    pub solve_s: f64,
    /// What current practice would take from `at_s`.
    pub current_practice_s: Option<f64>,
    /// What was in force before would have taken from `at_s`.
    pub instead_of_s: Option<f64>,
    /// By start; a task that is to be switched has several. Empty in the middle of very many plans.
    pub tasks: Vec<PlannedReport>,
}

impl PlanReport {
    /// Tasks that have a place in it.
    pub fn num_tasks(&self) -> usize {
        self.tasks.iter().map(|planned| planned.task).collect::<BTreeSet<_>>().len()
    }
}

/// A task, planned and realised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Its name.
    pub name: String,
    /// How it stands.
    pub status: TaskReportStatus,
    /// When it came.
    pub added_s: f64,
    /// What is wished of its time.
    pub wishes: Wishes,
    /// Loss of the last of `step`.
    #[serde(default, with = "measure::optional")]
    pub final_loss: Option<f64>,
    /// Finished steps.
    pub step: u64,
    /// Steps in all.
    pub steps: Option<u64>,
    /// Technique of the last training attempt.
    pub technique: Option<String>,
    /// Its device count.
    pub gpus: Option<u32>,
    /// Its knobs.
    pub knobs: Knobs,
    /// First launch for training.
    pub start_s: Option<f64>,
    /// End of the last training attempt.
    pub end_s: Option<f64>,
    /// What the first plan with a place for it gave it, seconds.
    pub planned_s: Option<f64>,
    /// Seconds in which it trained: the sum over its training attempts, from launch to end.
    #[serde(alias = "realised_s")]
    pub train_s: Option<f64>,
    /// For how much of that training stood still for checkpoints, seconds.
    #[serde(default)]
    pub blocked_s: f64,
    /// `train_s` over `planned_s`, less one; only where it trained in one attempt as first planned.
    pub estimate_error: Option<f64>,
    /// Training attempts.
    pub attempts: usize,
    /// Why it was given up, or is not wanted any more.
    pub error: Option<String>,
    /// The worker's own traceback, or empty.
    pub traceback: String,
    /// Checkpoints, logs and metrics, within the run directory.
    pub dir: String,
    /// The values that tell it from other tasks.
    #[serde(default, skip_serializing_if = "Knobs::is_empty")]
    pub parameters: Knobs,
    /// It is what a script does after the training that another task is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_rest: bool,
    /// What says how well it does; absent: its loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// Loss by step, thinned; steps whose loss was no finite number are left out.
    pub losses: Vec<LossPoint>,
    /// What its evaluations found; null where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<EvaluationReport>,
}

/// A task's evaluations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationReport {
    /// The last; null before the first.
    pub last: Option<Evaluation>,
    /// The best, where the task says which is that.
    pub best: Option<BestEvaluation>,
    /// For how much of its time training stood still for them, seconds.
    pub taken_s: f64,
    /// All of them by step, thinned.
    pub all: Vec<Evaluation>,
}

/// A trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialReport {
    /// Index of the task that was measured.
    pub task: usize,
    /// Indices of all tasks that it speaks for.
    pub speaks_for: Vec<usize>,
    /// Technique.
    pub technique: String,
    /// Device count.
    pub gpus: u32,
    /// Type of device.
    pub gpu_type: String,
    /// Knobs that the technique chose.
    pub knobs: Knobs,
    /// It came from an earlier search.
    pub reused: bool,
    /// It was never run: a look at the model has told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ruled_out: bool,
    /// What came of it; null until it has ended.
    pub result: Option<TrialOutcome>,
}

/// What a look at a model found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InspectionReport {
    /// Index of the first task that has this model.
    pub task: usize,
    /// Indices of all tasks that it speaks for.
    pub speaks_for: Vec<usize>,
    /// What was found.
    #[serde(flatten)]
    pub found: Inspection,
}

/// What tasks that are alike in all of this could have trained under.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChoiceReport {
    /// Indices of the tasks.
    pub tasks: Vec<usize>,
    /// Their strategies, as `saturn explain` tells them of the first of the tasks.
    pub candidates: Vec<Candidate>,
}

/// What an attempt was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptPurpose {
    /// A look at the model, on no device and under no technique.
    Inspection,
    /// A trial.
    Trial,
    /// Training.
    Train,
}

/// One launch of a gang.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptReport {
    /// Its number.
    pub attempt: u64,
    /// Index into the report's tasks.
    pub task: usize,
    /// What it was for.
    pub purpose: AttemptPurpose,
    /// Technique.
    pub technique: String,
    /// Device count.
    pub gpus: u32,
    /// Devices by node.
    pub gang: Gang,
    /// Launch.
    pub launched_s: f64,
    /// Begin of training.
    pub started_s: Option<f64>,
    /// End; null while it runs.
    pub ended_s: Option<f64>,
    /// `finished`, `stopped`, `killed`, `lost`, `abandoned`, `failed`; null while it runs.
    pub how: Option<String>,
    /// Finished steps when it began.
    pub from_step: Option<u64>,
    /// Finished steps when it ended.
    pub step: u64,
    /// Why it failed: one line.
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
    /// How it stands.
    pub status: RunStatus,
    /// What its devices are.
    pub device_kind: DeviceKind,
    /// What each may hold, bytes; null without a limit but its own.
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
    /// Every plan that was in force, the first first.
    pub plans: Vec<PlanReport>,
    /// The workload.
    pub tasks: Vec<TaskReport>,
    /// What looks at the models found.
    #[serde(default)]
    pub inspections: Vec<InspectionReport>,
    /// The profile.
    pub trials: Vec<TrialReport>,
    /// What each task could train under, and why it does not.
    #[serde(default)]
    pub choices: Vec<ChoiceReport>,
    /// Every launch.
    pub attempts: Vec<AttemptReport>,
}

impl Report {
    /// The plan that the run is judged by.
    pub fn reference_plan(&self) -> Option<&PlanReport> {
        self.plans.get(self.totals.reference_plan?)
    }

    /// A task's name; `?` for an index that names none, as only a file not written here could hold.
    pub fn task_name(&self, task: usize) -> &str {
        self.tasks.get(task).map_or("?", |task| task.name.as_str())
    }

    /// The report as a file.
    pub fn to_json(&self) -> String {
        // Plain data with string keys always serialises; were it not so, an empty object says it.
        serde_json::to_string_pretty(self).map_or_else(|_| "{}\n".to_owned(), |text| text + "\n")
    }
}
