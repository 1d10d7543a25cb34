//! A run at a moment, as a live page draws it: what each device did lately, does now and will do,
//! and why each task that waits does so.

use std::collections::BTreeMap;

use saturn_core::Gang;
use saturn_engine::{AttemptEnd, Purpose, State, TaskId};

use crate::explain::explanation::first_reasons;
use crate::explain::reason::Reason;
use crate::facts::expect::Expected;
use crate::facts::history::History;
use crate::status::data::{Status, TaskStatus, status};

/// The most tasks of the queue whose reasons are told.
const MAX_QUEUE: usize = 200;
/// The most bars; the latest are drawn.
const MAX_BARS: usize = 2000;
/// How much of the past is shown: at least so many seconds, and at least this share of what is to
/// come.
const LEAST_PAST_S: f64 = 300.0;
const PAST_SHARE: f64 = 0.6;
/// The least span of the chart, seconds.
const LEAST_SPAN_S: f64 = 10.0;

/// A device.
#[derive(Debug, Clone, PartialEq)]
pub struct BoardDevice {
    /// The index of its node.
    pub node: usize,
    /// The name of its node.
    pub node_name: String,
    /// Its id on the node.
    pub id: u32,
}

/// What a bar stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarKind {
    /// Training that has ended, or goes on until now.
    Trained,
    /// The same, ended by a failure.
    Failed,
    /// A trial or an inspection.
    Tried,
    /// Training that is expected.
    Next,
}

/// A task on its devices for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct BoardBar {
    /// The index of the task.
    pub task: usize,
    /// What it stands for.
    pub kind: BarKind,
    /// Technique.
    pub technique: String,
    /// Device count.
    pub gpus: u32,
    /// Its devices.
    pub gang: Gang,
    /// When it starts, seconds on the run's clock.
    pub start_s: f64,
    /// When it ends.
    pub end_s: f64,
    /// When it was loaded.
    pub ready_s: Option<f64>,
    /// Whether it goes on now.
    pub is_live: bool,
}

/// A task that waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Queued {
    /// The index of the task.
    pub task: usize,
    /// Why.
    pub reason: Reason,
}

/// A run at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Board {
    /// Where it and its tasks stand.
    pub status: Status,
    /// The devices that are there.
    pub devices: Vec<BoardDevice>,
    /// What they did and will do.
    pub bars: Vec<BoardBar>,
    /// Whether nothing goes on or is expected, so that the chart shows the past alone.
    pub is_still: bool,
    /// The left edge of the chart, seconds on the run's clock.
    pub from_s: f64,
    /// The right edge.
    pub to_s: f64,
    /// The tasks that wait, by their expected start. Very many are cut short.
    pub queue: Vec<Queued>,
}

impl Board {
    /// A run at `now_s`.
    pub fn of(state: &State, history: &History, now_s: f64) -> Self {
        let status = status(state, history, now_s);
        let expected = Expected::of(state, history, now_s);
        let queue = queue(state, history, &expected, &status.tasks, now_s);
        // Of a run that has ended or is idle, all is shown.
        let is_still = state.ended.is_some()
            || (state.attempts.is_empty() && expected.forecast.tasks.is_empty());
        let end_s = expected.end_s().unwrap_or(now_s).max(now_s);
        let last_s = history.attempts.values().filter_map(|one| one.ended.as_ref());
        let last_s = last_s.map(|end| end.at_s).fold(0.0, f64::max);
        let (from_s, to_s) = if is_still {
            (0.0, last_s.max(LEAST_SPAN_S))
        } else {
            let past_s = ((end_s - now_s) * PAST_SHARE).max(LEAST_PAST_S);
            ((now_s - past_s).max(0.0), end_s.max(now_s + LEAST_SPAN_S))
        };
        let mut bars = past(history, now_s, from_s);
        bars.extend(to_come(state, &expected, now_s));
        if bars.len() > MAX_BARS {
            // Those nearest to now stay.
            let away_s = |one: &BoardBar| (one.start_s - now_s).max(now_s - one.end_s).max(0.0);
            bars.sort_by(|a, b| away_s(a).total_cmp(&away_s(b)));
            bars.truncate(MAX_BARS);
            bars.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
        }
        Self { status, devices: devices(state), bars, is_still, from_s, to_s, queue }
    }

