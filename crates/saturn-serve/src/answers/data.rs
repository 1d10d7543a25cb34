//! Answers about runs that no view has: the list of runs, events, parts of logs.

use saturn_view::{Gauges, Tally};
use serde::{Deserialize, Serialize};

/// An answer, and how much of the run it covers.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen<T> {
    /// The number of the last event that the answer takes account of.
    pub event: u64,
    /// The answer.
    pub value: T,
}

/// A run in the list of runs. A field that `saturn runs --json` has too has the same name and meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Its name, by which it is asked about.
    pub name: String,
    /// Whether it is the pool.
    pub pool: bool,
    /// `running`, `interrupted`, `died`, `complete` or `damaged`.
    pub state: String,
    /// The process that drives it.
    pub pid: Option<i32>,
    /// Why its journal can't be read.
    pub error: Option<String>,
    /// When it began, seconds of Unix time.
    pub begun_unix_s: u64,
    /// Number of tasks.
    pub tasks: usize,
    /// Tasks that train now.
    pub running: usize,
    /// Tasks that were trained to their end.
    pub done: usize,
    /// Tasks whose last loss is no finite number.
    pub diverged: usize,
    /// Tasks that were given up.
    pub failed: usize,
    /// Tasks that were cancelled.
    pub cancelled: usize,
    /// Tasks that the stopper ended.
    pub stopped: usize,
}

/// A record of a run's journal, in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventLine {
    /// Its number in the journal, counted from 1, without gaps.
    pub event: u64,
    /// When it was made, seconds on the run's clock.
    pub at_s: f64,
    /// Its kind, such as `launched` or `task_ended`. Later versions may have further kinds.
    pub kind: String,
    /// The task that it is about, if it is about one.
    pub task: Option<String>,
    /// What a person is told of it; often empty.
    pub text: String,
}

/// Events of a run, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Events {
    /// The id of the run: another run of the same name has another.
    pub run_id: String,
    /// The events.
    pub events: Vec<EventLine>,
    /// The number of the run's newest event.
    pub newest: u64,
    /// Whether events between the number asked for and the first of these are not kept any more, or
    /// belong to another run of this name. The client then has to read the run's status anew.
    pub has_gap: bool,
    /// Whether a process drives the run.
    pub is_driven: bool,
    /// The time on the run's clock, seconds.
    pub now_s: f64,
}

/// A run in numbers, for programs that watch it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunMetrics {
    /// Its name.
    pub name: String,
    /// Whether a process drives it.
    pub is_driven: bool,
    /// The time on its clock, seconds.
    pub now_s: f64,
    /// Numbers that rise and fall: tasks and devices by what they do at present.
    pub gauges: Gauges,
    /// Numbers that have only risen since the run began.
    pub tally: Tally,
}

/// Which part of a log is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// The attempt; by default the newest that trains, or else the newest trial or inspection.
    pub attempt: Option<u64>,
    /// The rank; by default the lowest that has a log.
    pub rank: Option<u32>,
    /// The first byte; by default the last `bytes` are read.
    pub from: Option<u64>,
    /// The most bytes to read.
    pub bytes: u64,
}

/// An attempt that has logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogAttempt {
    /// Its number.
    pub attempt: u64,
    /// Whether it trains; otherwise it is a trial or an inspection.
    pub is_training: bool,
    /// Technique and number of devices, in words; empty for an inspection.
    pub strategy: String,
}

/// A part of what a task's workers printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPart {
    /// Every attempt whose logs are still there, the earliest first.
    pub attempts: Vec<LogAttempt>,
    /// The attempt that this part is of; null if the task has no log.
    pub attempt: Option<u64>,
    /// The ranks that have a log.
    pub ranks: Vec<u32>,
    /// The rank that this part is of.
    pub rank: Option<u32>,
    /// The first byte of this part.
    pub from: u64,
    /// The byte after the last one: the `from` of the next part.
    pub to: u64,
    /// Bytes in the log.
    pub size: u64,
    /// The text. Bytes that are not UTF-8 are replaced.
    pub text: String,
}
