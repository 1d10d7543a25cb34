//! Where a run and each of its tasks stand at a moment, as data.
//!
//! This works for runs in progress, for ended runs and for runs that nobody drives. Everything
//! comes from the journal, except the live step and loss if a driver answers.

use std::collections::BTreeMap;

use saturn_core::{Gang, Knobs, measure};
use saturn_engine::{
    AttemptId, BestEvaluation, DeviceId, DeviceKind, Evaluation, Goal, Mode, NodeId, Place,
    Purpose, Stage, State, StopReason, TaskEnd, TaskId, TaskStatus as EngineStatus, devices,
};
use serde::{Deserialize, Serialize};

use crate::facts::counts::{TaskCounts, TrialCounts};
use crate::facts::expect::{Band, Expected};
use crate::facts::goal::value;
use crate::facts::history::History;
use crate::facts::outcome::train_s;
use crate::facts::run_status::RunStatus;
use crate::facts::ways::{next_places, way_of};
use crate::phrases::words::first_line;
use crate::status::people::{PersonStatus, people};

/// The version of [`Status`]. Within one version, fields are added and never removed or changed.
const VERSION: u32 = 1;

/// Devices of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicesOn {
    /// Name of the node.
    pub node: String,
    /// Ids on that node, ascending.
    pub devices: Vec<u32>,
}

/// A device that is set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    /// Name of its node.
    pub node: String,
    /// Its id on the node.
    pub device: u32,
    /// Why.
    pub reason: String,
}

/// The pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The kind of its devices.
    pub device_kind: DeviceKind,
    /// The number of nodes that are there.
    pub nodes: usize,
    /// The number of usable devices.
    pub devices: usize,
    /// How many of these are held by attempts.
    pub busy: usize,
    /// Devices that are there but set aside.
    pub set_aside: Vec<SetAside>,
    /// The nodes that are there, in the order in which they joined.
    #[serde(default)]
    pub by_node: Vec<NodeStatus>,
}

/// A node of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Type of its devices.
    pub gpu_type: String,
    /// The number of usable devices.
    pub devices: usize,
    /// How many of these are held by attempts.
    pub busy: usize,
}

/// A trial that runs now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningTrial {
    /// The name of the task that it measures.
    pub task: String,
    /// Technique.
    pub technique: String,
    /// Device count.
    pub gpus: u32,
    /// Its devices.
    pub devices: Vec<DevicesOn>,
    /// Time of launch.
    pub launched_s: f64,
}

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub stage: Stage,
    /// Finished steps.
    pub step: u64,
    /// Steps in all; null until they are known.
    pub steps: Option<u64>,
    /// The loss of its last finished step.
    #[serde(default, with = "measure::optional")]
    pub loss: Option<f64>,
    /// Its last evaluation.
    #[serde(default)]
    pub evaluation: Option<Evaluation>,
    /// Its best evaluation, if it says which is best.
    #[serde(default)]
    pub best: Option<BestEvaluation>,
    /// The metric that it is judged by; null: its loss.
    #[serde(default)]
    pub goal: Option<Goal>,
    /// Its value of that metric: of its best evaluation if there is one, else of its last.
    #[serde(default, with = "measure::optional")]
    pub value: Option<f64>,
    /// The technique under which it trains now, or else will train by the plan in force, or else
    /// trained last.
    pub technique: Option<String>,
    /// The number of devices of that training.
    pub gpus: Option<u32>,
    /// The technique's knobs in that training.
    #[serde(default)]
    pub knobs: Option<Knobs>,
    /// The type of device of that training.
    pub gpu_type: Option<String>,
    /// The devices of that training.
    pub devices: Vec<DevicesOn>,
    /// Number of its live training attempt.
    pub attempt: Option<u64>,
    /// Why its live attempt was asked to stop.
    pub stopping: Option<StopReason>,
    /// The number of its training attempts so far.
    pub attempts: usize,
    /// When it was added.
    pub added_s: f64,
    /// When it was first launched to train.
    pub started_s: Option<f64>,
    /// The expected time of its launch, if it waits.
    pub expected_start_s: Option<f64>,
    /// The expected time of its end.
    pub expected_end_s: Option<f64>,
    /// The earliest and the latest end within the error band.
    pub expected_end_band_s: Option<(f64, f64)>,
    /// When it ended.
    pub ended_s: Option<f64>,
    /// Seconds in which it trained so far: the sum over its training attempts, from launch to end.
    #[serde(default)]
    pub train_s: Option<f64>,
    /// Its priority: a higher number makes it end sooner.
    pub priority: i32,
    /// The time by which it should end.
    pub deadline_s: Option<f64>,
    /// The same on the clock of the machine of the person who asks, while a process drives the run and
    /// the task has not ended: `23:59`, or `2026-11-28 09:00` on another day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// Whether it is expected to end, or has ended, after its deadline; null without a deadline,
    /// and while its end is not known.
    #[serde(default)]
    pub is_late: Option<bool>,
    /// The time before which it must not train.
    pub release_s: f64,
    /// The names of tasks that must be done before it starts.
    pub after: Vec<String>,
    /// Why it failed, or was cancelled or stopped: one line.
    pub error: Option<String>,
    /// It waits for devices that this pool does not have, and will not get.
    #[serde(default)]
    pub lacks_devices: bool,
    /// It runs the part of a script that follows the training of another task; left out if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_rest: bool,
    /// The steps that the task of another run had trained which it continues; left out if it
    /// continues none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_step: u64,
    /// The stopper holds it, perhaps while it is paused too; left out if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_held: bool,
    /// Its directory within the run directory.
    #[serde(default)]
    pub dir: String,
    /// The login name of the person whose it is; left out if that is the person whose process drives
    /// the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// By when its person can count on its end, in a run that people share; left out elsewhere, and
    /// until that is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed_s: Option<f64>,
}

