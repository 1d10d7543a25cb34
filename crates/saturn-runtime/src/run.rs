//! Starting, resuming and reporting on a run.

use std::path::{Path, PathBuf};

use saturn_core::{Profile, Trial};
use saturn_engine::{Engine, Event, RunEnd, State, TaskEnd, TaskStatus};
use saturn_view::{Console, Report, Results};

use crate::devices::Pool;
use crate::driver::Driver;
use crate::error::RuntimeError;
use crate::journal::Journal;
use crate::request::RunRequest;
use crate::run_dir::{RunDir, journal_of};

/// Who watches a run, and how they ask it to stop.
pub struct Watcher<'a> {
    /// Shows what happens.
    pub console: Console,
    /// Whether Ctrl-C was pressed since the last call.
    pub is_interrupted: &'a mut dyn FnMut() -> bool,
}

/// How a run that this process drove has ended.
#[derive(Debug)]
pub struct Outcome {
    /// The run directory.
    pub run_dir: PathBuf,
    /// All tasks ended, or stopped by the person.
    pub end: RunEnd,
    /// How many tasks failed.
    pub num_failed: usize,
    /// What `report.json` holds.
    pub report: Report,
}

/// Starts a run and drives it to its end.
pub fn start(request: RunRequest, watcher: Watcher<'_>) -> Result<Outcome, RuntimeError> {
    let pool = Pool::discover(request.devices())?;
    let run = RunDir::claim(&request.run_dir)?;
    let (config, settings) = request.into_parts(&pool)?;
    let journal = Journal::create(&run.journal(), &settings)?;
    let engine = Engine::new(config);
    drive(&run, engine, (journal, settings, pool), Event::Begin, watcher)
}

/// What each device of a resumed run may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceMemory {
    /// What it could hold before.
    AsBefore,
    /// All that it has.
    Unlimited,
    /// So many bytes.
    Bytes(u64),
}

/// Goes on with a run that was interrupted or whose driver died. A run that is complete is only
/// reported on.
pub fn resume(
    path: &Path,
    device_memory: DeviceMemory,
    watcher: Watcher<'_>,
) -> Result<Outcome, RuntimeError> {
    // Looked at first: claiming would make files in a directory that is no run.
    if !journal_of(path).is_file() {
        let reason = "it has no journal.db".to_owned();
        return Err(RuntimeError::NoRun { path: path.to_owned(), reason });
    }
    let run = RunDir::claim(path)?;
    let journal = Journal::open_existing(&run.journal())?;
    let engine = restore(&run.journal(), &journal)?;
    if engine.state().ended == Some(RunEnd::Complete) {
        return finish(run.path(), engine.state(), RunEnd::Complete, watcher.console);
    }
    let settings = journal.settings()?;
    let pool = Pool::discover(settings.devices)?;
    let device_memory_bytes = match device_memory {
        DeviceMemory::AsBefore => engine.state().config.device_memory_bytes,
        DeviceMemory::Unlimited => None,
        DeviceMemory::Bytes(bytes) => Some(bytes),
    };
    let first = Event::Resume { cluster: pool.cluster(), device_memory_bytes };
    drive(&run, engine, (journal, settings, pool), first, watcher)
}

/// Writes a run's report anew from what is on disk; the run may be in progress elsewhere.
pub fn report(path: &Path) -> Result<Report, RuntimeError> {
    let journal = Journal::open_existing(&journal_of(path))?;
    let engine = restore(&journal_of(path), &journal)?;
    let path = path.canonicalize().map_err(RuntimeError::file("find", path))?;
    write_reports(&path, engine.state())
}

fn restore(path: &Path, journal: &Journal) -> Result<Engine, RuntimeError> {
    let records = journal.records()?;
    let restored = Engine::restore(records.iter().map(|(record, at_s)| (record, *at_s)));
    restored.ok_or_else(|| RuntimeError::Damaged {
        path: path.to_owned(),
        reason: "it does not begin with the run's beginning".to_owned(),
    })
}

fn drive(
    run: &RunDir,
    engine: Engine,
    (journal, settings, pool): (Journal, crate::request::LaunchSettings, Pool),
    first: Event,
    mut watcher: Watcher<'_>,
) -> Result<Outcome, RuntimeError> {
    for warning in pool.warnings() {
        watcher.console.note(&warning, engine.state().now_s);
    }
    let driver = Driver {
        run,
        engine,
        journal,
        settings,
        pool,
        console: &mut watcher.console,
        is_interrupted: watcher.is_interrupted,
    };
    let (engine, end) = driver.drive(first)?;
    finish(run.path(), engine.state(), end, watcher.console)
}

fn finish(
    run: &Path,
    state: &State,
    end: RunEnd,
    mut console: Console,
) -> Result<Outcome, RuntimeError> {
    let report = write_reports(run, state)?;
    let text = |name: &str| run.join(name).to_string_lossy().into_owned();
    let results = Results {
        run_dir: run.to_string_lossy().into_owned(),
        report: Some(text("report.html")),
        profile: Some(text("profile.json")),
    };
    console.finish(state, state.now_s, &results);
    let num_failed = state
        .tasks
        .iter()
        .filter(|task| matches!(task.status, TaskStatus::Ended(TaskEnd::Failed { .. })))
        .count();
    Ok(Outcome { run_dir: run.to_owned(), end, num_failed, report })
}

/// Writes `report.json`, `report.html` and `profile.json`.
fn write_reports(run: &Path, state: &State) -> Result<Report, RuntimeError> {
    let mut metrics = Vec::new();
    for task in &state.config.tasks {
        let path = run.join(&task.dir).join("metrics.jsonl");
        // A task that has not trained yet has none.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        metrics.push(saturn_view::read_metrics(&text));
    }
    let name = run.file_name().unwrap_or_default().to_string_lossy();
    let report = Report::build(state, &name, &metrics);
    replace(&run.join("report.json"), &report.to_json())?;
    replace(&run.join("report.html"), &saturn_view::render_html(&report))?;
    replace(&run.join("profile.json"), &profile(state).to_json())?;
    Ok(report)
}

/// Every task's trials under its own name, those included that another task's trial spoke for.
fn profile(state: &State) -> Profile {
    let gpu_type = state.config.cluster.nodes.first().map(|node| node.gpu_type.clone());
    let gpu_type = &gpu_type;
    let device_memory_bytes = state.config.device_memory_bytes;
    let trials = state.task_ids().flat_map(|task| {
        state.trials_of(task).filter_map(move |trial| {
            Some(Trial {
                task: state.name(task).to_owned(),
                profile_key: Some(state.config.tasks[task.0].profile_key.clone()),
                gpu_type: gpu_type.clone(),
                device_memory_bytes,
                strategy: trial.strategy.clone(),
                outcome: trial.outcome.clone()?,
            })
        })
    });
    Profile { trials: trials.collect() }
}

/// Writes a file in one piece: a reader sees the old one or the new one.
fn replace(path: &Path, content: &str) -> Result<(), RuntimeError> {
    // Of this process alone: `saturn report` may write while a run ends.
    let fresh = path.with_added_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&fresh, content).map_err(RuntimeError::file("write", &fresh))?;
    std::fs::rename(&fresh, path).map_err(RuntimeError::file("replace", path))
}
