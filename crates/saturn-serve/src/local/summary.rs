//! A line of the list of runs.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use saturn_engine::{RunEnd, State};
use saturn_runtime::control;
use saturn_view::TaskCounts;

use crate::answers::data::RunSummary;
use crate::local::runs::NamedRun;

/// What a run's journal was when it was last read: lengths and times of its files.
pub(crate) type Signature = [Option<(u64, SystemTime)>; 2];

/// The signature of a run's journal. It changes with every record.
pub(crate) fn signature(run: &Path) -> Signature {
    // The journal may be a link to another disk, where its log lies too.
    let journal = run.join("journal.db");
    let journal = journal.canonicalize().unwrap_or(journal);
    ["journal.db", "journal.db-wal"].map(|name| {
        let file = journal.with_file_name(name).metadata().ok()?;
        Some((file.len(), file.modified().ok()?))
    })
}

/// Whether a run's journal was written to within the last `time`.
pub(crate) fn changed_within(run: &Path, time: Duration) -> bool {
    let is_recent = |at: SystemTime| at.elapsed().map_or(true, |passed| passed < time);
    signature(run).into_iter().flatten().any(|(_, written)| is_recent(written))
}

/// Summarises a run from its journal.
pub(super) fn summary(run: &NamedRun) -> RunSummary {
    // Asked first: a run that ends meanwhile is then found complete.
    let driver = control::driver_of(&run.path);
    match saturn_runtime::read(&run.path) {
        Ok((state, _)) => of_state(run, &state, driver),
        Err(error) => RunSummary {
            name: run.name.clone(),
            pool: run.is_pool,
            state: "damaged".to_owned(),
            pid: driver,
            error: Some(saturn_store::with_causes(&error)),
            begun_unix_s: begun_unix_s(&run.path),
            tasks: 0,
            running: 0,
            done: 0,
            diverged: 0,
            failed: 0,
            cancelled: 0,
            stopped: 0,
        },
    }
}

fn of_state(run: &NamedRun, state: &State, driver: Option<i32>) -> RunSummary {
    let counts = TaskCounts::of(state);
    let (word, driver) = match (state.ended, driver) {
        (Some(RunEnd::Complete), _) => ("complete", None),
        (_, Some(pid)) => ("running", Some(pid)),
        (Some(RunEnd::Interrupted), None) => ("interrupted", None),
        (None, None) => ("died", None),
    };
    RunSummary {
        name: run.name.clone(),
        pool: run.is_pool,
        state: word.to_owned(),
        pid: driver,
        error: None,
        begun_unix_s: begun_unix_s(&run.path),
        tasks: counts.all,
        running: if driver.is_some() { counts.running } else { 0 },
        done: counts.done,
        diverged: counts.diverged,
        failed: counts.failed,
        cancelled: counts.cancelled,
        stopped: counts.stopped,
    }
}

/// When a run began, as far as the file system tells.
fn begun_unix_s(run: &Path) -> u64 {
    let journal = run.join("journal.db").metadata();
    let begun = journal.and_then(|of| of.created().or_else(|_| of.modified()));
    let begun = begun.unwrap_or(UNIX_EPOCH);
    begun.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
