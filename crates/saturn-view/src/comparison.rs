//! Several runs side by side, as data: what `saturn report RUN RUN…` prints and draws.
//!
//! Runs need have nothing in common; tasks of one name are taken for the same. Times are on each run's
//! own clock. Fields are only ever added within one `version`.

use std::collections::BTreeMap;

use saturn_engine::{DeviceKind, GoalMode};
use serde::{Deserialize, Serialize};

use crate::report::{AttemptPurpose, Report, RunStatus, TaskReportStatus, Totals};

/// The version that [`Comparison::of`] makes.
pub const VERSION: u32 = 1;

/// Several runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// 1.
    pub version: u32,
    /// In the order in which they were named.
    pub runs: Vec<ComparedRun>,
    /// Every name that a task of any of them has, in the order in which they come.
    pub tasks: Vec<ComparedTask>,
}

/// A run in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// What it is called here; two runs of one name are called by their paths.
    pub name: String,
    /// How it stands.
    pub status: RunStatus,
    /// What its devices are.
    pub device_kind: DeviceKind,
    /// How many it has.
    pub devices: usize,
    /// What each may hold, bytes; null without a limit but its own.
    pub device_memory_bytes: Option<u64>,
    /// Names of the techniques tried.
    pub techniques: Vec<String>,
    /// Time of its last record.
    pub now_s: f64,
    /// As `report.json` has them.
    pub totals: Totals,
    /// Devices times seconds that training held.
    pub training_device_s: f64,
    /// The same of trials.
    pub trials_device_s: f64,
    /// The task that did best; null where none has a value, but such as failed or were cancelled.
    pub best: Option<BestTask>,
}

/// The task of a run that did best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestTask {
    /// Its name.
    pub task: String,
    /// What says how well it did.
    pub metric: String,
    /// How well it did by that.
    pub value: f64,
    /// Whether less is better.
    pub mode: GoalMode,
}

/// The tasks of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedTask {
    /// Their name.
    pub name: String,
    /// Of each run in turn; null where it has none of that name.
    pub runs: Vec<Option<TaskInRun>>,
}

/// A task of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskInRun {
    /// How it stands.
    pub status: TaskReportStatus,
    /// Technique of its last training attempt.
    pub technique: Option<String>,
    /// Its device count.
    pub gpus: Option<u32>,
    /// Training attempts.
    pub attempts: usize,
    /// What they took, seconds.
    pub train_s: Option<f64>,
    /// End of the last of them.
    pub end_s: Option<f64>,
    /// Finished steps.
    pub step: u64,
    /// What says how well it did.
    pub metric: String,
    /// How well it did by that.
    pub value: Option<f64>,
}

impl Comparison {
    /// Compares runs; a report's `name` is what it is called here.
    pub fn of(reports: &[Report]) -> Self {
        let names = task_names(reports);
        let mut tasks: Vec<ComparedTask> = names
            .iter()
            .map(|name| ComparedTask { name: (*name).to_owned(), runs: vec![None; reports.len()] })
            .collect();
        for (run, report) in reports.iter().enumerate() {
            for (task, place) in report.tasks.iter().zip(places(report, &names)) {
                tasks[place].runs[run] = Some(TaskInRun {
                    status: task.status,
                    technique: task.technique.clone(),
                    gpus: task.gpus,
                    attempts: task.attempts,
                    train_s: task.train_s,
                    end_s: task.end_s,
                    step: task.step,
                    metric: task.metric().to_owned(),
                    value: task.value().filter(|value| value.is_finite()),
                });
            }
        }
        Self { version: VERSION, runs: reports.iter().map(compared).collect(), tasks }
    }

    /// The comparison as a line of text for programs.
    pub fn to_json(&self) -> String {
        // Plain data with string keys always serialises; were it not so, an empty object says it.
        serde_json::to_string_pretty(self).map_or_else(|_| "{}\n".to_owned(), |text| text + "\n")
    }
}

/// Every name that a task has, in the order in which they come.
pub(crate) fn task_names(reports: &[Report]) -> Vec<&str> {
    let mut known = std::collections::BTreeSet::new();
    let names = reports.iter().flat_map(|report| &report.tasks).map(|task| task.name.as_str());
    names.filter(|name| known.insert(*name)).collect()
}

/// The place of each of a report's tasks in the names of all.
pub(crate) fn places(report: &Report, names: &[&str]) -> Vec<usize> {
    let places: BTreeMap<&str, usize> =
        names.iter().enumerate().map(|(place, name)| (*name, place)).collect();
    let place = |name: &str| places.get(name).copied().unwrap_or_default();
    report.tasks.iter().map(|task| place(&task.name)).collect()
}

fn compared(report: &Report) -> ComparedRun {
    let device_s = |purpose: AttemptPurpose| -> f64 {
        let attempts = report.attempts.iter().filter(|one| one.purpose == purpose);
        let held_s = attempts.map(|one| {
            let held_s = one.ended_s.unwrap_or(report.now_s) - one.launched_s;
            held_s.max(0.0) * f64::from(one.gpus)
        });
        held_s.sum()
    };
    let best = report.best().map(|best| BestTask {
        task: best.task.name.clone(),
        metric: best.task.metric().to_owned(),
        value: best.value,
        mode: best.task.judged().1,
    });
    ComparedRun {
        name: report.name.clone(),
        status: report.status,
        device_kind: report.device_kind,
        devices: report.devices.iter().filter(|device| device.is_there).count(),
        device_memory_bytes: report.device_memory_bytes,
        techniques: report.techniques.clone(),
        now_s: report.now_s,
        totals: report.totals.clone(),
        training_device_s: device_s(AttemptPurpose::Train),
        trials_device_s: device_s(AttemptPurpose::Trial),
        best,
    }
}
