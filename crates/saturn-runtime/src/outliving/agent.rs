//! The process that ranks belong to if they outlive their driver.
//!
//! One thread owns the launcher and the words for the driver. Other threads only read: one accepts
//! drivers and reads their lines, one driver after the other, and one writes to a driver, so that a
//! driver that reads nothing delays no rank.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use saturn_engine::{AttemptEnd, AttemptId, Launcher};
use saturn_store::{Disk, with_causes};

use crate::asking::sockets::{listen_in, socket_in};
use crate::cluster::agent::word_of;
use crate::cluster::letters::{FromAgent, ToAgent};
use crate::devices::claims::{Claims, owned};
use crate::devices::hardware::Hardware;
use crate::devices::pool::Pool;
use crate::launching::launcher::LocalLauncher;
use crate::outliving::messages::{
    FromAgentOfRun, FromDriver, Lines, Setup, VERSION, write_line_with,
};
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
/// The wait after a failed accept, which happens if no file descriptor is left.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// What the thread that reads has seen.
enum Input {
    /// A driver has connected.
    Came(UnixStream),
    Said(FromDriver),
    /// The driver has gone, or said something that can't be read.
    Went,
}

/// A line for the driver, and the open files that go with it.
type Saying = (FromAgentOfRun, Vec<OwnedFd>);

/// An agent that has taken its devices and started its launcher.
#[derive(Debug)]
pub struct RunAgent {
    agent: String,
    hardware: Hardware,
    launcher: LocalLauncher,
    telling: Telling,
    is_ready_told: bool,
    /// The driver, if one is there: lines go to the thread that writes.
    driver: Option<Sender<Saying>>,
    /// The connection to it, which stays open as long as the driver's devices are held.
    connection: Option<Arc<UnixStream>>,
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
}

impl RunAgent {
    /// Takes the devices and starts the launcher, as `setup` says: one line of the driver. From the
    /// return on drivers may connect.
    pub fn start(setup: &str) -> Result<Self, RuntimeError> {
        let setup: Setup = serde_json::from_str(setup)
            .map_err(|error| RuntimeError::Request { reason: error.to_string() })?;
        let Setup { site, settings, pool, locks, earlier } = setup;
        let stays_s = settings.outlives_s.unwrap_or_default();
        let run_dir = site.run_dir.clone();
        let claims = Claims::handed(&run_dir, locks.into_iter().map(owned).collect())?;
        claims.sign()?;
        let pool = Pool::of(pool, claims);
        let hardware = pool.hardware();
        let bell = Bell::default();
        let mut launcher =
            LocalLauncher::start(site, settings, pool, bell.clone(), Disk::default())?;
        launcher.take_over(earlier);
        let directory = File::open(&run_dir).map_err(RuntimeError::file("open", &run_dir))?;
        let listener = listen_in(&directory, SOCKET, &run_dir)?;
        let (sender, inputs) = channel();
        let ringing = bell.clone();
        std::thread::spawn(move || accept(&listener, &sender, &ringing));
        let stays = Duration::try_from_secs_f64(stays_s)
            .map_err(|error| RuntimeError::Request { reason: error.to_string() })?;
        Ok(Self {
            agent: new_run_id()?,
            hardware,
            launcher,
            telling: Telling::default(),
            is_ready_told: false,
            driver: None,
            connection: None,
            alone: Some(clock::now()),
            stays,
            leaving: None,
            inputs,
            bell,
            directory,
            run_dir,
            look_at: clock::deadline(LOOK),
        })
    }

    /// Serves drivers until one says that the run is over, or none has come for too long.
    pub fn serve(mut self) {
        loop {
            self.bell.wait(POLL);
            while let Ok(input) = self.inputs.try_recv() {
                if !self.take_in(input) {
                    return self.end();
                }
            }
            self.gather();
            self.tell();
            if self.has_left() || self.is_displaced() {
                return self.end();
            }
        }
    }

    /// Takes an input in. Returns whether the agent goes on.
    fn take_in(&mut self, input: Input) -> bool {
        match input {
            Input::Came(stream) => {
                let (sender, lines) = channel();
                self.driver = Some(sender);
                let stream = Arc::new(stream);
                self.connection = Some(Arc::clone(&stream));
                std::thread::spawn(move || write_lines(&stream, &lines));
            }
            Input::Went => {
                (self.driver, self.connection) = (None, None);
                // Somebody who only asked was no driver.
                self.alone.get_or_insert_with(clock::now);
            }
            Input::Said(FromDriver::Hello { version: VERSION }) => {
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
                });
            }
            Input::Said(FromDriver::Hello { version }) => {
                let reason = format!("the agent speaks version {VERSION}, not {version}");
                self.say(FromAgentOfRun::Refused { reason });
            }
            Input::Said(FromDriver::Adopt { attempts, heard }) => self.adopt(attempts, heard),
            Input::Said(FromDriver::Heard { number }) => self.telling.heard(number),
            Input::Said(FromDriver::StopAll) => self.leave(),
            Input::Said(FromDriver::Order(order)) => return self.obey(order),
        }
        true
    }

    fn obey(&mut self, order: ToAgent) -> bool {
        match order {
            ToAgent::Launch { order, .. } => {
                let attempt = order.attempt;
                if let Err(error) = self.launcher.launch(*order) {
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
        // The driver may have gone, which the thread that reads will say.
        if let Some(driver) = &self.driver {
            let _ = driver.send((line, files));
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
        if self.leaving.is_none() && self.alone_for() > self.stays {
            self.leave();
        }
        let Some(since) = self.leaving else { return false };
        let attempts = self.launcher.attempts();
        since.elapsed() > LEAVE || !attempts.iter().any(|one| self.launcher.is_live(*one))
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

    fn end(self) {
        // From here on no driver finds this agent, whose ranks end.
        let _ = std::fs::remove_file(socket_in(&self.directory, SOCKET));
        let left = self.launcher.end();
        // The connection ends with the process, and not before: then its driver knows that the devices
        // are free.
        std::mem::forget(self.connection);
        if let Some(driver) = self.driver {
            let word = FromAgent::Over { left };
            let _ = driver.send((FromAgentOfRun::Word { number: None, word }, Vec::new()));
            drop(driver);
            // The driver says no more once it has read this.
            let until = clock::deadline(Duration::from_secs(2));
            while !clock::is_past(until) {
                match self.inputs.try_recv() {
                    Ok(Input::Went) => return,
                    _ => pause(Duration::from_millis(5)),
                }
            }
        }
    }
}

/// Reads drivers' lines, one driver after the other. The orders of a driver that has died are
/// obeyed before the next driver is heard.
fn accept(listener: &UnixListener, inputs: &Sender<Input>, bell: &Bell) {
    let send = |input: Input| {
        let sent = inputs.send(input);
        bell.ring();
        sent.is_ok()
    };
    for stream in listener.incoming() {
        let both = stream.and_then(|stream| Ok((stream.try_clone()?, stream)));
        let Ok((writer, stream)) = both else {
            pause(AFTER_FAILURE);
            continue;
        };
        if !send(Input::Came(writer)) {
            return;
        }
        let mut lines = Lines::of(stream);
        while let Ok(Some(said)) = lines.next() {
            if !send(Input::Said(said)) {
                return;
            }
        }
        if !send(Input::Went) {
            return;
        }
    }
}

fn write_lines(stream: &UnixStream, lines: &Receiver<Saying>) {
    for (line, files) in lines {
        if write_line_with(stream, &line, &files).is_err() {
            return;
        }
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
