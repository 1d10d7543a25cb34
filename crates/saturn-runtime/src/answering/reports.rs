//! What people learn of a run: its status, explanations, and its report files.
//!
//! All of it comes from the journal. If a process drives the run, status and explanations come from
//! that process, since it knows how far the live attempts are.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use saturn_core::{Origin, Profile, Trial};
use saturn_engine::{NamedJudgement, Owner, Record, Refusal, RefusalCode, State, TaskId, TaskSpec};
use saturn_store::{Disk, Platform, with_causes};
use saturn_view::{Explanation, History, Report, RunStatus, Status, TaskMetrics};
use serde_json::Value;

use crate::answering::day_time::Wall;
use crate::answering::left;
use crate::answering::preview::preview;
use crate::asking::control::{self, ControlError, Query, Reply, Request};
use crate::run_files::contents::{Contents, fold, settings_of};
use crate::run_files::pools::is_joined;
use crate::run_files::replayed::Replayed;
use crate::run_files::run_dir::journal_of;
use crate::system::error::RuntimeError;

/// The status of every task of a run.
pub fn status(run_dir: &Path) -> Result<Status, RuntimeError> {
    let mut status: Status = read_back(ask_or_read(run_dir, &Query::Status)?.status)?;
    if status.status == RunStatus::Unfinished
        && let Some(wall) = Wall::at(status.now_s)
    {
        for task in status.tasks.iter_mut().filter(|task| task.ended_s.is_none()) {
            task.due = task.deadline_s.and_then(|due_s| wall.told(due_s));
        }
    }
    Ok(status)
}

/// Why a task, or the run as a whole, is where it is.
pub fn explain(run_dir: &Path, task: Option<&str>) -> Result<Explanation, RuntimeError> {
    let query = Query::Explain { task: task.map(str::to_owned) };
    let mut explanation: Explanation = read_back(ask_or_read(run_dir, &query)?.explanation)?;
    if control::driver_of(run_dir).is_some() {
        let (due_s, wall) = (explanation.deadline_s, Wall::at(explanation.now_s));
        explanation.due = due_s.zip(wall).and_then(|(due_s, wall)| wall.told(due_s));
    }
    // A driver doesn't know how the person who asks names the directory.
    if let Some(log) = &mut explanation.log {
        *log = run_dir.join(&*log).display().to_string();
    }
    Ok(explanation)
}

/// Reads the content of a reply. This may fail if the process that replied has another version of
/// Saturn.
pub(crate) fn read_back<T: serde::de::DeserializeOwned>(
    value: Option<Value>,
) -> Result<T, RuntimeError> {
    serde_json::from_value(value.unwrap_or_default())
        .map_err(|error| RuntimeError::Answer { reason: error.to_string() })
}

/// A run's report, and which of its files could not be written.
#[derive(Debug)]
pub struct Reported {
    /// The content of `report.json`.
    pub report: Report,
    /// A line for each file that could not be written.
    pub warnings: Vec<String>,
}

/// Writes a run's report files again from what is on disk. Another process may drive the run. The
/// directory may be read-only; the warnings then say so.
pub fn report(run_dir: &Path) -> Result<Reported, RuntimeError> {
    // Looks for a driver before it reads. If the run ends in between, the journal that is read says
    // so.
    let has_driver = control::driver_of(run_dir).is_some();
    let Replayed { settings, state, history } = Replayed::read(&journal_of(run_dir))?;
    let platform = settings.platform;
    let (state, history) = standing((state, history), has_driver);
    let path = run_dir.canonicalize().map_err(RuntimeError::file("find", run_dir))?;
    let written = Written::of(&path, &state, &history, platform.as_ref(), &Disk::default());
    let warnings = written.failures.iter().map(|error| with_causes(error)).collect();
    Ok(Reported { report: written.report, warnings })
}

/// A run's report from what is on disk. Writes nothing.
pub fn read_report(run_dir: &Path) -> Result<Report, RuntimeError> {
    let has_driver = control::driver_of(run_dir).is_some();
    let (state, history) = standing(read(run_dir)?, has_driver);
    let path = run_dir.canonicalize().map_err(RuntimeError::file("find", run_dir))?;
    Ok(built(&path, &state, &history))
}

/// Writes a page that compares several runs, completely or not at all.
pub fn write_page(path: &Path, page: &str) -> Result<(), RuntimeError> {
    Ok(Disk::default().replace(path, page.as_bytes())?)
}

