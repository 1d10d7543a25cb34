//! The newest events of a run, in words.

use std::collections::VecDeque;

use saturn_engine::{AttemptId, Record, State, TaskId};
use saturn_runtime::ReadRecord;
use saturn_view::{History, Paint, Transcript};

use crate::answers::data::EventLine;

/// The most events kept of a run, and the most bytes of their texts. A client that missed more than
/// that reads the status anew, which is shorter.
const MAX_EVENTS: usize = 10_000;
const MAX_BYTES: usize = 1 << 20;
/// The longest text of an event, bytes: a plan or a traceback is elsewhere in full.
const MAX_TEXT: usize = 2000;
/// The columns of a transcript's lines. Nothing wraps here: a browser does.
const WIDTH: usize = 500;

/// The newest events of a run.
#[derive(Debug)]
pub(super) struct Newest {
    transcript: Transcript,
    kept: VecDeque<EventLine>,
    /// Bytes of the kept texts.
    bytes: usize,
}

impl Newest {
    pub(super) fn new() -> Self {
        let transcript = Transcript::new(Paint::PLAIN, WIDTH);
        Self { transcript, kept: VecDeque::new(), bytes: 0 }
    }

    /// Adds a record.
    pub(super) fn push(&mut self, read: &ReadRecord<'_>) {
        let ReadRecord { number, at_s, record, state, history } = *read;
        let text = self.text(state, history, record, at_s);
        self.bytes += text.len();
        self.kept.push_back(EventLine {
            event: number,
            at_s,
            kind: record.kind().to_owned(),
            task: task_of(state, history, record).map(|task| state.name(task).to_owned()),
            text,
        });
        while self.kept.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.text.len();
        }
    }

    /// The events after number `after`, and whether all of them are here.
    pub(super) fn after(&self, after: u64, newest: u64, most: usize) -> (Vec<EventLine>, bool) {
        let first = self.kept.front().map_or(newest + 1, |event| event.event);
        let has_gap = after > newest || after.saturating_add(1) < first;
        let next = after.saturating_add(1);
        let skipped = usize::try_from(next.saturating_sub(first)).unwrap_or(usize::MAX);
        let events = self.kept.iter().skip(skipped).take(if has_gap { 0 } else { most });
        (events.cloned().collect(), has_gap)
    }

    /// The newest events that people are told of, the newest first.
    pub(super) fn told(&self, most: usize) -> Vec<EventLine> {
        let told = self.kept.iter().rev().filter(|event| !event.text.is_empty());
        told.take(most).cloned().collect()
    }

    fn text(&mut self, state: &State, history: &History, record: &Record, at_s: f64) -> String {
        let mut lines = self.transcript.record(state, history, record, at_s);
        lines.extend(self.transcript.tick(state, history, at_s));
        let mut text = String::new();
        // A table of a first plan comes behind an empty line, and stands elsewhere in full.
        for line in lines.iter().take_while(|line| !line.is_empty()) {
            let line = line.trim();
            // The clock stands before the first line of an event; here it is a field.
            let line = line.split_once("  ").map_or(line, |(clock, rest)| {
                if clock.starts_with(|first: char| first.is_ascii_digit()) { rest } else { line }
            });
            // Columns have two spaces and more between them.
            let cells: Vec<&str> = line.split("  ").map(str::trim).collect();
            let cells: Vec<&str> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&cells.join(" · "));
            if text.len() > MAX_TEXT {
                text.truncate(text.floor_char_boundary(MAX_TEXT));
                text.push('…');
                break;
            }
        }
        text
    }
}

/// The task that a record is about; `None` if it is about the run or about many.
fn task_of(state: &State, history: &History, record: &Record) -> Option<TaskId> {
    let of_attempt = |attempt: &AttemptId| history.attempts.get(attempt).map(|past| past.task);
    let task = match record {
        Record::TaskAdded { task, .. }
        | Record::Wished { task, .. }
        | Record::Paused { task }
        | Record::Unpaused { task }
        | Record::Judged { task, .. }
        | Record::Launched { task, .. }
        | Record::Retrying { task, .. }
        | Record::Excluded { task, .. }
        | Record::TaskEnded { task, .. } => Some(*task),
        Record::Noted { task, .. } => *task,
        Record::Started { attempt, .. }
        | Record::Checkpointed { attempt, .. }
        | Record::Evaluated { attempt, .. }
        | Record::WentOn { attempt, .. }
        | Record::Clocked { attempt, .. }
        | Record::Stopping { attempt, .. }
        | Record::Until { attempt, .. }
        | Record::Ended { attempt, .. } => of_attempt(attempt),
        _ => None,
    };
    task.filter(|task| task.0 < state.tasks.len())
}
