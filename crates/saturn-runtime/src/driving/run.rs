//! Starting and resuming a run.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saturn_engine::{Command, Decision, Engine, Event, NewTask, RunEnd, State};
use saturn_store::{Disk, Platform};
use saturn_view::History;

use crate::answering::followers::Followers;
use crate::asking::door::Door;
use crate::cluster::exchange::Exchange;
use crate::devices::claims::Claims;
use crate::devices::hardware::Hardware;
use crate::devices::machine::Machine;
use crate::driving::again::{Again, earlier_attempts, let_devices_go, taken_over};
use crate::driving::drive::{Launching, Opened, Outcome, Tracked, drive, finish};
use crate::driving::outside::OutsideWatch;
use crate::launching::files::attempt_dir;
use crate::launching::settings::LaunchSettings;
use crate::opening::other_python::{check_cwd, check_python};
use crate::opening::request::{Parts, RunRequest};
use crate::opening::run_devices::RunDevices;
use crate::opening::shares::{Rules, sharing_by};
use crate::opening::watcher::Watcher;
use crate::outliving::messages::GuestSetup;
use crate::outliving::starting;
use crate::run_files::contents::settings_of;
use crate::run_files::journal::Journal;
use crate::run_files::journal_location;
use crate::run_files::replayed::Replayed;
use crate::run_files::run_dir::{RunDir, journal_of};
use crate::system::clock::RunClock;
use crate::system::error::RuntimeError;
use crate::system::run_id::new_run_id;

/// The file of a run whose checkpoints are in an object store (`saturn.checkpoint.place`).
const STORAGE: &str = "storage.json";

/// What may differ when a run is resumed.
#[derive(Debug, Clone, Default)]
pub struct ResumeOptions {
    /// How much each device may hold.
    pub device_memory: DeviceMemory,
    /// How many devices of this machine to use from here on; `None`: as many as before.
    pub devices: Option<u32>,
    /// Whether to continue on devices of another kind or type than the run had.
    pub allow_other_hardware: bool,
    /// The disk to use; tests make it fail.
    pub disk: Disk,
    /// The exchange with the agents of a cluster, whose devices the run uses; `None`: this
    /// machine's devices.
    pub cluster: Option<Exchange>,
    /// Whether to wait for devices that other runs hold.
    pub wait: bool,
    /// The directory at which other people of this machine reach the run from here on; `None`: as
    /// before.
    pub share: Option<PathBuf>,
    /// By which rules people share the run from here on.
    pub rules: Rules,
    /// Seconds that the caller has already spent on this resume.
    pub prepared_s: f64,
}

/// How much each device of a resumed run may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceMemory {
    /// As much as before.
    #[default]
    AsBefore,
    /// All of its memory.
    Unlimited,
    /// This many bytes.
    Bytes(u64),
}

