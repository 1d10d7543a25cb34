//! The local machine's launcher: gangs of Python processes, started by a parent that has imported
//! what they need.
//!
//! - While the warm parent is starting, launches wait for it. One that dies is started again, after waits
//!   if it happens again; where that fails too, or forking it is not safe, ranks start cold.
//! - An attempt is over when its ranks have ended, their last words are in, and nothing that escaped
//!   them is left (`strays`).
//! - The directory of an attempt that ended well is removed when a later one of its task has done
//!   so too, whichever driver had it; those of failed attempts stay.

mod files;
mod gangs;
mod input;
mod parent;
mod parents;
mod protocol;
mod ranks;
mod strays;

pub(crate) use parent::{python_command, set_up_python};

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use saturn_engine::{
    AttemptEnd, AttemptId, Event, FailureKind, LaunchError, LaunchOrder, Launcher, News, Purpose,
    RankReport, TaskId,
};

use self::files::{Place, last_words};
pub(crate) use self::files::{Share, attempt_dir};
use self::gangs::{Ended, Gangs};
use self::input::{Input, MAX_WAITING, Sending};
use self::parents::Parents;
use self::ranks::RankSocket;
use self::strays::Sweeper;
use crate::bell::Bell;
use crate::devices::Pool;
use crate::disk::Disk;
use crate::error::{RuntimeError, with_causes};
use crate::host_memory::OomKills;
use crate::request::LaunchSettings;

/// What is said of a rank that the kernel killed for want of the machine's memory.
const OUT_OF_HOST_MEMORY: &str =
    "the kernel killed it because the machine's own memory ran out (not its device's)";
/// Inputs that are taken in before ends are looked for.
const MAX_INPUTS: usize = 64;
/// How long processes of the run may take to end when it has.
const END: Duration = Duration::from_secs(2);

/// Where a run's processes on this machine find its files.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    /// The run directory.
    pub(crate) run_dir: PathBuf,
    /// Held by every process of the run.
    pub(crate) workers_lock: PathBuf,
    /// Where parents of ranks keep their logs.
    pub(crate) parent_logs: PathBuf,
}

/// Processes on this machine.
#[derive(Debug)]
pub(crate) struct LocalLauncher {
    place: Place,
    gangs: Gangs,
    parents: Parents,
    sweeper: Sweeper,
    /// Attempts whose end is not on record.
    attempts: BTreeMap<AttemptId, Attempt>,
    /// The directory of each task's newest training attempt that ended well.
    newest: BTreeMap<TaskId, PathBuf>,
    news: VecDeque<News>,
    oom_kills: OomKills,
    inputs: Receiver<Input>,
    _socket: RankSocket,
}

#[derive(Debug)]
struct Attempt {
    directory: PathBuf,
    task: TaskId,
    purpose: Purpose,
}

/// An attempt of an earlier driver that has ended.
#[derive(Debug)]
pub(crate) struct Earlier {
    pub(crate) attempt: AttemptId,
    pub(crate) task: TaskId,
    /// Directory of the task within the run directory.
    pub(crate) task_dir: String,
    pub(crate) purpose: Purpose,
    pub(crate) end: AttemptEnd,
}

impl LocalLauncher {
    /// Starts what starts ranks. What an earlier driver of the run left behind is ended first.
    pub(crate) fn start(
        site: Site,
        settings: LaunchSettings,
        pool: Pool,
        bell: Bell,
        disk: Disk,
    ) -> Result<Self, RuntimeError> {
        let run_id = settings.run_id.clone();
        let left = strays::end_all(&run_id, END);
        if !left.is_empty() {
            return Err(RuntimeError::WorkersAlive { path: site.run_dir, pids: left });
        }
        let (sender, inputs) = sync_channel(MAX_WAITING);
        let sending = Sending { inputs: sender, bell };
        let socket = RankSocket::listen(sending.clone())?;
        let sweeper = Sweeper::start(run_id.clone(), sending.clone());
        let run_dir = site.run_dir.clone();
        let parents = Parents::start(site, settings, sending)?;
        let place = Place {
            run_dir,
            run_id,
            socket: socket.path().to_owned(),
            pool,
            memory_by_type: BTreeMap::new(),
            disk,
        };
        Ok(Self {
            place,
            gangs: Gangs::default(),
            parents,
            sweeper,
            attempts: BTreeMap::new(),
            newest: BTreeMap::new(),
            news: VecDeque::new(),
            oom_kills: OomKills::from_now(),
            inputs,
            _socket: socket,
        })
    }

