//! What a receiver is told of a run, found in its records.
//!
//! The same records give the same happenings. So a happening that may have been told before a crash
//! is told again under the same id.

use std::collections::BTreeMap;

use saturn_engine::{AttemptId, Purpose, Record, RunEnd, State, TaskEnd, TaskId};
use saturn_runtime::ReadRecord;
use saturn_view::{History, TaskCounts, explain, status, units, words};
use serde::Serialize;

/// Kinds of happenings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A task was trained to its end; or all tasks of a run have ended.
    Done,
    /// A task was given up, or its last loss is no finite number.
    Failed,
    /// A task will end after its deadline, or has.
    Late,
    /// A task trains on other devices, or under another strategy.
    Moved,
}

impl What {
    /// All kinds, by the names that people use.
    pub const ALL: [(&'static str, Self); 4] = [
        ("done", Self::Done),
        ("failed", Self::Failed),
        ("late", Self::Late),
        ("moved", Self::Moved),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, one)| *one == self).map_or("", |(word, _)| word)
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Happening {
    /// The number of its record.
    pub(super) event: u64,
    pub(super) what: What,
    /// The task; `None` if it is about the run.
    pub(super) task: Option<String>,
    /// Seconds on the run's clock.
    pub(super) at_s: f64,
    pub(super) why: String,
}

impl Happening {
    /// An id that no other happening has: it is the same whenever this one is told.
    pub(super) fn id(&self, run_id: &str, place: usize) -> String {
        format!("{run_id}.{}.{}.{place}", self.event, self.what.word())
    }
}

/// What was told already and must not be told with each record anew: tasks that will be late, by
/// name, with the deadline that they will miss.
pub(super) type Late = BTreeMap<String, f64>;

/// What a record tells.
pub(super) fn of(read: &ReadRecord<'_>, late: &mut Late) -> Vec<Happening> {
    let ReadRecord { number, at_s, record, state, history } = *read;
    let mut all = Vec::new();
    let mut add = |what, task: Option<TaskId>, why: String| {
        let task = task.map(|task| state.name(task).to_owned());
        all.push(Happening { event: number, what, task, at_s, why });
    };
    match record {
        Record::TaskEnded { task, end } => {
            for (task, why) in newly_late(state, history, at_s, late) {
                add(What::Late, Some(task), why);
            }
            if let Some((what, why)) = ended(end) {
                add(what, Some(*task), why);
            }
        }
        Record::Launched { attempt, task, purpose: Purpose::Train, .. } => {
            if let Some(why) = moved(state, history, *task, *attempt, at_s) {
                add(What::Moved, Some(*task), why);
            }
        }
        Record::Planned { .. } | Record::PlanKept { .. } | Record::Wished { .. } => {
            for (task, why) in newly_late(state, history, at_s, late) {
                add(What::Late, Some(task), why);
            }
        }
        Record::RunEnded { end: RunEnd::Complete } => {
            add(What::Done, None, counts(&TaskCounts::of(state)));
        }
        _ => {}
    }
    all
}

fn ended(end: &TaskEnd) -> Option<(What, String)> {
    match end {
        TaskEnd::Done { loss: Some(loss) } if loss.is_finite() => {
            Some((What::Done, format!("its last loss is {loss}")))
        }
        TaskEnd::Done { loss: Some(loss) } => {
            Some((What::Failed, format!("it diverged: its last loss is {loss}")))
        }
        TaskEnd::Done { loss: None } => Some((What::Done, "it was trained to its end".to_owned())),
        TaskEnd::Failed { error, .. } => Some((What::Failed, words::first_line(error))),
        // Somebody wanted that.
        TaskEnd::Cancelled { .. } | TaskEnd::Stopped { .. } => None,
    }
}

/// Why a task moved, if this attempt continues it elsewhere.
fn moved(
    state: &State,
    history: &History,
    task: TaskId,
    attempt: AttemptId,
    at_s: f64,
) -> Option<String> {
    let launched = history.attempts.get(&attempt)?;
    let last = history.moves(task).last()?;
    if !std::ptr::eq(last.to, launched) {
        return None;
    }
    let moves = explain(state, history, Some(task), at_s).moves;
    moves.into_iter().next_back().map(|one| one.sentence)
}

/// Tasks that will miss, or have missed, a deadline of which nobody was told.
fn newly_late(
    state: &State,
    history: &History,
    at_s: f64,
    late: &mut Late,
) -> Vec<(TaskId, String)> {
    // Few runs have deadlines, and a forecast of all tasks takes long.
    if state.tasks.iter().all(|task| task.spec.wishes.deadline_s.is_none()) {
        return Vec::new();
    }
    let status = status(state, history, at_s);
    let mut found = Vec::new();
    for (index, task) in status.tasks.iter().enumerate() {
        let Some(due_s) = task.deadline_s.filter(|_| task.is_late == Some(true)) else { continue };
        if late.get(&task.name) == Some(&due_s) {
            continue;
        }
        late.insert(task.name.clone(), due_s);
        let due = units::clock(due_s);
        let why = match (task.ended_s, task.expected_end_s) {
            (Some(ended_s), _) => format!("it ended at {}, due at {due}", units::clock(ended_s)),
            (None, Some(end_s)) => {
                format!("it is expected to end at {}, due at {due}", units::clock(end_s))
            }
            (None, None) => format!("it was due at {due}"),
        };
        found.push((TaskId(index), why));
    }
    found
}

/// `12 tasks: 11 done, 1 failed`.
fn counts(counts: &TaskCounts) -> String {
    let all = [
        (counts.done, "done"),
        (counts.diverged, "diverged"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
        (counts.stopped, "stopped"),
    ];
    let all = all.iter().filter(|(number, _)| *number > 0);
    let all: Vec<String> = all.map(|(number, word)| format!("{number} {word}")).collect();
    let tasks = if counts.all == 1 { "task" } else { "tasks" };
    format!("{} {tasks}: {}", counts.all, all.join(", "))
}
