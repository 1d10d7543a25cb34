//! Starting the agent of a run, and finding one that lives.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use saturn_engine::AttemptId;

use crate::asking::door::Door;
use crate::asking::sockets::socket_in;
use crate::cluster::letters::{FromAgent, ToAgent};
use crate::devices::claims::Claims;
use crate::devices::hardware::Hardware;
use crate::devices::pool::{Pool, PoolDescription};
use crate::launching::launcher::Earlier;
use crate::launching::parent::python_command;
use crate::launching::settings::LaunchSettings;
use crate::launching::site::Site;
use crate::outliving::messages::{
    FromAgentOfRun, FromDriver, Lines, Setup, VERSION, write_line, write_line_with,
};
use crate::system::error::RuntimeError;

/// The agent's socket in the run's directory.
pub(super) const SOCKET: &str = "agent.sock";
/// How long an agent may take to answer, and to end processes that nobody takes on.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an agent may take to start.
const START: Duration = Duration::from_mins(2);
/// The descriptor in the agent of the first file whose lock it inherits.
const FIRST_LOCK: i32 = 20;

/// An agent that has said who it is.
#[derive(Debug)]
pub(crate) struct Living {
    stream: UnixStream,
    lines: Lines,
    run_dir: PathBuf,
    /// A name of its own, which no other agent ever had.
    pub(crate) agent: String,
    pub(crate) hardware: Hardware,
    /// Attempts that have ranks, or whose end was not on record when it last heard a driver.
    pub(crate) attempts: Vec<AttemptId>,
    /// It starts processes without delay.
    pub(crate) is_ready: bool,
    /// Seconds until it has all ranks stop, if no driver comes.
    pub(crate) stays_s: f64,
    /// The run's directory is where it was when the agent began.
    pub(crate) is_in_place: bool,
    /// It is of another person, and has no devices yet.
    pub(crate) wants_devices: bool,
}

/// What an agent hands to the driver that takes its ranks on.
#[derive(Debug)]
pub(crate) struct Adopted {
    pool: PoolDescription,
    /// The locks on the devices, and how many there should be.
    files: Vec<OwnedFd>,
    num_files: usize,
    /// Attempts whose processes could not be killed, with the number of ranks that live.
    pub(crate) undead: Vec<(AttemptId, u32)>,
}

impl Adopted {
    /// The devices of this run. From now on this process holds their locks too.
    pub(crate) fn into_pool(self, run_dir: &Path) -> Result<Pool, RuntimeError> {
        if self.files.len() != self.num_files {
            let reason = "this process can open too few files to hold the locks on its devices";
            return Err(RuntimeError::Refused { reason: reason.to_owned() });
        }
        Ok(Pool::of(self.pool, Claims::handed(run_dir, self.files)?))
    }
}

/// Starts an agent that holds the devices of `pool` too.
pub(crate) fn start(
    site: Site,
    settings: LaunchSettings,
    pool: &Pool,
    earlier: Vec<Earlier>,
) -> Result<Living, RuntimeError> {
    let run_dir = site.run_dir.clone();
    let log_path = run_dir.join("agent.log");
    let log = OpenOptions::new().create(true).append(true).open(&log_path);
    let log = log.map_err(RuntimeError::file("open", &log_path))?;
    let mut command = python_command(&settings);
    command.args(["-m", "saturn.runs.agent"]);
    let files = pool.claims().files()?;
    let locks: Vec<i32> = (FIRST_LOCK..).take(files.len()).collect();
    let mappings = locks
        .iter()
        .zip(files)
        .map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd: *child_fd });
    command
        .fd_mappings(mappings.collect())
        .map_err(|error| RuntimeError::Request { reason: error.to_string() })?;
    let python = settings.python.clone();
    let failed = |source| RuntimeError::Python { python: python.clone(), source };
    let setup = Setup { site, settings, pool: pool.describe(), locks, earlier };
    let mut line = serde_json::to_vec(&setup)
        .map_err(|error| RuntimeError::Request { reason: error.to_string() })?;
    line.push(b'\n');
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().map_err(failed)?;
    // What goes wrong shows in what the agent answers.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(&line));
    let answer = child.stdout.take().and_then(first_line);
    if answer.is_none() {
        // Its imports may hang, as on a share that is gone.
        let _ = child.kill();
    }
    // This process was only the agent's parent.
    let _ = child.wait();
    let answer = answer.unwrap_or_default();
    let died = || RuntimeError::Refused {
        reason: format!("the agent of the run's ranks did not start: see {}", log_path.display()),
    };
    match serde_json::from_str::<Started>(&answer).map_err(|_| died())? {
        Started::Ready => find(&run_dir)?.ok_or_else(died),
        Started::Failed(reason) => Err(RuntimeError::Refused { reason }),
    }
}

/// The first line that a process says; `None` if it says none in time.
fn first_line(from: ChildStdout) -> Option<String> {
    let (line, said) = channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = BufReader::new(from).read_line(&mut text);
        let _ = line.send(text);
    });
    said.recv_timeout(START).ok()
}

/// What an agent says on its standard output, once.
#[derive(serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Started {
    Ready,
    Failed(String),
}

