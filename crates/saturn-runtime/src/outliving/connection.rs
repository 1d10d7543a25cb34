//! An agent's connections to drivers. Drivers come one after the other, and threads of their own read
//! and write: a driver that reads nothing delays no rank.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::unistd::geteuid;

use crate::asking::door::peer;
use crate::outliving::messages::{FromAgentOfRun, FromDriver, Lines, write_line_with};
use crate::system::bell::Bell;
use crate::system::clock::pause;

/// The wait after a failed accept, which happens if no file descriptor is left.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// What the thread that reads has seen.
pub(super) enum Input {
    /// A driver has connected.
    Came(UnixStream),
    /// The driver has said something, and handed on these open files.
    Said(FromDriver, Vec<OwnedFd>),
    /// The driver has gone, or said something that can't be read.
    Went,
}

/// A line for the driver, and the open files that go with it.
type Saying = (FromAgentOfRun, Vec<OwnedFd>);

/// The connection to the driver that is there. Dropping it closes the connection once all is written.
#[derive(Debug)]
pub(super) struct Connection {
    /// Lines go to the thread that writes.
    lines: Sender<Saying>,
    /// Keeps the connection open.
    stream: Arc<UnixStream>,
}

impl Connection {
    pub(super) fn to(stream: UnixStream) -> Self {
        let (lines, to_write) = channel();
        let stream = Arc::new(stream);
        let written = Arc::clone(&stream);
        std::thread::spawn(move || write_lines(&written, &to_write));
        Self { lines, stream }
    }

    /// Says a line. The driver may have gone, which the thread that reads will say.
    pub(super) fn say(&self, line: FromAgentOfRun, files: Vec<OwnedFd>) {
        let _ = self.lines.send((line, files));
    }

    /// Keeps the connection open until this process ends.
    pub(super) fn keep_open(&self) {
        std::mem::forget(Arc::clone(&self.stream));
    }
}

/// Listens for drivers. `only`: processes of this person alone may be drivers, and of the agent's own.
pub(super) fn listen(listener: UnixListener, only: Option<u32>, bell: Bell) -> Receiver<Input> {
    let (sender, inputs) = channel();
    std::thread::spawn(move || accept(&listener, only, &sender, &bell));
    inputs
}

/// Reads drivers' lines, one driver after the other. The orders of a driver that has died are
/// obeyed before the next driver is heard.
fn accept(listener: &UnixListener, only: Option<u32>, inputs: &Sender<Input>, bell: &Bell) {
    let send = |input: Input| {
        let sent = inputs.send(input);
        bell.ring();
        sent.is_ok()
    };
    let is_driver = |stream: &UnixStream| {
        let Some(host) = only else { return true };
        peer(stream).is_ok_and(|uid| uid == host || uid == geteuid().as_raw())
    };
    for stream in listener.incoming() {
        let both = stream.and_then(|stream| Ok((stream.try_clone()?, stream)));
        let Ok((writer, stream)) = both else {
            pause(AFTER_FAILURE);
            continue;
        };
        if !is_driver(&stream) {
            continue;
        }
        if !send(Input::Came(writer)) {
            return;
        }
        let mut lines = Lines::of(stream);
        while let Ok(Some(said)) = lines.next() {
            if !send(Input::Said(said, lines.take_files())) {
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
