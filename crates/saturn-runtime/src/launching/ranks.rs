//! The socket that ranks report to: a Unix socket in a directory of this user's own.
//!
//! One thread accepts connections, and one thread for each rank reads its lines. These threads only
//! pass lines on. If the driver falls behind, they block, so that the ranks' own buffers fill and
//! not this process's memory.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use saturn_engine::{FailureKind, RankReport};

use crate::launching::input::{Input, Sending};
use crate::launching::leftovers;
use crate::launching::protocol::Hello;
use crate::system::clock::pause;
use crate::system::error::RuntimeError;

/// The longest accepted line, bytes.
const MAX_LINE: u64 = 16 << 20;
/// The wait after a failed accept, which happens if no file descriptor is left.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// The listening socket. Dropping this stops listening and removes the socket's file.
#[derive(Debug)]
pub(crate) struct RankSocket {
    path: PathBuf,
    is_closing: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
    /// The socket's directory, removed on drop. It is not in the run directory, since a socket's
    /// path may have at most 107 bytes.
    _dir: tempfile::TempDir,
}

impl RankSocket {
    /// Listens, and passes on all that ranks report.
    pub(crate) fn listen(inputs: Sending) -> Result<Self, RuntimeError> {
        let parent = std::env::temp_dir();
        // tempfile makes directories with mode 0700.
        let dir = tempfile::Builder::new()
            .prefix(leftovers::PREFIX)
            .tempdir_in(&parent)
            .map_err(RuntimeError::file("create a directory in", &parent))?;
        // There may be many, and no rank needs to wait for that.
        std::thread::spawn(move || leftovers::remove(&parent));
        let path = dir.path().join(leftovers::SOCKET);
        let listener = UnixListener::bind(&path).map_err(RuntimeError::file("listen on", &path))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))
            .map_err(RuntimeError::file("protect", &path))?;
        let is_closing = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_closing);
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if flag.load(Ordering::Acquire) {
                    return;
                }
                match stream {
                    Ok(stream) => {
                        let inputs = inputs.clone();
                        std::thread::spawn(move || read_rank(stream, &inputs));
                    }
                    Err(_) => pause(AFTER_FAILURE),
                }
            }
        });
        Ok(Self { path, is_closing, accepting: Some(accepting), _dir: dir })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RankSocket {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Release);
        // Wakes the accepting thread.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(accepting) = self.accepting.take().filter(|_| woken) {
            let _ = accepting.join();
        }
    }
}

/// Reads one rank's lines until it hangs up. Ignores a client that does not send a `Hello`.
fn read_rank(stream: UnixStream, inputs: &Sending) {
    let Ok(writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    let Some(first) = read_line(&mut reader) else { return };
    let Ok(Hello { attempt, rank }) = serde_json::from_slice(&first) else { return };
    // Sending fails only if the launcher is gone, and then nobody needs the input.
    if inputs.send(Input::Connected { attempt, rank, stream: writer }).is_err() {
        return;
    }
    while let Some(line) = read_line(&mut reader) {
        let report = serde_json::from_slice(&line).unwrap_or_else(|error| {
            let line = String::from_utf8_lossy(&line);
            RankReport::Failed {
                kind: FailureKind::Error,
                error: format!("its worker sent a line that can't be read ({error}): {line:.200}"),
                traceback: String::new(),
            }
        });
        let report = Box::new(report);
        if inputs.send(Input::Reported { attempt, rank, report }).is_err() {
            return;
        }
    }
    let _ = inputs.send(Input::HungUp { attempt, rank });
}

/// The next line, or the part of it that came before the end; `None` at the end.
fn read_line(from: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    from.take(MAX_LINE).read_until(b'\n', &mut line).ok()?;
    (!line.is_empty()).then_some(line)
}
