//! The process that ranks belong to if they outlive their driver.
//!
//! One thread owns the launcher and the words for the driver. Other threads only read and write
//! (`connection`).

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use saturn_engine::{AttemptEnd, AttemptId, FailureKind, LaunchError, Launcher};
use saturn_store::{Disk, with_causes};

use crate::asking::sockets::{OpenTo, listen_in, socket_in};
use crate::cluster::agent::word_of;
use crate::cluster::letters::{FromAgent, ToAgent};
use crate::devices::claims::{Claims, owned};
use crate::devices::hardware::Hardware;
use crate::devices::pool::Pool;
use crate::launching::launcher::LocalLauncher;
use crate::launching::settings::LaunchSettings;
use crate::launching::site::Site;
use crate::outliving::connection::{Connection, Input, listen};
use crate::outliving::guard::Guard;
use crate::outliving::messages::{FromAgentOfRun, FromDriver, Setup, VERSION};
use crate::outliving::starting::SOCKET;
use crate::outliving::telling::Telling;
use crate::run_files::run_dir::leads_to;
use crate::system::bell::Bell;
use crate::system::clock::{self, pause};
use crate::system::error::RuntimeError;
use crate::system::run_id::new_run_id;

/// How often the agent looks at its launcher if nothing wakes it.
const POLL: Duration = Duration::from_millis(50);
/// The most news taken from the launcher in one round.
const MAX_NEWS: usize = 1024;
/// How long the processes of attempts that nobody takes on may take to end.
const END: Duration = Duration::from_secs(10);
/// How long ranks may take to stop at checkpoints once the agent leaves.
const LEAVE: Duration = Duration::from_mins(10);
/// How often an agent without a driver checks that the run's directory is where it was.
const LOOK: Duration = Duration::from_secs(1);

/// The file in the directory of a guest's agent that has it leave the pool.
pub(super) const LEAVES: &str = "leave";

/// An agent that has taken its devices and started its launcher.
#[derive(Debug)]
pub struct RunAgent {
    agent: String,
    hardware: Hardware,
    launcher: LocalLauncher,
    telling: Telling,
    is_ready_told: bool,
    /// The driver, if one is there.
    driver: Option<Connection>,
    /// Since when no driver is there.
    alone: Option<Instant>,
    stays: Duration,
    /// Since when all ranks are to stop, because no driver came.
    leaving: Option<Instant>,
    inputs: Receiver<Input>,
    bell: Bell,
    /// The run's directory, which has the socket, and its path.
    directory: File,
    run_dir: PathBuf,
    /// When to check next that the path leads there.
    look_at: Instant,
    /// Which orders it obeys; `None`: all, since its driver is the same person's.
    guard: Option<Guard>,
}

/// What an agent begins with.
#[derive(Debug)]
pub(super) struct Beginning {
    /// A name of its own, which no other agent ever had.
    pub(super) agent: String,
    pub(super) site: Site,
    pub(super) settings: LaunchSettings,
    pub(super) pool: Pool,
    pub(super) inputs: Receiver<Input>,
    pub(super) bell: Bell,
    pub(super) driver: Option<Connection>,
    pub(super) guard: Option<Guard>,
}

impl RunAgent {
    /// Takes the devices and starts the launcher, as `setup` says: one line of the driver. From the
    /// return on drivers may connect.
    pub fn start(setup: &str) -> Result<Self, RuntimeError> {
        let setup: Setup = serde_json::from_str(setup)
            .map_err(|error| RuntimeError::Request { reason: error.to_string() })?;
        let Setup { site, settings, pool, locks, earlier } = setup;
        let run_dir = site.run_dir.clone();
        let claims = Claims::handed(&run_dir, locks.into_iter().map(owned).collect())?;
        claims.sign()?;
        let pool = Pool::of(pool, claims);
        let directory = File::open(&run_dir).map_err(RuntimeError::file("open", &run_dir))?;
        let bell = Bell::default();
        let agent = new_run_id()?;
        let listener = listen_in(&directory, SOCKET, &run_dir, OpenTo::Own)?;
        let inputs = listen(listener, None, bell.clone());
        let (driver, guard) = (None, None);
        let mut agent =
            Self::of(Beginning { agent, site, settings, pool, inputs, bell, driver, guard })?;
        agent.launcher.take_over(earlier);
        Ok(agent)
    }

    /// Starts the launcher. The inputs come from a socket that listens already.
    pub(super) fn of(beginning: Beginning) -> Result<Self, RuntimeError> {
        let Beginning { agent, site, settings, pool, inputs, bell, driver, guard } = beginning;
        let run_dir = site.run_dir.clone();
        let directory = File::open(&run_dir).map_err(RuntimeError::file("open", &run_dir))?;
        let stays = Duration::try_from_secs_f64(settings.outlives_s.unwrap_or_default())
            .map_err(|error| RuntimeError::Request { reason: error.to_string() })?;
        let hardware = pool.hardware();
        let launcher = LocalLauncher::start(site, settings, pool, bell.clone(), Disk::default())?;
        Ok(Self {
            agent,
            hardware,
            launcher,
            telling: Telling::default(),
            is_ready_told: false,
            driver,
            alone: Some(clock::now()),
            stays,
            leaving: None,
            inputs,
            bell,
            directory,
            run_dir,
            look_at: clock::deadline(LOOK),
            guard,
        })
    }

