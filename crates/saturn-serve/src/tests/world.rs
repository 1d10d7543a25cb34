//! A server for tests: recorded runs behind the router, without a socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use tower_service::Service;

use crate::http::app::App;
use crate::http::keys::Keys;
use crate::http::router::router;
use crate::local::runs::{Local, NamedRun};
use crate::tests::recorded::{Recorded, runs};

pub(super) const PORT: u16 = 7340;

/// Recorded runs, served.
pub(super) struct World {
    pub(super) router: Router,
    pub(super) token: String,
    pub(super) recorded: Vec<Recorded>,
    pub(super) dir: TempDir,
    runtime: tokio::runtime::Runtime,
}

/// What came back.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }
}

/// Counts the commands that a run carried out.
pub(super) struct Driver(Arc<AtomicUsize>);

impl Driver {
    pub(super) fn asked(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Finds the runs of a directory, by their names.
pub(super) fn named(dir: &Path) -> Vec<NamedRun> {
    let mut found: Vec<NamedRun> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            NamedRun { is_pool: name == "pool", name, path }
        })
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

impl World {
    /// Serves recordings; of each, so many records.
    pub(super) fn of(recordings: &[(&str, usize)]) -> Self {
        Self::lasting(recordings, Duration::from_mins(1))
    }

    /// The same, with sessions that last so long.
    pub(super) fn lasting(recordings: &[(&str, usize)], lasts: Duration) -> Self {
        let dir = runs();
        let recorded: Vec<Recorded> = recordings
            .iter()
            .map(|(name, records)| Recorded::new(dir.path(), name, *records))
            .collect();
        let at = dir.path().to_owned();
        let (keys, token) = Keys::lasting(lasts).unwrap();
        let app = App::new(Arc::new(Local::new(move || named(&at))), keys, PORT);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Self { router: router(Arc::new(app)), token, recorded, dir, runtime: runtime.unwrap() }
    }

    /// Answers the commands to a run from now on, as its driver would: of the task `nobody` it says
    /// that there is none.
    pub(super) fn drive(&self, run: &str) -> Driver {
        let listener = UnixListener::bind(self.dir.path().join(run).join("control.sock")).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
                if line.is_empty() {
                    continue;
                }
                let refused =
                    r#"{"ok":false,"code":"unknown_task","error":"there is no such task"}"#;
                let answer = if line.contains("nobody") { refused } else { r#"{"ok":true}"# };
                let is_command = line.contains("\"command\"") && !line.contains("nobody");
                counted.fetch_add(usize::from(is_command), Ordering::SeqCst);
                let _ = writeln!(stream, "{answer}");
            }
        });
        Driver(asked)
    }

    /// Sends a request as it is.
    pub(super) fn send(&self, request: Request<Body>) -> Answer {
        let mut router = self.router.clone();
        self.runtime.block_on(async move {
            let response = router.call(request).await.unwrap();
            let (parts, body) = response.into_parts();
            // A stream of events has no end.
            let is_stream =
                parts.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
            let body = if is_stream { Body::empty() } else { body };
            let bytes = to_bytes(body, 1 << 26).await.unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            Answer { status: parts.status, headers: parts.headers, text }
        })
    }

    /// Reads an address with the token.
    pub(super) fn get(&self, path: &str) -> Answer {
        self.send(self.with_token(Method::GET, path).body(Body::empty()).unwrap())
    }

    /// The head of a request with the token.
    pub(super) fn with_token(&self, method: Method, path: &str) -> axum::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("localhost:{PORT}"))
            .header("authorization", format!("Bearer {}", self.token))
    }
}
