//! A comparison of several runs, as data: what `saturn report RUN RUN…` prints and draws.
//!
//! The runs need nothing in common. Tasks of the same name count as the same task. Times are on
//! each run's own clock. Within one `version`, fields are added and never removed or changed.

use std::collections::BTreeMap;

use saturn_engine::{DeviceKind, GoalMode, Purpose, Stage};
use serde::{Deserialize, Serialize};

use crate::facts::run_status::RunStatus;
use crate::report::data::{Report, Totals};

/// The version that [`Comparison::of`] makes.
pub const VERSION: u32 = 1;

/// Several runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// 1.
    pub version: u32,
    /// The runs in the order in which the user named them.
    pub runs: Vec<ComparedRun>,
    /// Every task name in any of the runs, in the order of first appearance.
    pub tasks: Vec<ComparedTask>,
}

/// A run in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// Its name in the comparison. Two runs of the same name are called by their paths.
    pub name: String,
    /// Its status.
    pub status: RunStatus,
    /// The kind of its devices.
    pub device_kind: DeviceKind,
    /// The number of its devices.
    pub devices: usize,
    /// How much each device may hold, bytes; null if only the device's size limits it.
    pub device_memory_bytes: Option<u64>,
    /// Names of the techniques tried.
    pub techniques: Vec<String>,
    /// Time of its last record.
    pub now_s: f64,
    /// Totals, as in `report.json`.
    pub totals: Totals,
    /// Device-seconds that training held.
    pub training_device_s: f64,
    /// Device-seconds that trials held.
    pub trials_device_s: f64,
    /// The best task. Null if no task has a value, apart from tasks that failed or were cancelled.
    pub best: Option<BestTask>,
}

/// The best task of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestTask {
    /// Its name.
    pub task: String,
    /// The metric by which it is best.
    pub metric: String,
    /// Its value of that metric.
    pub value: f64,
    /// Whether less is better.
    pub mode: GoalMode,
}

/// The tasks of one name, in all runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedTask {
    /// Their name.
    pub name: String,
    /// The task in each run, in the order of the runs; null for a run without a task of that name.
    pub runs: Vec<Option<TaskInRun>>,
}

/// A task in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskInRun {
    /// Its status.
    pub status: Stage,
    /// The technique of its last training attempt.
    pub technique: Option<String>,
    /// The number of devices of that attempt.
    pub gpus: Option<u32>,
    /// The number of its training attempts.
    pub attempts: usize,
    /// How long those attempts took together, seconds.
    pub train_s: Option<f64>,
    /// When the last of them ended, seconds.
    pub end_s: Option<f64>,
    /// Finished steps.
    pub step: u64,
    /// The metric that its result is judged by.
    pub metric: String,
    /// Its value of that metric.
    pub value: Option<f64>,
}

impl Comparison {
    /// Compares runs. Each is called by its report's `name`.
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

    /// The comparison as JSON, for programs.
    pub fn to_json(&self) -> String {
        // Plain data with string keys always serialises. If it did not, this would give an empty
        // object.
        serde_json::to_string_pretty(self).map_or_else(|_| "{}\n".to_owned(), |text| text + "\n")
    }
}

/// Every task name in these reports, in the order of first appearance.
pub(crate) fn task_names(reports: &[Report]) -> Vec<&str> {
    let mut known = std::collections::BTreeSet::new();
    let names = reports.iter().flat_map(|report| &report.tasks).map(|task| task.name.as_str());
    names.filter(|name| known.insert(*name)).collect()
}

/// The index in `names` of each task of a report.
pub(crate) fn places(report: &Report, names: &[&str]) -> Vec<usize> {
    let places: BTreeMap<&str, usize> =
        names.iter().enumerate().map(|(place, name)| (*name, place)).collect();
    let place = |name: &str| places.get(name).copied().unwrap_or_default();
    report.tasks.iter().map(|task| place(&task.name)).collect()
}

fn compared(report: &Report) -> ComparedRun {
    let device_s = |purpose: Purpose| -> f64 {
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
        training_device_s: device_s(Purpose::Train),
        trials_device_s: device_s(Purpose::Trial),
        best,
    }
}
