//! The server on a socket: clients that are slow, silent or greedy.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::http::app::App;
use crate::http::keys::Keys;
use crate::http::router::router;
use crate::http::server::{listen, serve};
use crate::local::runs::Local;
use crate::tests::recorded::{Recorded, runs};
use crate::tests::world::named;

/// A server of the run `demo` on a free port.
pub(super) struct Server {
    pub(super) recorded: Recorded,
    port: u16,
    token: String,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Server {
    fn new() -> Self {
        Self::of(usize::MAX)
    }

    /// The run has so many records so far.
    pub(super) fn of(records: usize) -> Self {
        let dir = runs();
        let recorded = Recorded::new(dir.path(), "demo", records);
        let at = dir.path().to_owned();
        let (keys, token) = Keys::new().unwrap();
        let listening = listen(Ipv4Addr::LOCALHOST.into(), 0).unwrap();
        let port = listening.port;
        let app = App::new(Arc::new(Local::new(move || named(&at))), keys, port);
        let router = router(Arc::new(app));
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            serve(listening, &router, || flag.load(Ordering::Relaxed)).unwrap();
        });
        Self { recorded, port, token, is_over, thread: Some(thread), _dir: dir }
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    pub(super) fn head(&self, path: &str) -> String {
        format!(
            "GET {path} HTTP/1.1\r\nHost: localhost:{}\r\nAuthorization: Bearer {}\r\n",
            self.port, self.token
        )
    }

    /// The first line of an answer to a request on a connection of its own.
    fn ask(&self, path: &str) -> String {
        let mut stream = self.connect();
        write!(stream, "{}Connection: close\r\n\r\n", self.head(path)).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

#[expect(clippy::disallowed_methods, reason = "patience is a matter of time")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_crowd_of_silent_and_slow_clients_keeps_nobody_out() {
    let server = Server::new();
    assert!(server.ask("/api/v1/runs").starts_with("HTTP/1.1 200"));
    let mut crowd = Vec::new();
    for number in 0..500 {
        let mut stream = server.connect();
        match number % 4 {
            // Silent.
            0 => {}
            // The head never ends.
            1 => stream.write_all(b"GET /api/v1/runs HTTP/1.1\r\nHost: local").unwrap(),
            // The body never comes.
            2 => {
                let head = server.head("/api/v1/session").replace("GET", "POST");
                let _ = write!(
                    stream,
                    "{head}Content-Type: application/json\r\nX-Saturn: 1\r\nContent-Length: \
                     50\r\n\r\n{{"
                );
            }
            // No HTTP.
            _ => stream.write_all(&[0x16, 3, 1, 2, 0]).unwrap(),
        }
        crowd.push(stream);
        if number % 50 == 0 {
            let began = now();
            assert!(server.ask("/api/v1/runs/demo").starts_with("HTTP/1.1 200"), "{number}");
            assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        }
    }
    assert!(server.ask("/api/v1/runs/demo/tasks").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_head_that_is_too_long_or_takes_too_long_ends_the_connection() {
    let server = Server::new();
    let mut slow = server.connect();
    slow.write_all(b"GET /").unwrap();
    let mut long = server.connect();
    write!(long, "{}X-Long: {}\r\n\r\n", server.head("/api/v1/runs"), "x".repeat(200_000)).unwrap();
    let mut line = String::new();
    BufReader::new(long).read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 431"), "{line}");
    let began = now();
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn only_loopback_is_served() {
    let error = listen("0.0.0.0".parse().unwrap(), 0).unwrap_err().to_string();
    assert!(error.contains("ssh -L") && error.contains("other machines"), "{error}");
    assert!(listen("192.0.2.1".parse().unwrap(), 0).is_err());
    assert!(
        listen("::1".parse().unwrap(), 0).is_ok()
            || !std::path::Path::new("/proc/net/if_inet6").exists()
    );
}
