//! Starting and resuming a run.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saturn_engine::{
    Command, Decision, Engine, Event, Launcher, NewTask, Observer, RunEnd, State, TaskEnd,
    TaskStatus,
};
use saturn_view::{Console, History, Report, Results};

use crate::bell::Bell;
use crate::claims::Claims;
use crate::clock::RunClock;
use crate::cluster::{ClusterLauncher, Exchange};
use crate::control::{ControlSocket, Request};
use crate::devices::{Machine, Pool};
use crate::disk::Disk;
use crate::driver::{Driven, Driver, DriverDoor};
use crate::error::RuntimeError;
use crate::followers::Followers;
use crate::hardware::Hardware;
use crate::journal::{Contents, Journal};
use crate::journal_seat;
use crate::launcher::{Earlier, LocalLauncher, attempt_dir};
use crate::reports::{self, Written};
use crate::request::{LaunchSettings, Parts, RunRequest};
use crate::run_dir::{RunDir, journal_of};
use crate::space::SpaceWatch;
use crate::store::{Platform, Shelf};
use crate::trackers::{self, Trackers};
use crate::waiting::claim_when_free;

/// The people who watch a run, and how they ask it to stop.
pub struct Watcher<'a> {
    /// Shows what happens.
    pub console: Console,
    /// Further observers, which run on the console's thread.
    pub observers: Vec<Box<dyn Observer>>,
    /// Whether Ctrl-C was pressed since the last call.
    pub is_interrupted: &'a mut dyn FnMut() -> bool,
}

impl<'a> Watcher<'a> {
    /// A watcher with a console and no further observers.
    pub fn new(console: Console, is_interrupted: &'a mut dyn FnMut() -> bool) -> Self {
        Self { console, observers: Vec::new(), is_interrupted }
    }
}

/// The outcome of a run that this process drove.
#[derive(Debug)]
pub struct Outcome {
    /// The run directory.
    pub run_dir: PathBuf,
    /// Whether all tasks ended, or a person stopped the run.
    pub end: RunEnd,
    /// How many tasks failed.
    pub num_failed: usize,
    /// The content of `report.json`.
    pub report: Report,
    /// Killed processes that still live, since the kernel can't end them yet.
    pub left_behind: Vec<i32>,
}