/// A run's trace for Perfetto, from what is on disk. Another process may drive the run.
pub fn trace(run_dir: &Path) -> Result<String, RuntimeError> {
    let records = Contents::read(&journal_of(run_dir))?.records;
    // Finds the directory's name even if the path is `.`.
    let path = run_dir.canonicalize().map_err(RuntimeError::file("find", run_dir))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    saturn_view::trace(&records, &name).ok_or_else(|| no_beginning(run_dir))
}

/// Writes a run's trace into its directory; returns its path.
pub fn write_trace(run_dir: &Path, disk: &Disk) -> Result<PathBuf, RuntimeError> {
    let path = run_dir.join("trace.json");
    disk.replace(&path, trace(run_dir)?.as_bytes())?;
    Ok(path)
}

/// Asks the process that drives the run. If none answers, or too many programs are asking it,
/// answers from the journal.
pub(crate) fn ask_or_read(run_dir: &Path, query: &Query) -> Result<Reply, RuntimeError> {
    let request = Request::Query(query.clone());
    // Nobody else can answer for another person's pool.
    let ask = if is_joined(run_dir) { control::ask_within } else { control::ask_once };
    let reply = match ask(run_dir, &request, control::PATIENCE) {
        Ok(reply) if !reply.is_busy() => reply,
        unanswered => {
            let has_driver = !matches!(unanswered, Err(ControlError::NotDriven { .. }));
            if is_joined(run_dir) {
                let how = if has_driver { "does not answer" } else { "is not there" };
                return Err(RuntimeError::PoolNotDriven { how });
            }
            let (state, history) = standing(read(run_dir)?, has_driver);
            answer(&state, &history, query, state.now_s)
        }
    };
    carried_out(reply)
}

/// A reply to a question that was answered.
fn carried_out(reply: Reply) -> Result<Reply, RuntimeError> {
    let is_of_other_version = reply.is_of_other_version();
    match reply.error {
        Some(reason) if is_of_other_version => Err(RuntimeError::Answer { reason }),
        Some(reason) if !reply.ok => Err(RuntimeError::Refused { reason }),
        _ => Ok(reply),
    }
}

/// What stoppers have decided so far, in order: about all tasks of a run, or about this person's tasks
/// in another person's pool.
pub fn judged(run_dir: &Path) -> Result<Vec<NamedJudgement>, RuntimeError> {
    if is_joined(run_dir) {
        return read_back(ask_or_read(run_dir, &Query::Judged)?.judged);
    }
    judged_of(run_dir, |_| true)
}

/// Answers a guest's question what the stoppers of this guest's tasks have decided, from the journal of
/// the run that this process drives.
pub(crate) fn answer_judged(run_dir: &Path, guest: Option<&Owner>) -> Reply {
    let is_asked = |spec: &TaskSpec| guest.is_none_or(|guest| spec.uid() == Some(guest.uid));
    let judged = judged_of(run_dir, is_asked).map_err(|error| with_causes(&error));
    let as_json = |judged| serde_json::to_value(judged).map_err(|error| error.to_string());
    match judged.and_then(as_json) {
        Ok(judged) => Reply { judged: Some(judged), ..Reply::done() },
        Err(reason) => Reply::refused(RefusalCode::Internal.because(reason)),
    }
}

/// Answers which run this is: by the run's own name, whatever its directory is called.
pub(crate) fn answer_run(run_dir: &Path) -> Reply {
    match settings_of(&journal_of(run_dir)) {
        Ok(settings) => Reply { run: Some(settings.run_id), ..Reply::done() },
        Err(error) => Reply::refused(RefusalCode::Internal.because(with_causes(&error))),
    }
}

/// What stoppers have decided about the tasks that are asked for, from the journal.
fn judged_of(
    run_dir: &Path,
    is_asked: impl Fn(&TaskSpec) -> bool,
) -> Result<Vec<NamedJudgement>, RuntimeError> {
    /// The name of each task that is asked for, and the decisions.
    type SoFar = (Vec<Option<String>>, Vec<NamedJudgement>);
    let take = |(names, judged): &mut SoFar, record, _| match record {
        Record::TaskAdded { spec, .. } => names.push(is_asked(&spec).then_some(spec.name)),
        Record::Judged { task, judgement } => {
            let Some(task) = names.get(task.0).cloned().flatten() else { return };
            judged.push(NamedJudgement { task, judgement });
        }
        _ => {}
    };
    let ((_, judged), _) = fold(&journal_of(run_dir), &SoFar::default, &take)?;
    Ok(judged)
}

