//! The socket that ranks report to: a Unix socket in a directory of this user's own.
//!
//! One thread accepts, one more a rank reads its lines. They only pass on what they read.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use saturn_engine::{FailureKind, RankReport};

use crate::driver::Input;
use crate::error::RuntimeError;
use crate::protocol::Hello;

/// The listening socket. Gone, file and all, when dropped.
#[derive(Debug)]
pub(crate) struct RankSocket {
    path: PathBuf,
    is_closing: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
    /// Removed on drop. Not in the run directory: a socket's path is limited to 107 bytes.
    _dir: tempfile::TempDir,
}

impl RankSocket {
    /// Listens, and sends all that ranks say to `inputs`.
    pub(crate) fn listen(inputs: Sender<Input>) -> Result<Self, RuntimeError> {
        // tempfile makes directories with mode 0700.
        let dir = tempfile::Builder::new()
            .prefix("saturn-")
            .tempdir()
            .map_err(RuntimeError::file("create a directory in", std::env::temp_dir()))?;
        let path = dir.path().join("ranks");
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
                if let Ok(stream) = stream {
                    let inputs = inputs.clone();
                    std::thread::spawn(move || read_rank(stream, &inputs));
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

/// Reads one rank's lines until it hangs up. A stranger that doesn't say hello is ignored.
fn read_rank(stream: UnixStream, inputs: &Sender<Input>) {
    let Ok(writer) = stream.try_clone() else { return };
    let mut lines = BufReader::new(stream).lines();
    let Some(Ok(first)) = lines.next() else { return };
    let Ok(Hello { attempt, rank }) = serde_json::from_str(&first) else { return };
    // Sending fails only when the driver is gone: then there is no one to tell.
    if inputs.send(Input::Connected { attempt, rank, stream: writer }).is_err() {
        return;
    }
    for line in lines {
        let Ok(line) = line else { break };
        let report = serde_json::from_str(&line).unwrap_or_else(|error| RankReport::Failed {
            kind: FailureKind::Error,
            error: format!("its worker sent a line that can't be read ({error}): {line:.200}"),
            traceback: String::new(),
        });
        if inputs.send(Input::Reported { attempt, rank, report }).is_err() {
            return;
        }
    }
    let _ = inputs.send(Input::HungUp { attempt, rank });
}