    /// Serves drivers until one says that the run is over, or none has come for too long.
    pub fn serve(self) {
        let socket = self.directory.try_clone();
        let _ = self.served(|| {
            // From here on no driver finds this agent, whose ranks end.
            let _ = socket.map(|directory| std::fs::remove_file(socket_in(&directory, SOCKET)));
        });
    }

    /// The same; calls `ending` before it ends its ranks. Returns what listens for drivers.
    pub(super) fn served(mut self, ending: impl FnOnce()) -> Receiver<Input> {
        loop {
            self.bell.wait(POLL);
            while let Ok(input) = self.inputs.try_recv() {
                if !self.take_in(input) {
                    ending();
                    return self.end();
                }
            }
            self.gather();
            self.tell();
            if self.has_left() || self.is_displaced() {
                ending();
                return self.end();
            }
        }
    }

    /// Takes an input in. Returns whether the agent goes on.
    fn take_in(&mut self, input: Input) -> bool {
        match input {
            Input::Came(stream) => self.driver = Some(Connection::to(stream)),
            Input::Went => {
                self.driver = None;
                // Somebody who only asked was no driver.
                self.alone.get_or_insert_with(clock::now);
            }
            Input::Said(FromDriver::Hello { version: VERSION }, _) => {
                let stays_s = self.stays.saturating_sub(self.alone_for()).as_secs_f64();
                let (agent, hardware) = (self.agent.clone(), self.hardware.clone());
                let (attempts, is_ready) = (self.launcher.attempts(), self.launcher.is_ready());
                let is_in_place = self.is_in_place();
                self.say(FromAgentOfRun::Welcome {
                    agent,
                    hardware,
                    attempts,
                    is_ready,
                    stays_s,
                    is_in_place,
                    wants_devices: false,
                });
            }
            Input::Said(FromDriver::Hello { version }, _) => {
                let reason = format!("the agent speaks version {VERSION}, not {version}");
                self.say(FromAgentOfRun::Refused { reason });
            }
            Input::Said(FromDriver::Adopt { attempts, heard }, _) => self.adopt(attempts, heard),
            Input::Said(FromDriver::Heard { number }, _) => self.telling.heard(number),
            Input::Said(FromDriver::StopAll, _) => self.leave(),
            Input::Said(FromDriver::Order(order), _) => return self.obey(order),
            // It has its devices.
            Input::Said(FromDriver::Devices { .. }, _) => {}
        }
        true
    }

    fn obey(&mut self, order: ToAgent) -> bool {
        match order {
            ToAgent::Launch { order, .. } => {
                let attempt = order.attempt;
                let guarded = match &self.guard {
                    Some(_) if self.leaving.is_some() => Err(LaunchError {
                        kind: FailureKind::Saturn,
                        error: "the person whose task it is leaves the pool".to_owned(),
                    }),
                    Some(guard) => guard.checked(*order),
                    None => Ok(*order),
                };
                if let Err(error) = guarded.and_then(|order| self.launcher.launch(order)) {
                    let (kind, error) = (error.kind, error.error);
                    self.telling.say(FromAgent::LaunchFailed { attempt, kind, error });
                }
            }
            ToAgent::Stop { attempt } => self.launcher.stop(attempt),
            ToAgent::Until { attempt, step } => self.launcher.until(attempt, step),
            ToAgent::GoOn { attempt, steps } => self.launcher.go_on(attempt, steps),
            ToAgent::Kill { attempt } => self.launcher.kill(attempt),
            ToAgent::Ended { attempt, end } => {
                self.launcher.ended(attempt, &end);
                self.telling.forget(attempt);
            }
            ToAgent::End => return false,
            // Of clusters.
            ToAgent::Begin { .. } | ToAgent::OpenStore => {}
        }
        true
    }

    /// Ends all attempts but these, which go on under another driver.
    fn adopt(&mut self, attempts: Vec<AttemptId>, heard: u64) {
        let adopted: BTreeSet<AttemptId> = attempts.into_iter().collect();
        let mut others = self.launcher.attempts();
        others.retain(|attempt| !adopted.contains(attempt));
        for attempt in &others {
            self.launcher.kill(*attempt);
        }
        let until = clock::deadline(END);
        while others.iter().any(|attempt| self.launcher.is_live(*attempt)) && !clock::is_past(until)
        {
            self.gather();
            pause(Duration::from_millis(5));
        }
        // Those of earlier kills too, although their attempts' ends are on record.
        let mut undead = self.launcher.living();
        undead.retain(|(attempt, _)| !adopted.contains(attempt));
        for attempt in others {
            self.launcher.ended(attempt, &AttemptEnd::Lost);
            self.telling.forget(attempt);
        }
        self.telling.begin_again(&adopted, heard);
        self.is_ready_told = false;
        self.alone = None;
        self.leaving = None;
        let pool = self.launcher.pool();
        match pool.claims().files() {
            Ok(files) => {
                let (pool, num_files) = (pool.describe(), files.len());
                self.say_with(FromAgentOfRun::Adopted { pool, num_files, undead }, files);
            }
            Err(error) => {
                let reason = with_causes(&error);
                self.say(FromAgentOfRun::Refused { reason });
            }
        }
    }

