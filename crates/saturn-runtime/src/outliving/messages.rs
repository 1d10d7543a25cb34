//! What a driver and the agent of its ranks say to each other: JSON, one value a line.
//!
//! The driver begins with [`FromDriver::Hello`], and the agent answers with
//! [`FromAgentOfRun::Welcome`]. A driver that takes ranks over says which, by
//! [`FromDriver::Adopt`]. From then on the driver gives orders, and the agent tells words.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use saturn_engine::{AttemptId, TechniqueRef};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cluster::letters::{FromAgent, ToAgent};
use crate::devices::claims::owned;
use crate::devices::hardware::Hardware;
use crate::devices::pool::PoolDescription;
use crate::launching::launcher::Earlier;
use crate::launching::settings::LaunchSettings;
use crate::launching::site::Site;
use crate::system::error::RuntimeError;

/// The version of these messages. A driver takes ranks over from an agent of its own version. It asks
/// an agent of another version to stop its ranks at checkpoints.
pub(crate) const VERSION: u32 = 2;
/// The file in which the Python package keeps what a guest's agent was started with.
const GUEST_SETUP: &str = "agent.json";
/// The longest line that either side reads, bytes: the other side may be another person's.
const MAX_LINE: u64 = 16 << 20;
/// The most files that Linux takes with one message.
const MAX_FILES: usize = 253;

/// What a person's agent in another person's pool is started with: one line on its standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GuestSetup {
    /// The door of the pool.
    pub(crate) door: PathBuf,
    /// Where this person's tasks and their results are.
    pub(crate) directory: PathBuf,
    pub(crate) settings: LaunchSettings,
    /// The techniques that this person's tasks may run under.
    pub(crate) techniques: Vec<TechniqueRef>,
}

impl GuestSetup {
    /// What the agent was started with that has this directory; `None` if the directory is of no pool
    /// that was joined.
    pub(crate) fn of(directory: &Path) -> Option<Result<Self, RuntimeError>> {
        let path = directory.join(GUEST_SETUP);
        let text = std::fs::read(&path).ok()?;
        let damaged = |error: serde_json::Error| RuntimeError::Damaged {
            path: path.clone(),
            reason: error.to_string(),
        };
        Some(serde_json::from_slice(&text).map_err(damaged))
    }
}

/// What an agent is started with: one line on its standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) site: Site,
    pub(crate) settings: LaunchSettings,
    pub(crate) pool: PoolDescription,
    /// The descriptors of the files whose locks it holds from now on.
    pub(crate) locks: Vec<i32>,
    pub(crate) earlier: Vec<Earlier>,
}

/// What a driver says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromDriver {
    /// The first line.
    Hello { version: u32 },
    /// The devices for an agent that wants them. With it come the open files of their locks.
    Devices { pool: PoolDescription },
    /// These attempts go on under this driver; all others are to end. All words up to number
    /// `heard` have had their effect.
    Adopt { attempts: Vec<AttemptId>, heard: u64 },
    /// An order to the launcher.
    Order(ToAgent),
    /// All words up to this number have had their effect.
    Heard { number: u64 },
    /// Have all ranks stop at checkpoints, and end. Of a person who wants no driver to come.
    StopAll,
}

/// What the agent of a run says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromAgentOfRun {
    /// The answer to [`FromDriver::Hello`].
    Welcome {
        /// A name of its own, which no other agent ever had.
        agent: String,
        hardware: Hardware,
        /// Attempts that have ranks, or whose end was not on record when it last heard a driver.
        attempts: Vec<AttemptId>,
        /// It starts processes without delay.
        is_ready: bool,
        /// Seconds until it has all ranks stop, if no driver comes.
        stays_s: f64,
        /// Whether the run's directory is where it was: an agent, and its ranks, know it by its path.
        /// Agents of earlier versions don't look.
        #[serde(default = "in_place")]
        is_in_place: bool,
        /// It is of another person than its driver, and has no devices yet: [`FromDriver::Devices`].
        #[serde(default)]
        wants_devices: bool,
    },
    /// The answer to [`FromDriver::Adopt`]. With it come the open files of the locks on the
    /// devices, so that the driver holds them too, whatever becomes of the agent.
    Adopted {
        pool: PoolDescription,
        /// How many files come.
        num_files: usize,
        /// Attempts that were not adopted and whose processes could not be killed, with the number
        /// of ranks that live. No process of any other attempt lives.
        undead: Vec<(AttemptId, u32)>,
    },
    /// It can't do what was asked.
    Refused { reason: String },
    /// A word for the driver. Heartbeats have no number, since each replaces the one before.
    Word { number: Option<u64>, word: FromAgent },
}