    /// How many tasks wait.
    pub(crate) fn num_waiting(&self) -> usize {
        self.status.tasks.iter().filter(|task| is_waiting(task)).count()
    }
}

/// Whether a task has neither begun to train again nor ended.
pub(crate) fn is_waiting(task: &TaskStatus) -> bool {
    task.ended_s.is_none() && task.attempt.is_none()
}

fn devices(state: &State) -> Vec<BoardDevice> {
    let nodes = state.cluster.nodes.iter().zip(&state.nodes).enumerate();
    let there = nodes.filter(|(_, (_, now))| now.is_there);
    let devices = there.flat_map(|(node, (spec, _))| {
        (0..spec.gpus).map(move |id| BoardDevice { node, node_name: spec.name.clone(), id })
    });
    devices.collect()
}

fn past(history: &History, now_s: f64, from_s: f64) -> Vec<BoardBar> {
    let drawn = history.attempts.values().filter(|one| {
        let end_s = one.ended.as_ref().map_or(now_s, |end| end.at_s);
        end_s >= from_s && !one.gang.is_empty()
    });
    let bars = drawn.map(|one| BoardBar {
        task: one.task.0,
        kind: match (one.purpose, one.ended.as_ref().map(|end| &end.end)) {
            (Purpose::Trial | Purpose::Inspection, _) => BarKind::Tried,
            (
                _,
                Some(
                    AttemptEnd::Failed { .. }
                    | AttemptEnd::Killed
                    | AttemptEnd::Lost
                    | AttemptEnd::Abandoned,
                ),
            ) => BarKind::Failed,
            _ => BarKind::Trained,
        },
        technique: one.strategy.technique.clone(),
        gpus: one.strategy.gpus,
        gang: one.gang.clone(),
        start_s: one.launched_s,
        end_s: one.ended.as_ref().map_or(now_s, |end| end.at_s),
        ready_s: one.started.map(|(_, at_s)| at_s),
        is_live: one.ended.is_none(),
    });
    bars.collect()
}

/// The expected bars: what remains of each place at which a task trains, and all later places.
fn to_come(state: &State, expected: &Expected, now_s: f64) -> Vec<BoardBar> {
    let places = &expected.forecast.places;
    let mut bars = Vec::new();
    for (index, place) in state.open_places() {
        let Some((start_s, end_s)) = places.get(index).copied().flatten() else { continue };
        if end_s <= now_s {
            continue;
        }
        bars.push(BoardBar {
            task: place.task.0,
            kind: BarKind::Next,
            technique: place.strategy.technique.clone(),
            gpus: place.strategy.gpus,
            gang: Gang::clone(&place.gang),
            start_s: start_s.max(now_s),
            end_s,
            ready_s: None,
            is_live: false,
        });
    }
    bars
}

fn queue(
    state: &State,
    history: &History,
    expected: &Expected,
    tasks: &[TaskStatus],
    now_s: f64,
) -> Vec<Queued> {
    let waiting = tasks.iter().enumerate().filter(|(_, task)| is_waiting(task));
    let mut waiting: Vec<(usize, f64)> = waiting
        .map(|(index, task)| (index, task.expected_start_s.unwrap_or(f64::INFINITY)))
        .collect();
    waiting.sort_by(|one, other| one.1.total_cmp(&other.1).then(one.0.cmp(&other.0)));
    waiting.truncate(MAX_QUEUE);
    let ids: Vec<TaskId> = waiting.iter().map(|(index, _)| TaskId(*index)).collect();
    let mut reasons: BTreeMap<TaskId, Reason> =
        first_reasons(state, history, expected, &ids, now_s).into_iter().collect();
    let queued = waiting
        .into_iter()
        .filter_map(|(task, _)| Some(Queued { task, reason: reasons.remove(&TaskId(task))? }));
    queued.collect()
}
