//! What the pages of runs and tasks show.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use saturn_engine::TaskId;
use saturn_view::{
    Board, LogTail, LossPoint, NewsLine, RunPage, TaskMetrics, TaskPage, TaskStatus, explain,
    read_metrics,
};

use crate::answers::data::LogQuery;
use crate::local::followed::{Followed, Moment};
use crate::local::logs;

/// Lines of news, and curves, on the page of a run.
const MAX_NEWS: usize = 16;
const MAX_CURVES: usize = 12;
/// Bytes of the log on the page of a task.
const LOG_BYTES: u64 = 12 << 10;
/// Metrics are read anew no sooner than this, and take at most one part in so many of the time.
const READ_EVERY: Duration = Duration::from_secs(2);
const SHARE: u32 = 20;
/// The most tasks whose metrics are kept.
const MAX_KEPT: usize = 200;

/// Metrics that were read, and when they may be read again.
type Read = (Instant, Arc<TaskMetrics>);

/// Metrics of tasks, as far as they were read.
#[derive(Debug, Default)]
pub(super) struct MetricsRead(Mutex<BTreeMap<PathBuf, Read>>);

impl MetricsRead {
    /// The losses of the task in this directory.
    #[expect(clippy::disallowed_methods, reason = "how often a file is read is a matter of time")]
    fn losses(&self, task_dir: &Path) -> Vec<LossPoint> {
        let began = Instant::now();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((again, metrics)) = kept.get(task_dir)
            && began < *again
        {
            return metrics.losses.clone();
        }
        // A task that has not trained yet has no metrics.
        let file = File::open(task_dir.join("metrics.jsonl"));
        let read = file.and_then(|file| read_metrics(BufReader::new(file)));
        let metrics = Arc::new(read.unwrap_or_default());
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        let again = began + READ_EVERY.max(began.elapsed() * SHARE);
        kept.insert(task_dir.to_owned(), (again, Arc::clone(&metrics)));
        metrics.losses.clone()
    }
}

/// The page of a run.
pub(super) fn of_run(
    name: &str,
    followed: &Followed,
    at: &Moment<'_>,
    metrics: &MetricsRead,
) -> RunPage {
    let board = Board::of(at.state, at.history, at.now_s);
    let losses = curves(&board.status.tasks)
        .into_iter()
        .map(|index| (index, metrics.losses(&followed.path().join(&board.status.tasks[index].dir))))
        .collect();
    let news = followed.told(MAX_NEWS).into_iter();
    let news = news.map(|event| NewsLine { at_s: event.at_s, text: event.text }).collect();
    RunPage { name: name.to_owned(), event: at.event, is_driven: at.is_driven, board, news, losses }
}

/// The indices of the tasks whose curves are shown: those that train, then those that ended last.
fn curves(tasks: &[TaskStatus]) -> Vec<usize> {
    let mut shown: Vec<(usize, f64)> = tasks
        .iter()
        .enumerate()
        .filter(|(_, task)| task.step > 0)
        .map(|(index, task)| {
            let rank_s = task.ended_s.unwrap_or(0.0);
            (index, if task.attempt.is_some() { f64::INFINITY } else { rank_s })
        })
        .collect();
    shown.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    shown.truncate(MAX_CURVES);
    let mut shown: Vec<usize> = shown.into_iter().map(|(index, _)| index).collect();
    shown.sort_unstable();
    shown
}

/// The page of a task.
pub(super) fn of_task(
    run: &str,
    followed: &Followed,
    at: &Moment<'_>,
    task: TaskId,
    metrics: &MetricsRead,
) -> Option<TaskPage> {
    let status =
        saturn_view::status(at.state, at.history, at.now_s).tasks.into_iter().nth(task.0)?;
    let directory = followed.path().join(&status.dir);
    let query = LogQuery { bytes: LOG_BYTES, ..LogQuery::default() };
    let part = logs::part(&directory, &query).ok();
    let log = part.and_then(|part| {
        Some(LogTail {
            attempt: part.attempt?,
            rank: part.rank?,
            num_ranks: part.ranks.len(),
            is_cut: part.from > 0,
            text: part.text,
        })
    });
    Some(TaskPage {
        run: run.to_owned(),
        event: at.event,
        is_driven: at.is_driven,
        index: task.0,
        losses: metrics.losses(&directory),
        explanation: explain(at.state, at.history, Some(task), at.now_s),
        status,
        log,
    })
}