/// A run's state and history from its journal, which is not changed.
pub fn read(run_dir: &Path) -> Result<(State, History), RuntimeError> {
    let Replayed { state, history, .. } = Replayed::read(&journal_of(run_dir))?;
    Ok((state, history))
}

/// A run's present state. If it has no driver, its attempts are lost, and a run that has not ended
/// has died.
fn standing((state, history): (State, History), has_driver: bool) -> (State, History) {
    if has_driver { (state, history) } else { saturn_view::without_driver(state, history) }
}

fn no_beginning(run_dir: &Path) -> RuntimeError {
    RuntimeError::Damaged {
        path: journal_of(run_dir),
        reason: "its first record is not a run's beginning".to_owned(),
    }
}

/// Answers a question about a run.
pub(crate) fn answer(state: &State, history: &History, query: &Query, now_s: f64) -> Reply {
    let as_json = |value: Result<Value, serde_json::Error>| {
        value.map_err(|error| RefusalCode::Internal.because(error.to_string()))
    };
    let answered = match query {
        Query::Status => as_json(serde_json::to_value(saturn_view::status(state, history, now_s)))
            .map(|status| Reply { status: Some(status), ..Reply::done() }),
        Query::Preview { tasks } => preview(state, history, tasks, now_s).and_then(|preview| {
            let why_late = preview.why_late();
            as_json(serde_json::to_value(preview)).map(|preview| Reply {
                preview: Some(preview),
                why_late,
                ..Reply::done()
            })
        }),
        Query::Left { without } => left::answer(state, history, without, now_s),
        // The driver answers these.
        Query::Judged | Query::Run => {
            Err(RefusalCode::Internal.because("no process drives the run".to_owned()))
        }
        Query::Explain { task } => named(state, task.as_deref()).and_then(|task| {
            let explanation = saturn_view::explain(state, history, task, now_s);
            as_json(serde_json::to_value(explanation))
                .map(|explanation| Reply { explanation: Some(explanation), ..Reply::done() })
        }),
    };
    answered.unwrap_or_else(Reply::refused)
}

/// The task with this name; `None` if the question names no task.
fn named(state: &State, name: Option<&str>) -> Result<Option<TaskId>, Refusal> {
    name.map(|name| task_named(state, name)).transpose()
}

/// The task with this name.
pub(crate) fn task_named(state: &State, name: &str) -> Result<TaskId, Refusal> {
    state.task_named(name).ok_or_else(|| RefusalCode::UnknownTask.because(state.unknown_task(name)))
}

/// Builds the report of the run in this directory.
fn built(run: &Path, state: &State, history: &History) -> Report {
    let metrics = state.tasks.iter().map(|task| {
        // A guest's results are this guest's own.
        if task.spec.owner.is_some() {
            return TaskMetrics::default();
        }
        // A task that has not trained yet has no metrics.
        let file = File::open(run.join(&task.spec.dir).join("metrics.jsonl"));
        file.and_then(|file| saturn_view::read_metrics(BufReader::new(file))).unwrap_or_default()
    });
    let name = run.file_name().unwrap_or_default().to_string_lossy();
    Report::build(state, history, &name, metrics.collect())
}

/// A run's report, and those of its files that could be written.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) report: Report,
    /// The path of `report.html`, if it was written.
    pub(crate) page: Option<PathBuf>,
    /// The path of `profile.json`, if it was written.
    pub(crate) profile: Option<PathBuf>,
    pub(crate) failures: Vec<RuntimeError>,
}

impl Written {
    /// Writes `report.json`, `report.html`, `profile.json` and `trace.json` into a run directory.
    pub(crate) fn of(
        run: &Path,
        state: &State,
        history: &History,
        platform: Option<&Platform>,
        disk: &Disk,
    ) -> Self {
        let report = built(run, state, history);
        let mut failures = Vec::new();
        let mut write = |name: &str, content: String| {
            let path = run.join(name);
            match disk.replace(&path, content.as_bytes()) {
                Ok(()) => Some(path),
                Err(error) => {
                    failures.push(error.into());
                    None
                }
            }
        };
        write("report.json", report.to_json());
        let page = write("report.html", saturn_view::render_html(&report));
        let profile = write("profile.json", profile(state, platform).to_json());
        failures.extend(write_trace(run, disk).err());
        Self { report, page, profile, failures }
    }