impl DeviceMemory {
    /// The limit, bytes; `before` is the earlier limit.
    fn or(self, before: Option<u64>) -> Option<u64> {
        match self {
            Self::AsBefore => before,
            Self::Unlimited => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

/// Starts a run and drives it to its end.
pub fn start(request: RunRequest, mut watcher: Watcher<'_>) -> Result<Outcome, RuntimeError> {
    let (run_devices, hardware) = if let Some(exchange) = request.cluster.clone() {
        RunDevices::of(exchange)?
    } else {
        let claims = || Claims::new(request.locks_dir(), &request.run_dir);
        let (machine, devices) = (Machine::look(), request.devices());
        RunDevices::here(&machine, devices, claims, request.waits(), &mut watcher)?
    };
    let starting = RunClock::starting_at(request.prepared_s());
    let disk = request.disk.clone();
    let run = RunDir::claim(&request.run_dir)?;
    let is_cluster = request.cluster.is_some();
    let Parts { mut config, mut settings, mut tasks, keep_open, rules } =
        request.into_parts(&hardware)?;
    settings.run_dir = Some(run.path().to_owned());
    if !is_cluster {
        settings.share(&hardware);
    }
    let shelf = settings.shelf();
    if let Some(shelf) = &shelf {
        config.policy.earlier_errors = shelf.earlier_errors();
    }
    let recalled = shelf.as_ref().map(|shelf| shelf.recall(&mut tasks, &config));
    // Decides before it writes anything, so that a run is created completely or not at all.
    let mut engine = Engine::new(config);
    let mut records = Vec::new();
    let mut actions = VecDeque::new();
    let close = (!keep_open).then_some(Command::Close);
    let begin = Event::Begin { cluster: hardware.cluster() };
    let shared = shared_event(engine.state(), &settings, rules)?;
    let commands = [Command::Submit { tasks }].into_iter().chain(close);
    let commands = commands.map(|command| Event::Command { command });
    let mut outside = OutsideWatch::of(&run_devices, &settings);
    let mut events: VecDeque<Event> =
        std::iter::once(begin).chain(shared).chain(commands).collect();
    while let Some(event) = events.pop_front() {
        if let Event::Command { command: Command::Submit { tasks } } = &event
            && !keep_open
        {
            refuse_tasks_that_never_fit(engine.state(), tasks)?;
        }
        let decision = engine.handle(event, 0.0);
        if let Some(refusal) = decision.refusal {
            return Err(RuntimeError::Refused { reason: refusal.reason });
        }
        let Decision { records: new, actions: more, .. } = decision;
        // Before there are tasks, some of which may start at once.
        if records.is_empty()
            && let Some(devices) = outside.as_mut().and_then(|one| one.news(engine.state()))
        {
            events.push_front(Event::UsedOutside { devices });
        }
        records.extend(new);
        actions.extend(more);
    }
    let door = door_of(&settings)?;
    let journal = Journal::create(&run.journal(), &settings, &records, disk.clone())?;
    let fresh = State::new(engine.state().config.clone());
    let Watcher { console, mut observers, is_interrupted } = watcher;
    let trackers = Tracked::start(&run, &settings, &mut observers);
    let followers = Followers::of(&fresh, History::default(), console, observers, shelf.clone());
    for line in recalled.unwrap_or_default() {
        followers.note(&line, 0.0);
    }
    followers.records(records, 0.0);
    let platform = settings.platform.clone();
    let (warnings, earlier, cut_off) = (hardware.warnings, Vec::new(), Vec::new());
    let guests = Vec::new();
    let launching =
        Launching { run_devices, outside, settings, warnings, earlier, cut_off, guests };
    let opened =
        Opened { run, engine, journal, platform, shelf, disk, door, actions, trackers, starting };
    drive(opened, launching, followers, is_interrupted, Vec::new())
}

/// Refuses a task if no node of the pool is wide enough for it. Only a run that is kept open may
/// wait for a wider node.
fn refuse_tasks_that_never_fit(state: &State, tasks: &[NewTask]) -> Result<(), RuntimeError> {
    let wrong = tasks.iter().find_map(|task| Some((&task.spec, state.out_of_range(&task.spec)?)));
    wrong.map_or(Ok(()), |(spec, why)| {
        Err(RuntimeError::Refused { reason: format!("task `{}`: {why}", spec.name) })
    })
}

/// The Python of a run's workers.
#[derive(Debug, Clone)]
pub struct Interpreter {
    /// The program.
    pub python: String,
    /// Where the program finds modules.
    pub python_path: Vec<String>,
}

/// The Python of a run, or of this person's tasks in a pool that was joined. On a cluster, only this
/// Python can continue the run.
///
/// # Errors
///
/// [`RuntimeError::PythonGone`] if the program is not there, and the errors of journals.
pub fn interpreter_of(path: &Path) -> Result<Interpreter, RuntimeError> {
    let settings = match GuestSetup::of(path) {
        Some(setup) => setup?.settings,
        None => settings_of(&journal_of(path))?,
    };
    let LaunchSettings { python, python_path, .. } = settings;
    check_python(path, &python)?;
    Ok(Interpreter { python, python_path })
}

/// Continues a run that was interrupted or whose driver died. If the run is complete, only writes
/// its report.
pub fn resume(
    path: &Path,
    options: ResumeOptions,
    mut watcher: Watcher<'_>,
) -> Result<Outcome, RuntimeError> {
    // Checks for a journal first: claiming would make files in a directory that is not a run.
    if !journal_of(path).is_file() {
        let reason = journal_location::missing(path);
        return Err(RuntimeError::NoRun { path: path.to_owned(), reason });
    }
    let ResumeOptions {
        device_memory,
        devices,
        allow_other_hardware,
        disk,
        cluster,
        wait,
        share,
        rules,
        prepared_s,
    } = options;
    let run = RunDir::claim_beside_workers(path)?;
    let outlived = starting::find(run.path())?;
    let (mut journal, replayed) = Replayed::open(&run.journal(), disk.clone())?;
    let Replayed { mut settings, state, history } = replayed;
    let engine = Engine::from_state(state);
    if engine.state().ended == Some(RunEnd::Complete) {
        outlived.and_then(|agent| agent.kept_if(false));
        return only_reported(&run, engine.state(), history, watcher, &settings, &disk);
    }
    let refuse_other = |missing: Option<String>| match missing {
        Some(missing) if !allow_other_hardware => Err(RuntimeError::OtherHardware { missing }),
        _ => Ok(()),
    };
    let is_cluster = cluster.is_some();
    let is_as_before = device_memory == DeviceMemory::AsBefore
        && !is_cluster
        && devices.is_none_or(|devices| settings.devices == Some(devices))
        // Ranks know the run's directory by its path, and would save where it was.
        && outlived.as_ref().is_none_or(|agent| agent.is_in_place);
    // A resume that is refused must not end ranks that live.
    let on_cluster = cluster.map(RunDevices::of).transpose()?;
    if let Some((_, hardware)) = &on_cluster {
        refuse_other(hardware.missing_for(engine.state()))?;
    } else if outlived.is_some() && !is_as_before {
        let machine = Machine::look();
        refuse_other(machine.missing_for(engine.state()))?;
        machine.check(devices)?;
    }
    // Ranks that live need no other process of their Python.
    let lives_on = outlived.is_some() && is_as_before;
    if !is_cluster && !lives_on {
        check_python(path, &settings.python)?;
        check_cwd(&settings.cwd)?;
    }
    note_directory(&run, &mut settings, &mut journal)?;
    let door = shared_from_here(share, &mut settings, &mut journal)?;
    let shared = shared_event(engine.state(), &settings, rules)?;
    let outlived = outlived.and_then(|agent| agent.kept_if(is_as_before));
    if outlived.is_none() {
        run.wait_for_workers()?;
    }
    let again = if let Some(agent) = outlived {
        taken_over(run.path(), agent, door.as_deref(), &engine, &history, &journal)?
    } else if let Some(found) = on_cluster {
        Again::anew(found, engine.state())
    } else {
        if let Some(door) = &door {
            let_devices_go(door, engine.state());
        }
        let machine = Machine::look().sharing(&settings.shared_gpus);
        refuse_other(machine.missing_for(engine.state()))?;
        let claims = || Claims::new(settings.locks_dir.as_deref(), run.path());
        let devices = devices.or(settings.devices);
        let found = RunDevices::here(&machine, devices, claims, wait, &mut watcher)?;
        if devices != settings.devices {
            settings.devices = devices;
            journal.change_settings(&settings)?;
        }
        Again::anew(found, engine.state())
    };
    let Again { run_devices, hardware, living, undead, guests } = again;
    let starting = RunClock::starting_at(prepared_s);
    let Watcher { console, mut observers, is_interrupted } = watcher;
    let device_memory_bytes = device_memory.or(engine.state().config.device_memory_bytes);
    let machines = settings.machines(&hardware, is_cluster);
    let mut first =
        vec![Event::Resume { cluster: hardware.cluster(), device_memory_bytes, machines, living }];
    first.extend((!undead.is_empty()).then_some(Event::Undead { attempts: undead }));
    first.extend(shared);
    let is_same = takes_platform(&mut settings, &hardware, &mut journal)?;
    let platform = settings.platform.clone().filter(|_| is_same);
    let shelf = settings.shelf();
    let before = shelf.as_ref().filter(|_| is_same);
    let lines = before.map(|shelf| shelf.catch_up(engine.state()));
    let earlier = earlier_attempts(engine.state(), &history);
    let cut_off = dirs_of_attempts(&run, engine.state());
    let trackers = Tracked::start(&run, &settings, &mut observers);
    let followers = Followers::of(engine.state(), history, console, observers, shelf.clone());
    lines.iter().flatten().for_each(|line| followers.note(line, engine.state().now_s));
    keep_shared(&mut settings, &hardware, &mut journal, is_cluster)?;
    let warnings = hardware.warnings;
    let outside = OutsideWatch::of(&run_devices, &settings);
    let launching =
        Launching { run_devices, outside, settings, warnings, earlier, cut_off, guests };
    let actions = VecDeque::new();
    let opened =
        Opened { run, engine, journal, platform, shelf, disk, door, actions, trackers, starting };
    drive(opened, launching, followers, is_interrupted, first)
}

/// By which rules people share a run from here on; `None` if it is not shared.
fn shared_event(
    state: &State,
    settings: &LaunchSettings,
    rules: Rules,
) -> Result<Option<Event>, RuntimeError> {
    let sharing = sharing_by(state.config.policy.sharing.clone(), settings, rules)?;
    Ok(sharing.map(|sharing| Event::Shared { sharing }))
}

/// Writes the report of a run that is complete.
fn only_reported(
    run: &RunDir,
    state: &State,
    history: History,
    watcher: Watcher<'_>,
    settings: &LaunchSettings,
    disk: &Disk,
) -> Result<Outcome, RuntimeError> {
    let Watcher { console, observers, .. } = watcher;
    let followers = Followers::of(state, history, console, observers, None);
    let platform = settings.platform.as_ref();
    finish(run.path(), RunEnd::Complete, followers, platform, disk, Vec::new())
}

/// The door of a resumed run that is shared with other people of the machine; `share`: from here on.
fn shared_from_here(
    share: Option<PathBuf>,
    settings: &mut LaunchSettings,
    journal: &mut Journal,
) -> Result<Option<Arc<Door>>, RuntimeError> {
    if let Some(share) = share.filter(|share| settings.door.as_ref() != Some(share)) {
        settings.door = Some(share);
        let door = door_of(settings)?;
        journal.change_settings(settings)?;
        return Ok(door);
    }
    door_of(settings)
}

/// The door of a run that is shared with other people of the machine.
fn door_of(settings: &LaunchSettings) -> Result<Option<Arc<Door>>, RuntimeError> {
    let door = settings.door.as_deref().filter(|_| settings.outlives_s.is_some());
    door.map(|path| Door::make(path).map(Arc::new)).transpose()
}

/// The directories of the attempts that have not ended.
fn dirs_of_attempts(run: &RunDir, state: &State) -> Vec<PathBuf> {
    let attempts = state.attempts.iter();
    let dirs =
        attempts.map(|(id, one)| attempt_dir(run.path(), &state.task(one.task).spec.dir, *id));
    dirs.collect()
}

/// Notes where the run's directory is. A copy of a run gets an id of its own. A run that is resumed
/// ends all processes that have its id, and processes of the original may be training.
fn note_directory(
    run: &RunDir,
    settings: &mut LaunchSettings,
    journal: &mut Journal,
) -> Result<(), RuntimeError> {
    if settings.run_dir.as_deref() == Some(run.path()) {
        return Ok(());
    }
    if let Some(original) = original_of(run, settings) {
        let shared = if run.path().join(STORAGE).exists() {
            Some("have their checkpoints in one folder of the object store")
        } else {
            run.journal().is_symlink().then_some("have one journal")
        };
        if let Some(shared) = shared {
            let reason = format!(
                "`{}` is a copy of the run `{}`, and both {shared}: resume the run itself",
                run.path().display(),
                original.display()
            );
            return Err(RuntimeError::Refused { reason });
        }
        settings.run_id = new_run_id()?;
    }
    settings.run_dir = Some(run.path().to_owned());
    journal.change_settings(settings)
}

/// The run that a run's directory is a copy of, if it is one and that run is still there. A directory
/// that was moved, or has another path besides, is no copy.
fn original_of(run: &RunDir, settings: &LaunchSettings) -> Option<PathBuf> {
    let before = settings.run_dir.clone()?;
    let there = settings_of(&journal_of(&before)).ok()?;
    (there.run_id == settings.run_id && !run.is_at(&before)).then_some(before)
}

/// Notes the hardware and software that there are now. Returns whether they are those that the run's
/// trials were measured on: otherwise these must not enter the store as measured on the new ones.
fn takes_platform(
    settings: &mut LaunchSettings,
    hardware: &Hardware,
    journal: &mut Journal,
) -> Result<bool, RuntimeError> {
    let platform = settings.store.as_ref().and_then(|store| {
        Platform::of(hardware.in_words(), &settings.python_path, &store.techniques)
    });
    let is_same = settings.platform == platform;
    if !is_same && settings.platform.is_some() {
        journal.forget_platform(settings)?;
    }
    settings.platform = platform;
    Ok(is_same)
}

/// Keeps for later drivers which GPUs of this machine were named for the run.
fn keep_shared(
    settings: &mut LaunchSettings,
    hardware: &Hardware,
    journal: &mut Journal,
    is_cluster: bool,
) -> Result<(), RuntimeError> {
    if is_cluster || !settings.share(hardware) {
        return Ok(());
    }
    journal.change_settings(settings)
}