/// Where a run stands. All times are seconds on its clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// 1.
    pub version: u32,
    /// Whether it searches or trains.
    pub mode: Mode,
    /// The status of the run.
    pub status: RunStatus,
    /// The time of this status.
    pub now_s: f64,
    /// Whether no more tasks will come.
    pub is_closed: bool,
    /// Whether a person asked the run to stop; true: at once.
    pub stopping: Option<bool>,
    /// Tasks by stage.
    pub counts: TaskCounts,
    /// Trials by outcome.
    pub trials: TrialCounts,
    /// The name of the first task that waits for space on the disk, and what could not be written.
    #[serde(default)]
    pub waits_space: Option<(String, String)>,
    /// Trials that run now.
    pub running_trials: Vec<RunningTrial>,
    /// The pool.
    pub pool: PoolStatus,
    /// The expected end of all planned tasks.
    pub expected_end_s: Option<f64>,
    /// The earliest and the latest end within the error band.
    pub expected_end_band_s: Option<(f64, f64)>,
    /// How many tasks have not ended and have no place in the plan, so that nothing is expected of
    /// them.
    pub unplanned: usize,
    /// The error band of the ends of tasks that train.
    pub band: Band,
    /// The error band of the ends of tasks that wait.
    pub waiting_band: Band,
    /// The error band of the run's end.
    pub run_band: Band,
    /// The people who share the run, by name; left out if the run is one person's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub people: Vec<PersonStatus>,
    /// Every task, in the order in which they were added.
    pub tasks: Vec<TaskStatus>,
}

/// The status of a run at `now_s`.
pub fn status(state: &State, history: &History, now_s: f64) -> Status {
    let expected = Expected::of(state, history, now_s);
    let next = next_places(state);
    let of_task = |id| task(state, history, &expected, next.get(&id).copied(), id);
    let tasks: Vec<TaskStatus> = state.task_ids().map(of_task).collect();
    let is_unplanned = |task: &&TaskStatus| task.ended_s.is_none() && task.expected_end_s.is_none();
    Status {
        version: VERSION,
        mode: state.config.mode,
        status: RunStatus::of(state, history),
        now_s,
        is_closed: state.is_closed,
        stopping: state.interrupted,
        counts: TaskCounts::of(state),
        trials: TrialCounts::of(state),
        waits_space: waits_space(state),
        running_trials: running_trials(state),
        pool: pool(state),
        expected_end_s: expected.end_s(),
        expected_end_band_s: expected.run_end_band(),
        unplanned: tasks.iter().filter(is_unplanned).count(),
        band: expected.band,
        waiting_band: expected.waiting_band,
        run_band: expected.run_band,
        people: people(state, &expected),
        tasks,
    }
}