/// The agent of a run, if one lives. An agent that does not answer is an error: its ranks may live.
/// An agent of another version is asked to have its ranks stop.
pub(crate) fn find(run_dir: &Path) -> Result<Option<Living>, RuntimeError> {
    Ok(match greet(run_dir)? {
        None => None,
        Some(Ok(living)) => Some(living),
        Some(Err(stream)) => {
            let _ = write_line(&stream, &FromDriver::StopAll);
            None
        }
    })
}

/// Asks the agent of a run who it is. If it does not say so, it ended at that moment, or is of another
/// version: then this gives the connection alone.
fn greet(run_dir: &Path) -> Result<Option<Result<Living, UnixStream>>, RuntimeError> {
    let Ok(directory) = File::open(run_dir) else { return Ok(None) };
    let Ok(stream) = UnixStream::connect(socket_in(&directory, SOCKET)) else { return Ok(None) };
    greet_on(stream, run_dir).map(Some)
}

/// The agent of a person in a pool with this door, if one listens and answers.
pub(crate) fn find_guest(door: &Door, uid: u32) -> Option<Living> {
    let stream = door.agent_of(uid)?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    greet_on(stream, door.path()).ok()?.ok()
}

/// Asks the agent at the other end of a connection who it is.
fn greet_on(
    stream: UnixStream,
    run_dir: &Path,
) -> Result<Result<Living, UnixStream>, RuntimeError> {
    let silent = |_| RuntimeError::WorkersAlive { path: run_dir.to_owned(), pids: Vec::new() };
    let reader = stream.try_clone().map_err(silent)?;
    reader.set_read_timeout(Some(PATIENCE)).map_err(silent)?;
    let mut lines = Lines::of(reader);
    write_line(&stream, &FromDriver::Hello { version: VERSION }).map_err(silent)?;
    let run_dir = run_dir.to_owned();
    let answer = lines.next().map_err(silent)?;
    let Some(FromAgentOfRun::Welcome {
        agent,
        hardware,
        attempts,
        is_ready,
        stays_s,
        is_in_place,
        wants_devices,
    }) = answer
    else {
        return Ok(Err(stream));
    };
    let about = Living {
        stream,
        lines,
        run_dir,
        agent,
        hardware,
        attempts,
        is_ready,
        stays_s,
        is_in_place,
        wants_devices,
    };
    Ok(Ok(about))
}

/// Ranks that have outlived their driver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlived {
    /// Seconds until they stop at checkpoints, if no driver comes.
    pub stays_s: f64,
}

/// The ranks of a run that no process drives, if they have outlived their driver. Asking changes
/// nothing for them.
pub fn outlived(run_dir: &Path) -> Option<Outlived> {
    let living = greet(run_dir).ok().flatten()?.ok()?;
    Some(Outlived { stays_s: living.stays_s })
}

/// Has the ranks of a run that no process drives stop at checkpoints, or end at once. Returns whether
/// they had outlived their driver, so that there was anything to stop.
pub fn stop_outlived(run_dir: &Path, at_once: bool) -> bool {
    let stop = if at_once { Living::end } else { Living::stop_all };
    find(run_dir).ok().flatten().map(stop).is_some()
}

impl Living {
    /// Takes these attempts on; returns once no process of any other lives, but for those that can't
    /// be killed. All words up to number `heard` have had their effect.
    pub(crate) fn adopt(
        &mut self,
        attempts: &[AttemptId],
        heard: u64,
    ) -> Result<Adopted, RuntimeError> {
        let alive = || RuntimeError::WorkersAlive { path: self.run_dir.clone(), pids: Vec::new() };
        let adopt = FromDriver::Adopt { attempts: attempts.to_vec(), heard };
        write_line(&self.stream, &adopt).map_err(|_| alive())?;
        let answer = self.lines.next().map_err(|_| alive())?.ok_or_else(alive)?;
        let FromAgentOfRun::Adopted { pool, num_files, undead } = answer else {
            return Err(alive());
        };
        Ok(Adopted { pool, files: self.lines.take_files(), num_files, undead })
    }

    /// Hands on devices to an agent that wants them.
    pub(crate) fn hand(&self, pool: PoolDescription, files: &[OwnedFd]) -> std::io::Result<()> {
        write_line_with(&self.stream, &FromDriver::Devices { pool }, files)
    }

    /// This agent, if it is wanted. If not, it ends, with all of its ranks, before this returns.
    pub(crate) fn kept_if(self, is_wanted: bool) -> Option<Self> {
        if is_wanted {
            return Some(self);
        }
        self.end();
        None
    }

    pub(crate) fn end(mut self) {
        // If it does not hear this, the lock of its ranks is waited for in vain, which is told.
        let _ = write_line(&self.stream, &FromDriver::Order(ToAgent::End));
        while let Ok(Some(line)) = self.lines.next::<FromAgentOfRun>() {
            if let FromAgentOfRun::Word { word: FromAgent::Over { .. }, .. } = line {
                let _ = self.stream.shutdown(Shutdown::Write);
            }
        }
    }

    /// Has all ranks stop at checkpoints, after which the agent ends.
    pub(crate) fn stop_all(self) {
        let _ = write_line(&self.stream, &FromDriver::StopAll);
    }

    /// The two directions of the connection.
    pub(crate) fn split(self) -> (UnixStream, Lines) {
        (self.stream, self.lines)
    }
}