impl FromAgentOfRun {
    /// The last word of an agent whose processes have ended, but for `left`.
    pub(super) fn over(left: Vec<i32>) -> Self {
        Self::Word { number: None, word: FromAgent::Over { left } }
    }
}

fn in_place() -> bool {
    true
}

/// Writes one line.
pub(crate) fn write_line(to: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    write_line_with(to, message, &[])
}

/// Writes one line, with open files for the reader.
pub(crate) fn write_line_with(
    mut to: &UnixStream,
    message: &impl Serialize,
    files: &[OwnedFd],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut rest = &line[..];
    for files in files.chunks(MAX_FILES) {
        // Files can't come alone: a byte of the line goes with them.
        let (byte, others) = rest.split_at_checked(1).ok_or(io::ErrorKind::InvalidInput)?;
        let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let with = [ControlMessage::ScmRights(&numbers)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        while let Err(error) =
            sendmsg::<()>(to.as_raw_fd(), &[IoSlice::new(byte)], &with, flags, None)
        {
            if error != Errno::EINTR {
                return Err(error.into());
            }
        }
        rest = others;
    }
    to.write_all(rest)
}

/// The lines of a stream, and the open files that come with them.
#[derive(Debug)]
pub(crate) struct Lines(BufReader<Receiving>);

/// A stream. Reading it also takes the open files that come with its bytes.
#[derive(Debug)]
struct Receiving {
    stream: UnixStream,
    files: Vec<OwnedFd>,
}

impl Read for Receiving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut space = cmsg_space!([RawFd; MAX_FILES]);
        let mut into = [IoSliceMut::new(into)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let stream = self.stream.as_raw_fd();
        let message = recvmsg::<()>(stream, &mut into, Some(&mut space), flags)?;
        for with in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = with {
                self.files.extend(numbers.into_iter().map(owned));
            }
        }
        Ok(message.bytes)
    }
}

impl Lines {
    pub(crate) fn of(stream: UnixStream) -> Self {
        Self(BufReader::new(Receiving { stream, files: Vec::new() }))
    }

    /// The open files that have come with the lines so far.
    pub(crate) fn take_files(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.0.get_mut().files)
    }

    /// The next line; `None` at the end of the stream.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = Vec::new();
        (&mut self.0).take(MAX_LINE).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            // The other side died within a line, or between two.
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;
    use crate::devices::claims::{Claims, once_let_go};

    #[test]
    fn whoever_is_handed_locks_holds_them_when_their_first_holder_has_gone() {
        // More than go with one message.
        let cores: Vec<String> = (0..MAX_FILES + 3).map(|core| format!("core-{core}")).collect();
        let dir = TempDir::new().unwrap();
        let claims = || Claims::new(Some(dir.path()), Path::new("/run")).unwrap();
        let mut first = claims();
        for core in &cores {
            assert_eq!(first.claim(core).unwrap(), Ok(()));
        }
        let (agent, driver) = UnixStream::pair().unwrap();
        let mut lines = Lines::of(driver);
        let files = first.files().unwrap();
        let num_files = files.len();
        let sending = std::thread::spawn(move || {
            write_line(&agent, &"before").unwrap();
            write_line_with(&agent, &"with files", &files).unwrap();
            write_line(&agent, &"after").unwrap();
        });
        let mut next = || lines.next::<String>().unwrap().unwrap();
        assert_eq!([next(), next(), next()], ["before", "with files", "after"]);
        sending.join().unwrap();
        drop(first);
        let taken = lines.take_files();
        assert_eq!((taken.len(), lines.take_files().len()), (num_files, 0));
        let second = Claims::handed(Path::new("/run"), taken).unwrap();
        let mut other = claims();
        for core in &cores {
            assert!(other.claim(core).unwrap().is_err(), "{core} is held");
        }
        second.sign().unwrap();
        drop(second);
        for core in &cores {
            once_let_go(|| other.claim(core).unwrap().ok());
        }
    }
}
