//! A run as a trace (`trace.json`) for Perfetto or `chrome://tracing`. Each device has a row, which
//! shows the attempts that held it.
//!
//! An attempt is one slice from launch to end. It contains slices for its set-up, for blocks of
//! steps, and for saves and evaluations during which training stood still. Arrows lead from where a
//! task was to where it continued. The run itself has rows for solves and inspections. Saves that
//! ran beside training are asynchronous slices.
//!
//! Invariants: slices of one row are nested or follow each other, whatever the records say, and
//! every begin has an end. Times are of the run's clock, in microseconds.

use std::collections::{BTreeMap, BTreeSet};

use saturn_engine::{AttemptEnd, AttemptId, NodeId, Purpose, Record, State};
use serde_json::{Value, json};

use crate::facts::history::History;
use crate::facts::past::{PastAttempt, PoolEvent};
use crate::phrases::events as phrases;
use crate::phrases::words;
use crate::trace::events::{Events, Row};

/// The rows of the run itself.
const SOLVES: Row = Row { process: 1, thread: 1 };
const INSPECTIONS: Row = Row { process: 1, thread: 2 };

/// A time during which training stood still.
struct Pause {
    from_s: f64,
    to_s: f64,
    what: &'static str,
    step: u64,
}

/// A save that ran beside training.
struct Beside {
    attempt: AttemptId,
    from_s: f64,
    to_s: f64,
    step: u64,
}

/// The parts of a trace that a [`History`] does not keep.
#[derive(Default)]
struct Marks {
    pauses: BTreeMap<AttemptId, Vec<Pause>>,
    beside: Vec<Beside>,
    went_on: BTreeSet<AttemptId>,
    /// Notes on the whole run, each with its time.
    words: Vec<(f64, String)>,
}

/// The trace of the run called `name`, from its journal's records with their times. `None` if the
/// first record does not begin a run.
pub fn trace(records: &[(Record, f64)], name: &str) -> Option<String> {
    let Some((Record::Began { config }, _)) = records.first() else { return None };
    let mut state = State::new(config.clone());
    let mut history = History::default();
    let mut marks = Marks::default();
    for (record, now_s) in records {
        state.apply(record, *now_s);
        history.record(&state, record, *now_s);
        marks.record(record, *now_s);
    }
    let mut events = Events::default();
    name_rows(&mut events, &state, &history, name);
    for (id, attempt) in &history.attempts {
        if attempt.purpose != Purpose::Inspection {
            held(&mut events, &state, &marks, *id, attempt);
        }
    }
    looks(&mut events, &state, &history);
    plans(&mut events, &history);
    moves(&mut events, &state, &history);
    for beside in &marks.beside {
        let task = history.attempts.get(&beside.attempt).map_or("?", |one| state.name(one.task));
        let name = format!("save of {task} after step {}", beside.step);
        events.beside(SOLVES.process, "save", &name, (beside.from_s, beside.to_s));
    }
    for change in &history.pool {
        let is_beginning = change.at_s <= 0.0 && matches!(change.what, PoolEvent::Joined(_));
        if is_beginning {
            continue;
        }
        let what = phrases::pool_event(&change.what);
        let node = state.cluster.nodes.get(change.node.0).map_or("?", |node| node.name.as_str());
        events.word(&format!("{node}: {what}"), change.at_s, &json!({}));
    }
    for (at_s, text) in &marks.words {
        events.word(text, *at_s, &json!({}));
    }
    Some(events.to_json(name))
}

impl Marks {
    fn record(&mut self, record: &Record, now_s: f64) {
        match record {
            Record::Checkpointed { attempt, step, save_s, blocked_s, .. } => {
                let from_s = now_s - save_s;
                let to_s = from_s + blocked_s.min(*save_s);
                self.pause(*attempt, Pause { from_s, to_s, what: "save", step: *step });
                if blocked_s < save_s {
                    let beside = Beside { attempt: *attempt, from_s, to_s: now_s, step: *step };
                    self.beside.push(beside);
                }
            }
            Record::Evaluated { attempt, evaluation, evaluation_s: Some(taken_s), .. } => {
                let (from_s, step) = (now_s - taken_s, evaluation.step);
                self.pause(*attempt, Pause { from_s, to_s: now_s, what: "evaluation", step });
            }
            Record::WentOn { attempt, .. } => {
                self.went_on.insert(*attempt);
            }
            Record::Resumed { .. } => self.words.push((now_s, "the run is resumed".to_owned())),
            Record::Interrupted { .. } => {
                self.words.push((now_s, "the run is asked to stop".to_owned()));
            }
            _ => {}
        }
    }

    fn pause(&mut self, attempt: AttemptId, pause: Pause) {
        self.pauses.entry(attempt).or_default().push(pause);
    }
}

/// The row of a device.
fn row(node: usize, device: u32) -> Row {
    Row { process: 2 + node as u64, thread: 1 + u64::from(device) }
}

fn rows(attempt: &PastAttempt) -> impl Iterator<Item = Row> + '_ {
    saturn_engine::devices(&attempt.gang).map(|device| row(device.node.0, device.device))
}