    /// Ends every process. Those that live on come back.
    pub(crate) fn end(self) -> Vec<i32> {
        let Self { place, mut gangs, parents, inputs, .. } = self;
        let ranks = gangs.kill_all();
        // Who has more to say must not wait for ever.
        drop(inputs);
        drop(parents);
        let mut left = strays::end_all(&place.run_id, END);
        left.extend(ranks.into_iter().filter(|rank| strays::leads_a_group(*rank)));
        left.sort_unstable();
        left.dedup();
        left
    }

    /// Takes in what devices hold of which other machines' launchers know.
    pub(crate) fn learn_memory(&mut self, by_type: BTreeMap<String, u64>) {
        self.place.memory_by_type = by_type;
    }

    /// Starts a gang, or this node's share of it.
    pub(crate) fn launch_share(
        &mut self,
        order: &LaunchOrder,
        share: Option<&Share>,
    ) -> Result<(), LaunchError> {
        let attempt = order.attempt;
        if self.attempts.is_empty() {
            self.oom_kills.forget();
        }
        let launches = self.place.write(order, share).map_err(|error| LaunchError {
            kind: if error.is_disk_full() { FailureKind::NoSpace } else { FailureKind::Machine },
            error: with_causes(&error),
        })?;
        let directory = self.place.attempt_dir(&order.spec.dir, attempt);
        let (task, purpose) = (order.task, order.purpose);
        self.attempts.insert(attempt, Attempt { directory, task, purpose });
        self.parents.wait(attempt, launches);
        self.launch_waiting();
        Ok(())
    }

    /// Removes directories of attempts of earlier drivers as those of its own, which a driver that died
    /// did not come to.
    pub(crate) fn take_over(&mut self, earlier: Vec<Earlier>) {
        for Earlier { attempt, task, task_dir, purpose, end } in earlier {
            let directory = self.place.attempt_dir(&task_dir, attempt);
            self.attempts.insert(attempt, Attempt { directory, task, purpose });
            self.ended(attempt, &end);
        }
    }

    fn take_in(&mut self, input: Input) {
        match input {
            Input::Ready { parent, cannot_fork } => {
                let notes = self.parents.ready(parent, cannot_fork);
                self.tell_notes(notes);
                self.launch_waiting();
            }
            Input::ParentGone { parent } => {
                let notes = self.parents.gone(parent);
                self.tell_notes(notes);
                for (attempt, rank) in self.gangs.parent_gone(parent) {
                    // They failed through no fault of their own.
                    let report = RankReport::Failed {
                        kind: FailureKind::Saturn,
                        error: "the process that started the rank ended unexpectedly".to_owned(),
                        traceback: String::new(),
                    };
                    self.news.push_back(News::Event(Event::Reported { attempt, rank, report }));
                }
                self.launch_waiting();
            }
            Input::Started { key, pid } => self.gangs.started(key, pid),
            Input::Exited { key, code } => self.gangs.exited(key, code),
            Input::Connected { attempt, rank, stream } => {
                self.gangs.connected(attempt, rank, stream);
            }
            Input::HungUp { attempt, rank } => self.gangs.hung_up(attempt, rank),
            Input::Reported { attempt, rank, report } => {
                let report = *report;
                self.news.push_back(News::Event(Event::Reported { attempt, rank, report }));
            }
            Input::Swept { attempt } => self.gangs.swept(attempt),
        }
    }

    fn tell_notes(&mut self, notes: Vec<String>) {
        self.news.extend(notes.into_iter().map(News::Note));
    }

