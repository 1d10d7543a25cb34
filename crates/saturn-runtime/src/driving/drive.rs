//! Driving a run that was started or resumed, from its launcher to its report.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saturn_engine::{Command, Engine, Event, Observer, Owner, RunEnd, TaskEnd, TaskStatus};
use saturn_store::{Disk, Platform};
use saturn_view::words::shell_quoted;
use saturn_view::{Report, Results};

use crate::answering::followers::Followers;
use crate::answering::guests::take_in;
use crate::answering::reports::{self, Written};
use crate::answering::trackers::{self, Trackers};
use crate::asking::control::{Query, Request};
use crate::asking::door::Door;
use crate::asking::server::{Answer, ControlSocket};
use crate::cluster::launcher::ClusterLauncher;
use crate::driving::driver::{Driven, Driver, DriverDoor, OwnLauncher};
use crate::driving::in_place::PlaceWatch;
use crate::driving::listening::Listening;
use crate::driving::outside::OutsideWatch;
use crate::driving::space::SpaceWatch;
use crate::keeping::shelf::Shelf;
use crate::launching::launcher::{Earlier, LocalLauncher};
use crate::launching::settings::LaunchSettings;
use crate::opening::run_devices::RunDevices;
use crate::outliving::launcher::AgentLauncher;
use crate::outliving::people::PeopleLauncher;
use crate::outliving::starting::Living;
use crate::run_files::journal::{Heard, Journal};
use crate::run_files::run_dir::RunDir;
use crate::system::bell::Bell;
use crate::system::clock::RunClock;
use crate::system::error::RuntimeError;

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

/// What a run needs for launching.
pub(crate) struct Launching {
    pub(crate) run_devices: RunDevices,
    /// The watch for other programs on its GPUs.
    pub(crate) outside: Option<OutsideWatch>,
    pub(crate) settings: LaunchSettings,
    /// Warnings that a person should read before trusting measurements.
    pub(crate) warnings: Vec<String>,
    pub(crate) earlier: Vec<Earlier>,
    /// Directories of attempts that were live when the earlier driver died.
    pub(crate) cut_off: Vec<PathBuf>,
    /// The other people who have tasks in the run, with their agents that go on under this driver.
    pub(crate) guests: Vec<(Owner, Option<Living>)>,
}

/// A run that this process has started or resumed.
pub(crate) struct Opened {
    pub(crate) run: RunDir,
    pub(crate) engine: Engine,
    pub(crate) journal: Journal,
    /// The hardware and software that all of its trials are valid for, if known.
    pub(crate) platform: Option<Platform>,
    pub(crate) shelf: Option<Shelf>,
    pub(crate) disk: Disk,
    /// The door at which other people of this machine reach the run.
    pub(crate) door: Option<Arc<Door>>,
    pub(crate) actions: VecDeque<saturn_engine::Action>,
    pub(crate) trackers: Tracked,
    /// Seconds since this process began to start or resume the run. The time spent waiting for
    /// other runs' devices does not count.
    pub(crate) starting: RunClock,
}

/// A run's trackers, or a note about them if they could not start. Both are `None` if the run has
/// no trackers.
#[derive(Default)]
pub(crate) struct Tracked {
    trackers: Option<Trackers>,
    failure: Option<String>,
}