fn name_rows(events: &mut Events, state: &State, history: &History, name: &str) {
    events.process(SOLVES.process, &format!("run {name}"));
    events.thread(SOLVES, "solves");
    for (node, spec) in state.cluster.nodes.iter().enumerate() {
        events.process(row(node, 0).process, &format!("{} ({})", spec.name, spec.gpu_type));
        for device in 0..history.most_devices(NodeId(node)).max(spec.gpus) {
            events.thread(row(node, device), &format!("device {device}"));
        }
    }
}

/// Adds an attempt to the rows of its devices, with its parts.
fn held(events: &mut Events, state: &State, marks: &Marks, id: AttemptId, attempt: &PastAttempt) {
    let end_s = attempt.ended.as_ref().map_or(state.now_s, |ended| ended.at_s);
    let whole = (attempt.launched_s, end_s);
    let task = state.name(attempt.task);
    let strategy = words::strategy(&attempt.strategy);
    let name = match attempt.purpose {
        Purpose::Trial => format!("trial of {task}: {strategy}"),
        _ => format!("{task}: {strategy}"),
    };
    let end = attempt.ended.as_ref().map(|ended| &ended.end);
    let how = end.map_or("runs", phrases::attempt_end);
    let mut more = json!({
        "task": task, "attempt": id.0, "technique": attempt.strategy.technique,
        "gpus": attempt.strategy.gpus, "knobs": attempt.strategy.knobs, "end": how,
    });
    if let Some(AttemptEnd::Failed { failure }) = end {
        more["error"] = failure.error.as_str().into();
    }
    let parts = parts(marks, id, attempt, whole);
    for row in rows(attempt) {
        events.slice(row, &name, whole, &more);
        for (name, times) in &parts {
            events.slice(row, name, *times, &json!({}));
        }
    }
}

/// The parts of an attempt, which follow each other within it.
fn parts(
    marks: &Marks,
    id: AttemptId,
    attempt: &PastAttempt,
    (from_s, end_s): (f64, f64),
) -> Vec<(String, (f64, f64))> {
    let Some((first, started_s)) = attempt.started else { return Vec::new() };
    let mut at_s = started_s.clamp(from_s, end_s);
    let is_trial_first = marks.went_on.contains(&id);
    let before = if is_trial_first { "trial" } else { "set-up" };
    let mut parts = vec![(before.to_owned(), (from_s, at_s))];
    let mut done = first;
    for pause in marks.pauses.get(&id).into_iter().flatten() {
        let pause_from_s = pause.from_s.clamp(at_s, end_s);
        let pause_to_s = pause.to_s.clamp(pause_from_s, end_s);
        if pause.step > done {
            parts.push((format!("steps {}–{}", done + 1, pause.step), (at_s, pause_from_s)));
            done = pause.step;
        }
        let name = format!("{} after step {}", pause.what, pause.step);
        parts.push((name, (pause_from_s, pause_to_s)));
        at_s = pause_to_s;
    }
    let rest = match &attempt.ended {
        None => format!("steps from {} on", done + 1),
        Some(ended) if ended.step > done => format!("steps {}–{}", done + 1, ended.step),
        // The steps after the last saved one are lost.
        Some(_) => format!("after step {done}"),
    };
    parts.push((rest, (at_s, end_s)));
    parts
}

/// Adds inspections, which hold no device. They get rows of their own, as many as ran at once.
fn looks(events: &mut Events, state: &State, history: &History) {
    let mut free_from_s: Vec<f64> = Vec::new();
    for attempt in history.attempts.values().filter(|one| one.purpose == Purpose::Inspection) {
        let end_s = attempt.ended.as_ref().map_or(state.now_s, |ended| ended.at_s);
        let free = free_from_s.iter().position(|until_s| *until_s <= attempt.launched_s);
        let lane = free.unwrap_or_else(|| {
            free_from_s.push(0.0);
            free_from_s.len() - 1
        });
        free_from_s[lane] = end_s;
        let row = Row { thread: INSPECTIONS.thread + lane as u64, ..INSPECTIONS };
        events.thread(row, "inspections");
        let name = format!("inspect {}", state.name(attempt.task));
        events.slice(row, &name, (attempt.launched_s, end_s), &json!({}));
    }
}

fn plans(events: &mut Events, history: &History) {
    let mut before_s = 0.0_f64;
    for (number, plan) in history.plans.iter().enumerate() {
        let from_s = (plan.at_s - plan.solve_s).clamp(before_s.min(plan.at_s), plan.at_s);
        before_s = plan.at_s;
        let mut more = json!({
            "makespan_s": plan.makespan_s, "lower_bound_s": plan.lower_bound_s,
            "tasks": plan.num_tasks(),
        });
        if let Some(instead_of_s) = plan.instead_of_s {
            more["instead_of_s"] = Value::from(instead_of_s);
        }
        let name = if number == 0 { "plan".to_owned() } else { format!("re-plan {number}") };
        events.slice(SOLVES, &name, (from_s, plan.at_s), &more);
        events.word(&name, plan.at_s, &more);
    }
}

/// Adds arrows from where a task was to where it continued.
fn moves(events: &mut Events, state: &State, history: &History) {
    for task in state.task_ids() {
        for one in history.moves(task) {
            let Some(left) = one.from.ended.as_ref() else { continue };
            let (Some(from), Some(to)) = (rows(one.from).next(), rows(one.to).next()) else {
                continue;
            };
            let from = (from, one.from.launched_s, left.at_s);
            events.arrow(&format!("move of {}", state.name(task)), from, (to, one.to.launched_s));
        }
    }
}