/// What may differ when a run is resumed.
#[derive(Debug, Clone, Default)]
pub struct ResumeOptions {
    /// How much each device may hold.
    pub device_memory: DeviceMemory,
    /// Whether to continue on devices of another kind or type than the run had.
    pub allow_other_hardware: bool,
    /// The disk to use; tests make it fail.
    pub disk: Disk,
    /// The exchange with the agents of a cluster, whose devices the run uses; `None`: this
    /// machine's devices.
    pub cluster: Option<Exchange>,
    /// Whether to wait for devices that other runs hold.
    pub wait: bool,
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

/// Starts a run and drives it to its end.
pub fn start(request: RunRequest, mut watcher: Watcher<'_>) -> Result<Outcome, RuntimeError> {
    let (ground, hardware) = if let Some(exchange) = request.cluster.clone() {
        Ground::of(exchange)?
    } else {
        let claims = || Claims::new(request.locks_dir(), &request.run_dir);
        let (machine, devices) = (Machine::look(), request.devices());
        Ground::here(&machine, devices, claims, request.waits(), &mut watcher)?
    };
    let starting = RunClock::starting_at(request.prepared_s());
    let disk = request.disk.clone();
    let run = RunDir::claim(&request.run_dir)?;
    let Parts { config, settings, mut tasks, keep_open } = request.into_parts(&hardware)?;
    let shelf = settings.shelf();
    let recalled = shelf.as_ref().map(|shelf| shelf.recall(&mut tasks, &config));
    // Decides before it writes anything, so that a run is created completely or not at all.
    let mut engine = Engine::new(config);
    let mut records = Vec::new();
    let mut actions = VecDeque::new();
    let close = (!keep_open).then_some(Command::Close);
    let begin = Event::Begin { cluster: hardware.cluster() };
    let commands = [Command::Submit { tasks }].into_iter().chain(close);
    let commands = commands.map(|command| Event::Command { command });
    for event in std::iter::once(begin).chain(commands) {
        if let Event::Command { command: Command::Submit { tasks } } = &event
            && !keep_open
        {
            refuse_what_never_fits(engine.state(), tasks)?;
        }
        let decision = engine.handle(event, 0.0);
        if let Some(reason) = decision.refusal {
            return Err(RuntimeError::Request { reason });
        }
        let Decision { records: new, actions: more, .. } = decision;
        records.extend(new);
        actions.extend(more);
    }
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
    let launching = Launching { ground, settings, warnings, earlier, cut_off };
    let opened =
        Opened { run, engine, journal, platform, shelf, disk, actions, trackers, starting };
    drive(opened, launching, followers, is_interrupted, None)
}

/// Refuses a task if no node of the pool is wide enough for it. Only a run that is kept open may
/// wait for a wider node.
fn refuse_what_never_fits(state: &State, tasks: &[NewTask]) -> Result<(), RuntimeError> {
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

/// The Python of a run. On a cluster, only this Python can continue the run.
pub fn interpreter_of(path: &Path) -> Result<Interpreter, RuntimeError> {
    let LaunchSettings { python, python_path, .. } = Contents::read(&journal_of(path))?.settings;
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
        let reason = journal_seat::missing(path);
        return Err(RuntimeError::NoRun { path: path.to_owned(), reason });
    }
    let ResumeOptions { device_memory, allow_other_hardware, disk, cluster, wait, prepared_s } =
        options;
    let run = RunDir::claim(path)?;
    let (journal, contents) = Journal::open(&run.journal(), disk.clone())?;
    let mut settings = contents.settings;
    let damaged = || RuntimeError::Damaged {
        path: run.journal(),
        reason: "its first record is not a run's beginning".to_owned(),
    };
    let engine = Engine::restore(contents.records.iter().map(|(record, at_s)| (record, *at_s)))
        .ok_or_else(damaged)?;
    let (_, history) = saturn_view::replay(contents.records).ok_or_else(damaged)?;
    if engine.state().ended == Some(RunEnd::Complete) {
        let Watcher { console, observers, .. } = watcher;
        let followers = Followers::of(engine.state(), history, console, observers, None);
        let platform = settings.platform.as_ref();
        return finish(run.path(), RunEnd::Complete, followers, platform, &disk, Vec::new());
    }
    let refuse_other = |missing: Option<String>| match missing {
        Some(missing) if !allow_other_hardware => Err(RuntimeError::OtherHardware { missing }),
        _ => Ok(()),
    };
    let is_cluster = cluster.is_some();
    let (ground, hardware) = if let Some(exchange) = cluster {
        let (ground, hardware) = Ground::of(exchange)?;
        refuse_other(hardware.missing_for(engine.state()))?;
        (ground, hardware)
    } else {
        let machine = Machine::look();
        refuse_other(machine.missing_for(engine.state()))?;
        let claims = || Claims::new(settings.locks_dir.as_deref(), run.path());
        Ground::here(&machine, settings.devices, claims, wait, &mut watcher)?
    };
    let starting = RunClock::starting_at(prepared_s);
    let Watcher { console, mut observers, is_interrupted } = watcher;
    let device_memory_bytes = match device_memory {
        DeviceMemory::AsBefore => engine.state().config.device_memory_bytes,
        DeviceMemory::Unlimited => None,
        DeviceMemory::Bytes(bytes) => Some(bytes),
    };
    let machines = settings.machines(&hardware, is_cluster);
    let first = Event::Resume { cluster: hardware.cluster(), device_memory_bytes, machines };
    let platform = settings
        .store
        .as_ref()
        .and_then(|store| Platform::of(&hardware, &settings.python_path, &store.techniques));
    // Trials that were measured on another platform must not enter the store as measured on this
    // one.
    let is_same = settings.platform == platform;
    settings.platform = platform;
    let platform = settings.platform.clone().filter(|_| is_same);
    let shelf = settings.shelf();
    let before = shelf.as_ref().filter(|_| is_same);
    let lines = before.map(|shelf| shelf.catch_up(engine.state()));
    let earlier = earlier_attempts(engine.state(), &history);
    let cut_off = engine.state().attempts.iter().map(|(id, attempt)| {
        attempt_dir(run.path(), &engine.state().task(attempt.task).spec.dir, *id)
    });
    let cut_off = cut_off.collect();
    let now_s = engine.state().now_s;
    let trackers = Tracked::start(&run, &settings, &mut observers);
    let followers = Followers::of(engine.state(), history, console, observers, shelf.clone());
    for line in lines.unwrap_or_default() {
        followers.note(&line, now_s);
    }
    let warnings = hardware.warnings;
    let launching = Launching { ground, settings, warnings, earlier, cut_off };
    let actions = VecDeque::new();
    let opened =
        Opened { run, engine, journal, platform, shelf, disk, actions, trackers, starting };
    drive(opened, launching, followers, is_interrupted, Some(first))
}

/// The devices that a run uses.
enum Ground {
    /// Devices of this machine.
    Here(Pool),
    /// Devices of a cluster's agents.
    Cluster(Exchange, BTreeMap<u64, Hardware>),
}

impl Ground {
    fn here(
        machine: &Machine,
        devices: Option<u32>,
        claims: impl Fn() -> Result<Claims, RuntimeError>,
        wait: bool,
        watcher: &mut Watcher<'_>,
    ) -> Result<(Self, Hardware), RuntimeError> {
        let pool = if wait {
            let Watcher { console, is_interrupted, .. } = watcher;
            claim_when_free(machine, devices, claims, console, is_interrupted)?
        } else {
            machine.claim(devices, claims()?)?
        };
        let hardware = pool.hardware();
        Ok((Self::Here(pool), hardware))
    }

