//! What a driver and the agent of its ranks say to each other: JSON, one value a line.
//!
//! The driver begins with [`FromDriver::Hello`], and the agent answers with
//! [`FromAgentOfRun::Welcome`]. A driver that takes ranks over says which, by
//! [`FromDriver::Adopt`]. From then on the driver gives orders, and the agent tells words.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use saturn_engine::AttemptId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cluster::letters::{FromAgent, ToAgent};
use crate::devices::hardware::Hardware;
use crate::devices::pool::PoolDescription;
use crate::launching::launcher::Earlier;
use crate::launching::settings::LaunchSettings;
use crate::launching::site::Site;

/// The version of these messages. A driver takes ranks over from an agent of its own version. It asks
/// an agent of another version to stop its ranks at checkpoints.
pub(crate) const VERSION: u32 = 1;

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
    },
    /// The answer to [`FromDriver::Adopt`]: no process of another attempt lives.
    Adopted,
    /// It can't do what was asked.
    Refused { reason: String },
    /// A word for the driver. Heartbeats have no number, since each replaces the one before.
    Word { number: Option<u64>, word: FromAgent },
}

/// Writes one line.
pub(crate) fn write_line(mut to: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// The lines of a stream.
#[derive(Debug)]
pub(crate) struct Lines(BufReader<UnixStream>);

impl Lines {
    pub(crate) fn of(stream: UnixStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// The next line; `None` at the end of the stream.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            // The other side died within a line, or between two.
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }
}