fn task(
    state: &State,
    history: &History,
    expected: &Expected,
    next: Option<&Place>,
    id: TaskId,
) -> TaskStatus {
    let task = state.task(id);
    let way = way_of(state, history, next, id);
    let live = state.attempt_of(id);
    let wishes = &task.spec.wishes;
    let times = expected.times(id).filter(|_| !state.has_ended(id));
    let ended_s = history.task(id).and_then(|past| past.ended_s);
    TaskStatus {
        name: task.spec.name.clone(),
        stage: state.stage(id),
        step: task.step,
        steps: task.steps,
        loss: task.loss,
        evaluation: task.evaluation.clone(),
        best: task.best.clone(),
        goal: task.spec.goal.clone(),
        value: value(
            task.spec.goal.as_ref(),
            task.loss,
            task.evaluation.as_ref(),
            task.best.as_ref(),
        ),
        technique: way.map(|(strategy, _)| strategy.technique.clone()),
        gpus: way.map(|(strategy, _)| strategy.gpus),
        knobs: way.map(|(strategy, _)| strategy.knobs.clone()),
        gpu_type: way.map(|(_, gang)| state.gang_type(gang).to_owned()),
        devices: way.map(|(_, gang)| devices_on(state, gang)).unwrap_or_default(),
        attempt: live.map(|(AttemptId(number), _)| number),
        stopping: live.and_then(|(_, attempt)| Some(attempt.stopping?.0)),
        attempts: history.training(id).count(),
        added_s: task.added_s,
        started_s: history.training(id).next().map(|(_, first)| first.launched_s),
        expected_start_s: times.filter(|_| live.is_none()).map(|(start_s, _)| start_s),
        expected_end_s: times.map(|(_, end_s)| end_s),
        expected_end_band_s: times.and_then(|_| expected.end_band(id)),
        ended_s,
        train_s: train_s(history, id, expected.now_s),
        priority: wishes.priority,
        deadline_s: wishes.deadline_s,
        due: None,
        is_late: wishes
            .deadline_s
            .zip(times.map(|(_, end_s)| end_s).or(ended_s))
            .map(|(due_s, end_s)| end_s > due_s),
        release_s: wishes.release_s,
        after: wishes.after.iter().map(|before| state.name(*before).to_owned()).collect(),
        error: match &task.status {
            EngineStatus::Ended(TaskEnd::Failed { error, .. }) => Some(error.clone()),
            EngineStatus::Ended(TaskEnd::Cancelled { reason } | TaskEnd::Stopped { reason }) => {
                Some(reason.clone())
            }
            _ => None,
        },
        lacks_devices: state.lacking_devices(id).is_some(),
        is_rest: task.spec.is_rest,
        start_step: task.spec.start_step,
        is_held: task.held().is_some() && !state.has_ended(id),
        dir: task.spec.dir.clone(),
        owner: task.spec.owner.as_ref().map(|owner| owner.name.clone()),
        guaranteed_s: task.guaranteed_s().filter(|_| !state.has_ended(id)),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

pub(crate) fn devices_on(state: &State, gang: &Gang) -> Vec<DevicesOn> {
    let name = |node: usize| state.cluster.nodes.get(node).map_or("?", |spec| spec.name.as_str());
    gang.iter()
        .map(|part| DevicesOn { node: name(part.node).to_owned(), devices: part.devices.clone() })
        .collect()
}

fn waits_space(state: &State) -> Option<(String, String)> {
    let (task, no_space) = state.without_space().next()?;
    Some((state.name(task).to_owned(), first_line(&no_space.error)))
}

fn running_trials(state: &State) -> Vec<RunningTrial> {
    let trials = state.attempts.values().filter(|attempt| attempt.purpose == Purpose::Trial);
    trials
        .map(|attempt| RunningTrial {
            task: state.name(attempt.task).to_owned(),
            technique: attempt.strategy.technique.clone(),
            gpus: attempt.strategy.gpus,
            devices: devices_on(state, &attempt.gang),
            launched_s: attempt.launched_s,
        })
        .collect()
}

fn pool(state: &State) -> PoolStatus {
    let held = state.attempts.values().flat_map(|attempt| devices(&attempt.gang));
    let held: Vec<DeviceId> = held.filter(|device| state.is_usable(*device)).collect();
    let mut busy: BTreeMap<NodeId, usize> = BTreeMap::new();
    for device in &held {
        *busy.entry(device.node).or_default() += 1;
    }
    let status_of = |node: NodeId| NodeStatus {
        name: state.cluster.nodes[node.0].name.clone(),
        gpu_type: state.gpu_type(node).to_owned(),
        devices: state.usable_devices(node).count(),
        busy: busy.get(&node).copied().unwrap_or(0),
    };
    let of_node = |node: NodeId| {
        let name = state.cluster.nodes[node.0].name.clone();
        let devices = (0u32..).zip(&state.nodes[node.0].devices);
        devices.filter_map(move |(device, one)| {
            let reason = one.set_aside.clone()?;
            Some(SetAside { node: name.clone(), device, reason })
        })
    };
    PoolStatus {
        device_kind: state.config.device_kind,
        nodes: state.present_nodes().count(),
        devices: state.num_devices(),
        busy: held.len(),
        set_aside: state.present_nodes().flat_map(of_node).collect(),
        by_node: state.present_nodes().map(status_of).collect(),
    }
}
