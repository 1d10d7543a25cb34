//! Input to the launcher from its threads.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{SendError, SyncSender};

use saturn_engine::{AttemptId, RankReport};

use crate::launching::protocol::RankKey;
use crate::system::bell::Bell;

/// The most inputs that wait to be taken; a thread with more input blocks.
pub(crate) const MAX_WAITING: usize = 4096;

/// An event that a thread has seen.
#[derive(Debug)]
pub(crate) enum Input {
    /// A parent has imported everything.
    Ready { parent: u64, cannot_fork: Option<String> },
    /// A parent has ended, and all of its ranks with it.
    ParentGone { parent: u64 },
    /// A rank has a process.
    Started { key: RankKey, pid: i32 },
    /// A rank's process has ended, or could not be started for the reason `why`.
    Exited { key: RankKey, code: i32, why: Option<String> },
    /// A rank has said hello.
    Connected { attempt: AttemptId, rank: u32, stream: UnixStream },
    /// A rank says something.
    Reported { attempt: AttemptId, rank: u32, report: Box<RankReport> },
    /// A rank has closed its connection.
    HungUp { attempt: AttemptId, rank: u32 },
    /// No process of an attempt is left.
    Swept { attempt: AttemptId },
}

/// The channel to the launcher.
#[derive(Debug, Clone)]
pub(crate) struct Sending {
    pub(crate) inputs: SyncSender<Input>,
    pub(crate) bell: Bell,
}

impl Sending {
    /// Sends an input to the launcher. An error means that the launcher is gone.
    pub(crate) fn send(&self, input: Input) -> Result<(), SendError<Input>> {
        self.inputs.send(input)?;
        self.bell.ring();
        Ok(())
    }
}