    /// Starts the gangs that waited for a parent, if there is one now.
    fn launch_waiting(&mut self) {
        let Some(parent) = self.parents.serving() else { return };
        for (attempt, launches) in self.parents.take_waiting() {
            self.gangs.expect(attempt, launches.iter().map(|one| one.rank), parent);
            if let Err(error) = self.parents.launch(&launches) {
                self.gangs.forget(attempt);
                let LaunchError { kind, error } = error;
                self.news.push_back(News::Event(Event::LaunchFailed { attempt, kind, error }));
            }
        }
    }

    /// Starts another parent where it is time to, and has gangs fail that wait for one in vain.
    fn look_at_parents(&mut self) {
        let note = self.parents.look();
        self.tell_notes(note.into_iter().collect());
        for (attempt, LaunchError { kind, error }) in self.parents.take_hopeless() {
            self.news.push_back(News::Event(Event::LaunchFailed { attempt, kind, error }));
        }
    }

    fn look_for_ends(&mut self) {
        let Ended { ranks, to_sweep, hung_parents } = self.gangs.take_ended();
        for (attempt, ranks) in to_sweep {
            self.sweeper.sweep(attempt, ranks);
        }
        for parent in hung_parents {
            self.parents.kill(parent);
        }
        for (attempt, rank, code) in ranks {
            let directory = self.attempts.get(&attempt).map(|attempt| &attempt.directory);
            let last_words = directory.map(|path| last_words(path, rank)).unwrap_or_default();
            if code == -9 && self.oom_kills.take_one() {
                // Of a gang that was told to die anyway the engine doesn't believe it.
                let report = RankReport::Failed {
                    kind: FailureKind::HostMemory,
                    error: OUT_OF_HOST_MEMORY.to_owned(),
                    traceback: last_words.clone(),
                };
                self.news.push_back(News::Event(Event::Reported { attempt, rank, report }));
            }
            let event = Event::RankExited { attempt, rank, code, last_words };
            self.news.push_back(News::Event(event));
        }
    }
}

impl Launcher for LocalLauncher {
    fn is_ready(&self) -> bool {
        !self.parents.is_starting()
    }

    fn launch(&mut self, order: LaunchOrder) -> Result<(), LaunchError> {
        self.launch_share(&order, None)
    }

    fn stop(&mut self, attempt: AttemptId) {
        self.gangs.stop(attempt);
    }

    fn until(&mut self, attempt: AttemptId, step: Option<u64>) {
        self.gangs.until(attempt, step);
    }

    fn go_on(&mut self, attempt: AttemptId, steps: u64) {
        self.gangs.go_on(attempt, steps);
        if let Some(attempt) = self.attempts.get_mut(&attempt) {
            attempt.purpose = Purpose::Train;
        }
    }

    fn kill(&mut self, attempt: AttemptId) {
        if let Some(launches) = self.parents.forget(attempt) {
            // It never came to have processes.
            for launch in launches {
                let (rank, code) = (launch.rank, -9);
                let last_words = String::new();
                let event = Event::RankExited { attempt, rank, code, last_words };
                self.news.push_back(News::Event(event));
            }
        }
        self.gangs.kill(attempt);
    }

    fn ended(&mut self, attempt: AttemptId, end: &AttemptEnd) {
        let Some(Attempt { directory, task, purpose }) = self.attempts.remove(&attempt) else {
            return;
        };
        match (end, purpose) {
            // Its logs may be all that tells why.
            (AttemptEnd::Failed { .. } | AttemptEnd::Abandoned | AttemptEnd::Lost, _) => {}
            (_, Purpose::Inspection | Purpose::Trial) => self.sweeper.remove(directory),
            (_, Purpose::Train) => {
                if let Some(before) = self.newest.insert(task, directory) {
                    self.sweeper.remove(before);
                }
            }
        }
    }

    fn poll(&mut self) -> Option<News> {
        if self.news.is_empty() {
            for _ in 0..MAX_INPUTS {
                let Ok(input) = self.inputs.try_recv() else { break };
                self.take_in(input);
            }
            self.look_for_ends();
            self.look_at_parents();
        }
        self.news.pop_front()
    }
}