    /// Notes on the files that could not be written.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.failures
            .iter()
            .map(|error| format!("the run is safe in its journal, but {}", with_causes(error)))
            .collect()
    }
}

/// The trials of every task under the task's own name. This includes trials that another task of
/// the group ran.
///
/// Every trial names the hardware and software that it was measured on, if known. A trial from
/// elsewhere brought these names with it.
fn profile(state: &State, platform: Option<&Platform>) -> Profile {
    let trials = state.task_ids().flat_map(|task| {
        state.group_of(task).trials.iter().filter_map(move |(key, trial)| {
            let here = || {
                platform
                    .and_then(|platform| platform.origin(&key.gpu_type, &key.strategy.technique))
            };
            let reused = trial.reused.as_deref().cloned();
            let origin = reused.or_else(here).unwrap_or_default();
            let node_gpus = state.exceeded_width(&key.gpu_type, key.strategy.gpus);
            let is_known = trial.outcome.is_some() || trial.trained.is_some();
            is_known.then(|| Trial {
                task: state.name(task).to_owned(),
                profile_key: Some(state.group_of(task).key.clone()),
                gpu_type: Some(key.gpu_type.clone()),
                device_memory_bytes: state.config.device_memory_bytes,
                strategy: trial.strategy.as_ref().clone(),
                outcome: trial.outcome.clone(),
                trained: trial.trained,
                origin: Origin { node_gpus, ..origin },
            })
        })
    });
    Profile { trials: trials.collect() }
}

#[cfg(test)]
mod tests {
    use saturn_core::Node;
    use saturn_engine::{NodeId, TaskSpec};
    use serde_json::json;

    use super::*;
    use crate::answering::left::Left;
    use crate::keeping::shelf::tests::config;

    #[test]
    fn a_reused_trial_keeps_the_hardware_that_it_was_measured_on() {
        let trial = |task: &str, hardware: &str| {
            json!({
                "task": task, "gpu_type": "cpu", "technique": "ddp", "gpus": 1,
                "hardware": hardware, "software": {"torch": "2"}, "measured_unix_s": 7,
                "outcome": "measured", "step_s": 5.0, "setup_s": 1.0, "peak_memory_bytes": 9,
                "timed_steps": 3,
            })
        };
        let mut state = State::new(config());
        let node = Node::new("n0", 1, "cpu");
        state.apply(
            &Record::NodeJoined { node: NodeId(0), spec: node, host_memory_bytes: None },
            0.0,
        );
        for (number, name) in ["a", "b"].into_iter().enumerate() {
            let measured = if number == 0 { vec![trial(name, "a processor")] } else { Vec::new() };
            let spec: TaskSpec = serde_json::from_value(json!({
                "name": name, "dir": name, "steps": 1, "epochs": null, "gpu_range": [1],
                "profile_key": "k", "measured": measured,
            }))
            .unwrap();
            state.apply(&Record::TaskAdded { task: TaskId(number), spec }, 0.0);
        }
        let found = profile(&state, None).trials;
        assert_eq!(found.len(), 2);
        for trial in found {
            assert_eq!(trial.origin.hardware.as_deref(), Some("a processor"), "{}", trial.task);
            assert_eq!(trial.origin.measured_unix_s, Some(7));
        }
    }

    #[test]
    fn a_driver_of_an_older_version_is_named_with_what_to_do() {
        // What drivers answer that know no such question, and what is no answer to it.
        let refused = json!({
            "ok": false,
            "error": "malformed request: unknown variant `left`, expected `status` or `explain`",
        });
        let other_version = json!({"ok": false, "error": "`version` is 1, not 2"});
        let lacking = json!({"ok": true, "left": {"status": "unfinished", "now_s": 1.0}});
        for reply in [refused, other_version, lacking] {
            let reply: Reply = serde_json::from_value(reply).unwrap();
            let found = carried_out(reply).and_then(|reply| read_back::<Left>(reply.left));
            let error = found.unwrap_err();
            assert!(matches!(error, RuntimeError::Answer { .. }), "{error}");
            let words = error.to_string();
            assert!(words.contains("another version") && words.contains("saturn stop"), "{words}");
        }
        let refused = Reply::refused(RefusalCode::UnknownTask.because("there is no task `x`"));
        assert!(matches!(carried_out(refused), Err(RuntimeError::Refused { .. })));
    }
}