    fn of(exchange: Exchange) -> Result<(Self, Hardware), RuntimeError> {
        let founders = exchange.founders();
        let hardware = Hardware::of_all(founders.values()).ok_or_else(|| {
            RuntimeError::Request { reason: "the cluster has no agent".to_owned() }
        })?;
        Ok((Self::Cluster(exchange, founders), hardware))
    }
}

/// What a run needs for launching.
struct Launching {
    ground: Ground,
    settings: LaunchSettings,
    /// Warnings that a person should read before trusting measurements.
    warnings: Vec<String>,
    earlier: Vec<Earlier>,
    /// Directories of attempts that were live when the earlier driver died.
    cut_off: Vec<PathBuf>,
}

/// A run that this process has started or resumed.
struct Opened {
    run: RunDir,
    engine: Engine,
    journal: Journal,
    /// The hardware and software that all of its trials are valid for, if known.
    platform: Option<Platform>,
    shelf: Option<Shelf>,
    disk: Disk,
    actions: VecDeque<saturn_engine::Action>,
    trackers: Tracked,
    /// Seconds since this process began to start or resume the run. The time spent waiting for
    /// other runs' devices does not count.
    starting: RunClock,
}

/// A run's trackers, or a note about them if they could not start. Both are `None` if the run has
/// no trackers.
#[derive(Default)]
struct Tracked {
    trackers: Option<Trackers>,
    failure: Option<String>,
}

impl Tracked {
    fn start(
        run: &RunDir,
        settings: &LaunchSettings,
        observers: &mut Vec<Box<dyn Observer>>,
    ) -> Self {
        match trackers::start(run.path(), settings) {
            None => Self::default(),
            Some(Ok((trackers, teller))) => {
                observers.push(teller);
                Self { trackers: Some(trackers), failure: None }
            }
            Some(Err(error)) => {
                Self { trackers: None, failure: Some(trackers::not_started(&error)) }
            }
        }
    }
}

/// The ended attempts of earlier drivers, in order.
fn earlier_attempts(state: &State, history: &History) -> Vec<Earlier> {
    let ended = history.attempts.iter().filter_map(|(attempt, past)| {
        Some(Earlier {
            attempt: *attempt,
            task: past.task,
            task_dir: state.task(past.task).spec.dir.clone(),
            purpose: past.purpose,
            end: past.ended.as_ref()?.end.clone(),
        })
    });
    ended.collect()
}

/// A launcher that this process owns and ends after the run.
trait OwnLauncher: Launcher {
    /// Ends every process. Returns those that live on.
    fn end(self) -> Vec<i32>;
}

impl OwnLauncher for LocalLauncher {
    fn end(self) -> Vec<i32> {
        LocalLauncher::end(self)
    }
}

impl OwnLauncher for ClusterLauncher {
    fn end(self) -> Vec<i32> {
        ClusterLauncher::end(self)
    }
}

fn drive(
    opened: Opened,
    launching: Launching,
    followers: Followers,
    is_interrupted: &mut dyn FnMut() -> bool,
    first: Option<Event>,
) -> Result<Outcome, RuntimeError> {
    let now_s = opened.engine.state().now_s;
    let Launching { ground, settings, warnings, earlier, cut_off } = launching;
    for warning in warnings {
        followers.note(&warning, now_s);
    }
    let (bell, disk) = (Bell::default(), opened.disk.clone());
    match ground {
        Ground::Here(pool) => {
            let site = opened.run.site();
            let mut launcher = LocalLauncher::start(site, settings, pool, bell.clone(), disk)?;
            launcher.take_over(earlier);
            drive_with(launcher, bell, opened, followers, is_interrupted, first)
        }
        Ground::Cluster(exchange, founders) => {
            let run_dir = opened.run.path().to_owned();
            let launcher =
                ClusterLauncher::start(exchange, founders, run_dir, settings, bell.clone(), disk)?;
            launcher.give_up(&cut_off, "another process drives the run");
            drive_with(launcher, bell, opened, followers, is_interrupted, first)
        }
    }
}

fn drive_with(
    launcher: impl OwnLauncher,
    bell: Bell,
    opened: Opened,
    followers: Followers,
    is_interrupted: &mut dyn FnMut() -> bool,
    first: Option<Event>,
) -> Result<Outcome, RuntimeError> {
    let Opened { run, engine, journal, platform, shelf, disk, actions, trackers, starting } =
        opened;
    let Tracked { mut trackers, failure } = trackers;
    let now_s = engine.state().now_s;
    if let Some(trackers) = &mut trackers {
        trackers.tell(followers.notes());
    }
    if let Some(failure) = failure {
        followers.note(&failure, now_s);
    }
    let (door, inputs) = DriverDoor::new(bell.clone());
    followers.note("starting workers: importing torch", now_s);
    let desk = followers.desk();
    let asked = door.clone();
    let (notes, config) = (followers.notes(), engine.state().config.clone());
    let control = ControlSocket::listen(
        run.path(),
        Arc::new(move |request| match request {
            Request::Command(mut command) => {
                if let (Command::Submit { tasks }, Some(shelf)) = (&mut command, &shelf) {
                    for line in shelf.recall(tasks, &config) {
                        notes.note(&line);
                    }
                }
                asked.ask(command)
            }
            Request::Query(query) => desk.ask(query),
        }),
    )?;
    let driver = Driver {
        engine,
        journal,
        launcher,
        followers,
        bell,
        door,
        inputs,
        is_interrupted,
        clock: RunClock::standing_at(now_s),
        starting,
        solver: None,
        actions,
        interrupts: 0,
        space: SpaceWatch::of(run.path()),
    };
    let Driven { end, launcher, followers, journal } = driver.drive(first)?;
    drop(control);
    let left_behind = launcher.end();
    // Closing the journal removes its write-ahead log. From now on the run consists of its files.
    drop(journal);
    if let Some(slow) = trackers.and_then(Trackers::wait) {
        followers.notes().note(&slow);
    }
    finish(run.path(), end, followers, platform.as_ref(), &disk, left_behind)
}

fn finish(
    run: &Path,
    end: RunEnd,
    mut followers: Followers,
    platform: Option<&Platform>,
    disk: &Disk,
    left_behind: Vec<i32>,
) -> Result<Outcome, RuntimeError> {
    // A desk that is gone has panicked. The run must not fail for that.
    let (state, history) = followers.close_desk().map_or_else(|| reports::read(run), Ok)?;
    let written = Written::of(run, &state, &history, platform, disk);
    for note in written.notes() {
        followers.note(&note, state.now_s);
    }
    if !left_behind.is_empty() {
        let pids: Vec<String> = left_behind.iter().map(ToString::to_string).collect();
        let text = format!("processes that were killed and have not ended: {}", pids.join(", "));
        followers.note(&text, state.now_s);
    }
    let text =
        |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
    followers.finish(Results {
        run_dir: run.to_string_lossy().into_owned(),
        report: text(&written.page),
        profile: text(&written.profile),
    });
    let num_failed = state
        .tasks
        .iter()
        .filter(|task| matches!(task.status, TaskStatus::Ended(TaskEnd::Failed { .. })))
        .count();
    Ok(Outcome { run_dir: run.to_owned(), end, num_failed, report: written.report, left_behind })
}
