//! The launcher of a single machine. It starts gangs of Python processes through a parent process
//! that has imported what they need.
//!
//! - Launches wait while the warm parent starts. If the warm parent dies, another is started, and
//!   after repeated deaths only after a wait. If warm parents keep dying, or forking one is not
//!   safe, ranks start cold.
//! - An attempt is over when its ranks have ended, their last words are in, and no process that
//!   escaped from them is left (`strays`).
//! - When an attempt ends well, the directory of the task's earlier attempt that ended well is
//!   removed, whichever driver launched it. Directories of failed attempts stay.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use saturn_engine::{
    AttemptEnd, AttemptId, Event, FailureKind, LaunchError, LaunchOrder, Launcher, News, Purpose,
    RankReport, TaskId,
};
use saturn_store::{Disk, with_causes};
use serde::{Deserialize, Serialize};

use crate::devices::host_memory::OomKills;
use crate::devices::pool::Pool;
use crate::launching::files::{Place, Share, last_words};
use crate::launching::gangs::{Ended, Gangs};
use crate::launching::input::{Input, MAX_WAITING, Sending};
use crate::launching::parents::{Parents, Waiting};
use crate::launching::protocol::RankKey;
use crate::launching::ranks::RankSocket;
use crate::launching::settings::LaunchSettings;
use crate::launching::site::Site;
use crate::launching::strays::{self, Sweeper};
use crate::system::bell::Bell;
use crate::system::error::RuntimeError;

/// The error of a rank that the kernel killed because the machine ran out of memory.
const OUT_OF_HOST_MEMORY: &str =
    "the kernel killed it because the machine's own memory ran out (not its device's)";
/// The most inputs taken in before the launcher looks for ranks that have ended.
const MAX_INPUTS: usize = 64;
/// How long the run's processes may take to end when the run is over.
const END: Duration = Duration::from_secs(2);

/// Launches and watches processes on this machine.
#[derive(Debug)]
pub(crate) struct LocalLauncher {
    place: Place,
    gangs: Gangs,
    parents: Parents,
    sweeper: Sweeper,
    /// Attempts whose end is not on record yet.
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

/// An ended attempt that an earlier driver launched.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Earlier {
    pub(crate) attempt: AttemptId,
    pub(crate) task: TaskId,
    /// Directory of the task within the run directory.
    pub(crate) task_dir: String,
    pub(crate) purpose: Purpose,
    pub(crate) end: AttemptEnd,
}

impl LocalLauncher {
    /// Starts the parent of ranks. Ends first what an earlier driver of the run left behind.
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

    /// Ends every process. Returns those that live on.
    pub(crate) fn end(self) -> Vec<i32> {
        let Self { place, mut gangs, parents, inputs, .. } = self;
        let ranks = gangs.kill_all();
        // Lets threads that wait to send more input end.
        drop(inputs);
        drop(parents);
        let mut left = strays::end_all(&place.run_id, END);
        left.extend(ranks.into_iter().filter(|rank| strays::leads_a_group(*rank)));
        left.sort_unstable();
        left.dedup();
        left
    }

    /// Sets the least device memory of each type over all machines of a cluster, which this machine
    /// cannot see.
    pub(crate) fn learn_memory(&mut self, by_type: BTreeMap<String, u64>) {
        self.place.memory_by_type = by_type;
    }

    /// The attempts whose end is not on record yet.
    pub(crate) fn attempts(&self) -> Vec<AttemptId> {
        self.attempts.keys().copied().collect()
    }

    /// The devices that this launcher launches on.
    pub(crate) fn pool(&self) -> &Pool {
        &self.place.pool
    }

    /// Attempts that have processes, or whose ranks' ends were not told yet, with the number of these
    /// ranks; also attempts whose ends are on record.
    pub(crate) fn living(&self) -> Vec<(AttemptId, u32)> {
        self.gangs.living()
    }

    /// Whether an attempt has processes, or will have some, or their ends were not told yet.
    pub(crate) fn is_live(&self, attempt: AttemptId) -> bool {
        self.gangs.has(attempt) || self.parents.has_waiting(attempt)
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

    /// Handles the ends of earlier drivers' attempts as if they were its own. This removes the
    /// directories that a driver left when it died.
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
                    let why = "the process that started the rank ended unexpectedly".to_owned();
                    self.tell_own_failure((attempt, rank), why);
                }
                self.launch_waiting();
            }
            Input::Started { key, pid } => self.gangs.started(key, pid),
            Input::Exited { key, code, why } => {
                if let Some(why) = why {
                    let why = format!("the machine could not start the rank's process: {why}");
                    self.tell_own_failure(key, why);
                }
                self.gangs.exited(key, code);
            }
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

    /// Tells that a rank failed through no fault of its own.
    fn tell_own_failure(&mut self, (attempt, rank): RankKey, error: String) {
        let kind = FailureKind::Saturn;
        let report = RankReport::Failed { kind, error, traceback: String::new() };
        self.news.push_back(News::Event(Event::Reported { attempt, rank, report }));
    }

    fn tell_notes(&mut self, notes: Vec<String>) {
        self.news.extend(notes.into_iter().map(News::Note));
    }

    /// Starts the gangs that wait for a parent, if a parent serves now.
    fn launch_waiting(&mut self) {
        let Some(parent) = self.parents.serving() else { return };
        for (attempt, Waiting { launches, orders }) in self.parents.take_waiting() {
            self.gangs.expect(attempt, launches.iter().map(|one| one.rank), parent, orders);
            if let Err(error) = self.parents.launch(&launches) {
                self.gangs.forget(attempt);
                let LaunchError { kind, error } = error;
                self.news.push_back(News::Event(Event::LaunchFailed { attempt, kind, error }));
            }
        }
    }

    /// Starts another parent when its wait is over. Reports failed launches of gangs that have
    /// waited in vain.
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
            let note = self.parents.kill(parent);
            self.tell_notes(note.into_iter().collect());
        }
        for (attempt, rank, code) in ranks {
            let directory = self.attempts.get(&attempt).map(|attempt| &attempt.directory);
            let last_words = directory.map(|path| last_words(path, rank)).unwrap_or_default();
            if code == -9 && self.oom_kills.take_one() {
                // If the gang was told to die anyway, the engine ignores this report.
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
        match self.parents.orders_to(attempt) {
            Some(orders) => orders.stop = true,
            None => self.gangs.stop(attempt),
        }
    }

    fn until(&mut self, attempt: AttemptId, step: Option<u64>) {
        match self.parents.orders_to(attempt) {
            Some(orders) => orders.until = Some(step),
            None => self.gangs.until(attempt, step),
        }
    }

    fn go_on(&mut self, attempt: AttemptId, steps: u64) {
        self.gangs.go_on(attempt, steps);
        if let Some(attempt) = self.attempts.get_mut(&attempt) {
            attempt.purpose = Purpose::Train;
        }
    }

    fn kill(&mut self, attempt: AttemptId) {
        if let Some(launches) = self.parents.forget(attempt) {
            // The gang waited for a parent and never had processes.
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
            // The logs may be the only trace of the cause, so the directory stays.
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