    /// Takes the launcher's news in.
    fn gather(&mut self) {
        for _ in 0..MAX_NEWS {
            let Some(news) = self.launcher.poll() else { break };
            if let Some(word) = word_of(news) {
                self.telling.say(word);
            }
        }
    }

    /// Tells the driver what there is to tell, once it has taken the ranks on.
    fn tell(&mut self) {
        if self.driver.is_none() || self.alone.is_some() {
            return;
        }
        if !self.is_ready_told && self.launcher.is_ready() {
            self.is_ready_told = true;
            self.say(FromAgentOfRun::Word { number: None, word: FromAgent::Ready });
        }
        for (number, word) in self.telling.take() {
            self.say(FromAgentOfRun::Word { number, word });
        }
    }

    fn say(&mut self, line: FromAgentOfRun) {
        self.say_with(line, Vec::new());
    }

    fn say_with(&mut self, line: FromAgentOfRun, files: Vec<OwnedFd>) {
        if let Some(driver) = &self.driver {
            driver.say(line, files);
        }
    }

    fn alone_for(&self) -> Duration {
        self.alone.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Has all ranks stop at checkpoints.
    fn leave(&mut self) {
        self.leaving.get_or_insert_with(clock::now);
        for attempt in self.launcher.attempts() {
            self.launcher.stop(attempt);
        }
    }

    /// Whether no driver has come for so long that all ranks have stopped.
    fn has_left(&mut self) -> bool {
        if self.leaving.is_none() && (self.alone_for() > self.stays || self.is_told_to_leave()) {
            self.leave();
        }
        let Some(since) = self.leaving else { return false };
        let attempts = self.launcher.attempts();
        since.elapsed() > LEAVE || !attempts.iter().any(|one| self.launcher.is_live(*one))
    }

    /// Whether its person has left the pool of another person.
    fn is_told_to_leave(&mut self) -> bool {
        if self.guard.is_none() || !clock::is_past(self.look_at) {
            return false;
        }
        // Without a driver, the look at the run's directory comes next.
        if self.alone.is_none() {
            self.look_at = clock::deadline(LOOK);
        }
        self.run_dir.join(LEAVES).exists()
    }

    fn is_in_place(&self) -> bool {
        leads_to(&self.run_dir, &self.directory)
    }

    /// Whether no driver is there, and the run's directory was moved or removed. Then what ranks save
    /// is lost, and the devices are better free. A driver looks for itself.
    fn is_displaced(&mut self) -> bool {
        if self.alone.is_none() || !clock::is_past(self.look_at) {
            return false;
        }
        self.look_at = clock::deadline(LOOK);
        !self.is_in_place()
    }

    fn end(mut self) -> Receiver<Input> {
        // What its ranks have said at their ends.
        self.gather();
        self.tell();
        let left = self.launcher.end();
        if let Some(driver) = self.driver {
            if self.guard.is_none() {
                // The connection ends with the process, and not before: then its driver knows that
                // the devices are free.
                driver.keep_open();
            }
            driver.say(FromAgentOfRun::over(left), Vec::new());
            drop(driver);
            // The driver says no more once it has read this.
            let until = clock::deadline(Duration::from_secs(2));
            while !clock::is_past(until) {
                match self.inputs.try_recv() {
                    Ok(Input::Went) => break,
                    _ => pause(Duration::from_millis(5)),
                }
            }
        }
        self.inputs
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::outliving::starting;

    fn setup(run_dir: &Path) -> String {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_python.py");
        let setup = json!({
            "site": {
                "run_dir": run_dir, "workers_lock": run_dir.join("workers.lock"),
                "parent_logs": run_dir,
            },
            "settings": {
                "python": python, "python_path": [], "cwd": run_dir, "preload": [], "devices": 1,
                "run_id": new_run_id().unwrap(), "outlives_s": 600.0,
            },
            "pool": {"kind": "cpu", "nodes": [], "warnings": []}, "locks": [], "earlier": [],
        });
        setup.to_string()
    }

    #[test]
    fn an_agent_whose_directory_was_moved_says_so_and_ends() {
        let dir = tempfile::TempDir::new().unwrap();
        let (run, moved) = (dir.path().join("run"), dir.path().join("moved"));
        std::fs::create_dir(&run).unwrap();
        let mut agent = RunAgent::start(&setup(&run)).unwrap();
        // It does not look before it was asked.
        agent.look_at = clock::deadline(Duration::from_secs(2));
        let serving = std::thread::spawn(move || agent.serve());
        assert!(starting::find(&run).unwrap().unwrap().is_in_place);
        std::fs::rename(&run, &moved).unwrap();
        assert!(!starting::find(&moved).unwrap().unwrap().is_in_place);
        // Nobody has told it to.
        serving.join().unwrap();
        assert!(starting::find(&moved).unwrap().is_none());
    }
}