impl Tracked {
    pub(crate) fn start(
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

impl OwnLauncher for PeopleLauncher {
    fn end(self) -> Vec<i32> {
        PeopleLauncher::end(self)
    }

    fn heard(&self) -> Vec<Heard> {
        PeopleLauncher::heard(self)
    }

    fn expect(&mut self, guest: &Owner) {
        PeopleLauncher::expect(self, guest);
    }
}

pub(crate) fn drive(
    opened: Opened,
    launching: Launching,
    followers: Followers,
    is_interrupted: &mut dyn FnMut() -> bool,
    first: Vec<Event>,
) -> Result<Outcome, RuntimeError> {
    let now_s = opened.engine.state().now_s;
    let Launching { run_devices, outside, settings, warnings, earlier, cut_off, guests } =
        launching;
    for warning in warnings {
        followers.note(&warning, now_s);
    }
    let (bell, disk) = (Bell::default(), opened.disk.clone());
    match run_devices {
        RunDevices::Here(pool) if settings.outlives_s.is_some() => {
            let site = opened.run.site();
            let own = AgentLauncher::start(site, settings, pool, earlier, bell.clone())?;
            let launcher = PeopleLauncher::of(own, opened.door.clone(), guests, bell.clone());
            drive_with(launcher, bell, (opened, outside), followers, is_interrupted, first)
        }
        RunDevices::Outlived(living, pool) => {
            let (site, taken) = (opened.run.site(), (*living, pool));
            let own = AgentLauncher::take_over(taken, site, settings, earlier, bell.clone());
            let launcher = PeopleLauncher::of(own, opened.door.clone(), guests, bell.clone());
            drive_with(launcher, bell, (opened, outside), followers, is_interrupted, first)
        }
        RunDevices::Here(pool) => {
            let site = opened.run.site();
            let mut launcher = LocalLauncher::start(site, settings, pool, bell.clone(), disk)?;
            launcher.take_over(earlier);
            drive_with(launcher, bell, (opened, outside), followers, is_interrupted, first)
        }
        RunDevices::Cluster(exchange, founders) => {
            let run_dir = opened.run.path().to_owned();
            let launcher =
                ClusterLauncher::start(exchange, founders, run_dir, settings, bell.clone(), disk)?;
            launcher.give_up(&cut_off, "another process drives the run");
            drive_with(launcher, bell, (opened, outside), followers, is_interrupted, first)
        }
    }
}

fn drive_with(
    launcher: impl OwnLauncher,
    bell: Bell,
    (opened, outside): (Opened, Option<OutsideWatch>),
    followers: Followers,
    is_interrupted: &mut dyn FnMut() -> bool,
    first: Vec<Event>,
) -> Result<Outcome, RuntimeError> {
    let Opened { run, engine, journal, platform, shelf, disk, door, actions, trackers, starting } =
        opened;
    let Tracked { mut trackers, failure } = trackers;
    let now_s = engine.state().now_s;
    if let Some(trackers) = &mut trackers {
        trackers.tell(followers.notes());
    }
    if let Some(failure) = failure {
        followers.note(&failure, now_s);
    }
    let (door_of_driver, inputs) = DriverDoor::new(bell.clone());
    if !launcher.is_ready() {
        followers.note("starting workers: importing torch", now_s);
    }
    if let Some(door) = &door {
        let door = shell_quoted(&door.path().to_string_lossy());
        let text = format!("others on this machine submit to it after: saturn join {door}");
        followers.note(&text, now_s);
    }
    let answer = answering(run.path(), &followers, &engine, door_of_driver.clone(), shelf);
    let control = ControlSocket::listen(run.path(), Arc::clone(&answer))?;
    let at_door = door.map(|door| ControlSocket::listen_at(&door, answer)).transpose()?;
    let driver = Driver {
        run: &run,
        engine,
        journal,
        launcher,
        followers,
        bell,
        door: door_of_driver,
        inputs,
        is_interrupted,
        clock: RunClock::standing_at(now_s),
        starting,
        solver: None,
        actions,
        interrupts: 0,
        space: SpaceWatch::of(run.path()),
        place: PlaceWatch::of(&run),
        outside,
        listening: Listening::default(),
    };
    let Driven { end, launcher, followers, journal } = driver.drive(first)?;
    drop((control, at_door));
    let left_behind = launcher.end();
    // Closing the journal removes its write-ahead log. From now on the run consists of its files.
    drop(journal);
    if let Some(slow) = trackers.and_then(Trackers::wait) {
        followers.notes().note(&slow);
    }
    finish(run.path(), end, followers, platform.as_ref(), &disk, left_behind)
}

/// What answers the requests of everybody who asks the run.
fn answering(
    run_dir: &Path,
    followers: &Followers,
    engine: &Engine,
    driver: DriverDoor,
    shelf: Option<Shelf>,
) -> Answer {
    let (desk, notes, config) =
        (followers.desk(), followers.notes(), engine.state().config.clone());
    let run_dir = run_dir.to_owned();
    Arc::new(move |request, guest| match request {
        Request::Command(mut command) => {
            if let Command::Submit { tasks } = &mut command {
                take_in(tasks, guest);
                for line in shelf.iter().flat_map(|shelf| shelf.recall(tasks, &config)) {
                    notes.note(&line);
                }
            }
            driver.ask(command, guest)
        }
        Request::Query(Query::Preview { mut tasks }) => {
            take_in(&mut tasks, guest);
            if let Some(shelf) = &shelf {
                shelf.recall(&mut tasks, &config);
            }
            desk.ask_aside(&Query::Preview { tasks })
        }
        Request::Query(Query::Judged) => reports::answer_judged(&run_dir, guest),
        Request::Query(Query::Run) => reports::answer_run(&run_dir),
        Request::Query(query) => desk.ask(query, guest),
    })
}

pub(crate) fn finish(
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
