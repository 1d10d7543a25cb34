//! The driver's side of the control socket: one thread accepts clients, and each client has a
//! thread of its own.
//!
//! No client delays the run. A command waits in the driver's queue, and a follower answers a
//! question. A client that neither writes nor reads only holds its own thread for a while.

use std::fs::File;
use std::io::{BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use saturn_engine::{Owner, RefusalCode};

use crate::asking::control::{Reply, Request, SOCKET, read_line};
use crate::asking::door::{self, Door};
use crate::asking::sockets::{OpenTo, listen_in, socket_in};
use crate::system::clock::pause;
use crate::system::error::RuntimeError;

/// The most clients served at once.
const MAX_CLIENTS: usize = 32;
/// How long a client may be silent, or leave an answer unread.
const IDLE: Duration = Duration::from_mins(1);
/// The wait after a failed accept, which happens if no file descriptor is left.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Answers a request of a guest, or of this person's own processes, however long that takes.
pub(crate) type Answer = Arc<dyn Fn(Request, Option<&Owner>) -> Reply + Send + Sync>;

/// The listening socket. Dropping this stops listening and removes the socket's file.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    /// Keeps the path of the socket valid.
    directory: File,
    is_closing: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl ControlSocket {
    /// Listens in a run directory that this process drives.
    pub(crate) fn listen(run_dir: &Path, answer: Answer) -> Result<Self, RuntimeError> {
        let directory = File::open(run_dir).map_err(RuntimeError::file("open", run_dir))?;
        let listener = listen_in(&directory, SOCKET, run_dir, OpenTo::Own)?;
        Ok(Self::answering(directory, listener, answer))
    }

    /// Listens in the door of a pool that this process drives.
    pub(crate) fn listen_at(door: &Door, answer: Answer) -> Result<Self, RuntimeError> {
        let path = door.path();
        let directory = door.directory().try_clone().map_err(RuntimeError::file("open", path))?;
        let listener = listen_in(&directory, SOCKET, path, OpenTo::All)?;
        Ok(Self::answering(directory, listener, answer))
    }

    fn answering(directory: File, listener: UnixListener, answer: Answer) -> Self {
        let is_closing = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_closing);
        let accepting = std::thread::spawn(move || accept(&listener, &flag, &answer));
        Self { directory, is_closing, accepting: Some(accepting) }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Release);
        let path = socket_in(&self.directory, SOCKET);
        // Wakes the accepting thread.
        let woken = UnixStream::connect(&path).is_ok();
        if let Some(accepting) = self.accepting.take().filter(|_| woken) {
            let _ = accepting.join();
        }
        let _ = std::fs::remove_file(path);
    }
}

fn accept(listener: &UnixListener, is_closing: &AtomicBool, answer: &Answer) {
    let num_clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if is_closing.load(Ordering::Acquire) {
            return;
        }
        let Ok(mut stream) = stream else {
            pause(AFTER_FAILURE);
            continue;
        };
        if num_clients.fetch_add(1, Ordering::AcqRel) >= MAX_CLIENTS {
            num_clients.fetch_sub(1, Ordering::AcqRel);
            let error = format!("{MAX_CLIENTS} programs are asking this run already; try again");
            let _ = write(&mut stream, &Reply::refused(RefusalCode::Busy.because(error)));
            continue;
        }
        let (answer, num_clients) = (Arc::clone(answer), Arc::clone(&num_clients));
        std::thread::spawn(move || {
            let _slot = Slot(num_clients);
            // Errors of one client concern nobody else: it went away or stalled.
            let _ = serve(stream, &answer);
        });
    }
}

/// A client's place among [`MAX_CLIENTS`], which is free again when this is dropped, after a panic
/// too.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(stream: UnixStream, answer: &Answer) -> std::io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let guest = door::guest(&stream)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(line) = read_line(&mut reader)? {
        let reply = match Request::from_line(&line) {
            Ok(request) => answer(request, guest.as_ref()),
            Err(refusal) => Reply::refused(refusal),
        };
        write(&mut writer, &reply)?;
    }
    Ok(())
}

fn write(stream: &mut UnixStream, reply: &Reply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}
