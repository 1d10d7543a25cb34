//! What is left of a run, as a planning problem: for `saturn whatif`, which plans it on more nodes.
//!
//! If a process drives the run, the answer comes from that process, since it knows how far the live
//! attempts are. Otherwise it comes from the journal. The run is only read.

use std::path::Path;

use saturn_core::{Node, Plan, Problem, Wide};
use saturn_engine::{
    Forecast, Refusal, RefusalCode, RemainingWork, Stage, State, TaskId, forecast, remaining_work,
};
use saturn_solver::Objective;
use saturn_view::{History, RunStatus, replay};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answering::reports::{ask_or_read, read_back};
use crate::asking::control::{Query, Reply};
use crate::run_files::recording::recorded;
use crate::system::error::RuntimeError;

/// A task that is not in the problem, though it has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplanned {
    /// Its name.
    pub task: String,
    /// Where it stands.
    pub stage: Stage,
}

/// What is left of a run. All times are seconds on its clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// The status of the run.
    pub status: RunStatus,
    /// The time on the run's clock for which this holds.
    pub now_s: f64,
    /// The remaining work, as the run puts it to the solver. The problem has no nodes if the run
    /// lost all of its nodes.
    pub problem: Problem,
    /// The objective, which plans minimise.
    pub objective: Objective,
    /// Switches that a plan may have for each task.
    pub max_switches: usize,
    /// The part by which a plan with switches must end earlier.
    pub min_switch_gain: f64,
    /// The part by which a plan that moves running tasks must end earlier.
    #[serde(default)]
    pub min_move_gain: f64,
    /// The seconds by which a plan that moves running tasks must end earlier.
    #[serde(default)]
    pub min_move_gain_s: f64,
    /// What is open of the plan in force.
    pub warm_start: Option<Plan>,
    /// When the run expects to end by the plan in force; `None` if that plan lacks tasks.
    pub expected_end_s: Option<f64>,
    /// The most frequent kind of node in the run. Among equally frequent kinds, the kind with the
    /// most devices.
    pub node: Option<Node>,
    /// The run's nodes, each with all of its devices, usable or not.
    #[serde(default)]
    pub nodes: Vec<Node>,
    /// Measured strategies that the run's nodes can't hold now.
    #[serde(default)]
    pub wide: Vec<Wide>,
    /// The tasks that count as cancelled: those that were named, and those that come after them.
    pub cancelled: Vec<String>,
    /// Tasks that no plan can contain now.
    pub unplanned: Vec<Unplanned>,
}

/// What is left of a run, if the tasks of these names were cancelled now.
pub fn left(run_dir: &Path, without: &[String]) -> Result<Left, RuntimeError> {
    let query = Query::Left { without: without.to_vec() };
    read_back(ask_or_read(run_dir, &query)?.left)
}

/// What was left of a run when its clock showed `at_s`. `run` is its directory, or a recording.
/// The run counts as driven at that time, unless it had ended.
pub fn left_at(run: &Path, without: &[String], at_s: f64) -> Result<Left, RuntimeError> {
    let records = recorded(run)?.records;
    let end_s = records.last().map_or(0.0, |(_, record_s)| *record_s);
    if at_s > end_s {
        // A process that drives the run knows what the journal does not have yet.
        let now_s = if run.is_dir() { left(run, &[])?.now_s } else { end_s };
        if at_s > now_s {
            let (asked, now) = (clock_words(at_s), clock_words(now_s));
            let reason = format!("the run's journal ends at {now}: {asked} is later");
            return Err(RuntimeError::Refused { reason });
        }
    }
    let records = records.into_iter().take_while(|(_, record_s)| *record_s <= at_s);
    let Some((state, history)) = replay(records) else {
        return Err(RuntimeError::Refused { reason: "the run had not begun then".to_owned() });
    };
    of(&state, &history, without, at_s)
        .map_err(|refusal| RuntimeError::Refused { reason: refusal.reason })
}

/// A time on a run's clock, as `--at` takes it.
fn clock_words(at_s: f64) -> String {
    format!("{at_s:.1}s")
}

/// What is left of a run that a recording tells of.
pub fn left_of_recording(recording: &Path, without: &[String]) -> Result<Left, RuntimeError> {
    let records = recorded(recording)?.records;
    let end_s = records.last().map_or(0.0, |(_, at_s)| *at_s);
    left_at(recording, without, end_s)
}

/// The reply to [`Query::Left`].
pub(crate) fn answer(
    state: &State,
    history: &History,
    without: &[String],
    now_s: f64,
) -> Result<Reply, Refusal> {
    let left = of(state, history, without, now_s)?;
    let left: Value = serde_json::to_value(left)
        .map_err(|error| RefusalCode::Internal.because(error.to_string()))?;
    Ok(Reply { left: Some(left), ..Reply::done() })
}

fn of(state: &State, history: &History, without: &[String], now_s: f64) -> Result<Left, Refusal> {
    let without: Vec<TaskId> =
        without.iter().map(|name| open_task(state, name)).collect::<Result<_, _>>()?;
    let RemainingWork {
        problem,
        tasks,
        objective,
        max_switches,
        min_switch_gain,
        min_move_gain,
        min_move_gain_s,
        warm_start,
        wide,
        cancelled,
        unplanned,
    } = remaining_work(state, &without, now_s);
    let expected = state.ended.is_none().then(|| forecast(state, now_s));
    // The plan in force may lack tasks that have just been measured.
    let is_whole = |expected: &Forecast| tasks.iter().all(|task| expected.tasks.contains_key(task));
    let expected = expected.filter(|expected| !expected.tasks.is_empty() && is_whole(expected));
    let name = |task: TaskId| state.name(task).to_owned();
    let of_task = |task: TaskId| Unplanned { task: name(task), stage: state.stage(task) };
    Ok(Left {
        status: RunStatus::of(state, history),
        now_s,
        problem,
        objective,
        max_switches,
        min_switch_gain,
        min_move_gain,
        min_move_gain_s,
        warm_start,
        expected_end_s: expected.map(|expected| expected.end_s),
        node: usual_node(state),
        nodes: state.present_nodes().map(|id| state.cluster.nodes[id.0].clone()).collect(),
        wide,
        cancelled: cancelled.into_iter().map(name).collect(),
        unplanned: unplanned.into_iter().map(of_task).collect(),
    })
}

fn open_task(state: &State, name: &str) -> Result<TaskId, Refusal> {
    let task = crate::answering::reports::task_named(state, name)?;
    if state.has_ended(task) {
        let word = state.stage(task).word();
        let reason = format!("task `{name}` has ended ({word}): it can't be cancelled");
        return Err(RefusalCode::TaskEnded.because(reason));
    }
    Ok(task)
}

/// The node that most nodes of the run are like, with all of its devices.
fn usual_node(state: &State) -> Option<Node> {
    let nodes: Vec<&Node> = state.present_nodes().map(|id| &state.cluster.nodes[id.0]).collect();
    let num_like = |node: &Node| {
        nodes.iter().filter(|one| one.gpu_type == node.gpu_type && one.gpus == node.gpus).count()
    };
    // Of equals the first.
    let most = nodes.iter().rev().max_by_key(|node| (num_like(node), node.gpus));
    most.map(|node| (*node).clone())
}
