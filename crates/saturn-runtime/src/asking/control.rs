//! Commands to a run that another process drives, and questions about it.
//!
//! While a process drives a run, it listens on `control.sock` in the run directory. Only its user
//! can open this Unix socket. A client writes one JSON value a line and reads one line for each:
//!
//! - `{"version":1,"command":"cancel","task":"x"}`: a [`Command`]. The answer is `{"ok":true}` once
//!   its records are in the journal, or `{"ok":false,"code":"…","error":"…"}` if the run refuses it.
//!   [`RefusalCode`] has the codes.
//! - `{"version":1,"query":"status"}`: the answer is `{"ok":true,"status":{…}}`.
//! - `{"version":1,"query":"explain","task":"x"}`: the answer is `{"ok":true,"explanation":{…}}`.
//!   If `task` is missing or `null`, the explanation is of the run as a whole.
//! - `{"version":1,"query":"left","without":["x"]}`: the answer is `{"ok":true,"left":{…}}`, what is
//!   left of the run as a planning problem, if the tasks `without` were cancelled.
//! - `{"version":1,"query":"preview","tasks":[…]}`: the answer is `{"ok":true,"preview":{…}}`, when
//!   these tasks would end and whom they would delay, if they were submitted now.
//! - `{"version":1,"query":"judged"}`: the answer is `{"ok":true,"judged":[…]}`, what stoppers have
//!   decided so far: about all tasks, or if a guest asks, about this guest's.
//! - `{"version":1,"query":"run"}`: the answer is `{"ok":true,"run":"…"}`, the run's own name, as in
//!   `SATURN_RUN_ID`. No other run has it, and it stays if the run's directory is moved.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use saturn_engine::{Command, NewTask, Refusal, RefusalCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::asking::sockets::socket_in;
use crate::system::clock::{deadline, is_past, pause};

/// The control socket in a run's directory.
pub(crate) const SOCKET: &str = "control.sock";
/// The version of requests.
const VERSION: u64 = 1;
/// How errors begin that say that a request was not understood. Replies of versions without codes
/// are recognised by these words.
const MALFORMED: &str = "malformed request";
const OTHER_VERSION: &str = "`version` is";
/// The longest line that either side reads, bytes: a submission may hold many tasks.
const MAX_LINE: u64 = 256 << 20;
/// How long a client waits for an answer. A run acts within a second, unless its disk is full.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The wait before a run is asked again that too many programs were asking.
const AGAIN: Duration = Duration::from_millis(100);

/// What a run can be asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A command that changes the run.
    Command(Command),
    /// A question about the run.
    Query(Query),
}

/// The questions that a run answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "query", deny_unknown_fields)]
pub enum Query {
    /// Every task's stage and expectations.
    Status,
    /// Why a task, or the run, is where it is.
    Explain {
        /// The task to explain; `None` for the run as a whole.
        #[serde(default)]
        task: Option<String>,
    },
    /// What is left of the run, as a planning problem.
    Left {
        /// The names of tasks that count as cancelled.
        #[serde(default)]
        without: Vec<String>,
    },
    /// What submitting tasks would do. Nothing is submitted.
    Preview {
        /// The tasks.
        tasks: Vec<NewTask>,
    },
    /// What stoppers have decided about tasks; if a guest asks, about this guest's.
    Judged,
    /// Which run this is.
    Run,
}

/// A run's answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reply {
    /// Whether the request was carried out.
    pub ok: bool,
    /// Why the request was refused, for programs. Early versions gave no code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<RefusalCode>,
    /// Why the request was refused, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The answer to [`Query::Status`]: `saturn_view::Status` as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
    /// The answer to [`Query::Explain`]: `saturn_view::Explanation` as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Value>,
    /// The answer to [`Query::Left`]: [`crate::Left`] as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Value>,
    /// The answer to [`Query::Preview`]: `saturn_view::Preview` as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Value>,
    /// Why that answer shows that a due time can't be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_late: Option<String>,
    /// The answer to [`Query::Judged`]: a list of `saturn_engine::NamedJudgement` as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<Value>,
    /// The answer to [`Query::Run`]: the run's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// Why a run gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No process drives the run.
    #[error("no process drives the run `{}` at present", path.display())]
    NotDriven {
        /// The run.
        path: PathBuf,
    },
    /// The process that drives the run did not answer.
    #[error("the process that drives the run `{}` does not answer", path.display())]
    NoAnswer {
        /// The run.
        path: PathBuf,
        /// Why there was no answer.
        source: io::Error,
    },
}

impl Reply {
    /// The answer that the request was carried out.
    pub(crate) fn done() -> Self {
        Self { ok: true, ..Self::default() }
    }

    /// Whether the request was not understood. This version wrote it, so another version read it.
    pub(crate) fn is_of_other_version(&self) -> bool {
        if self.ok {
            return false;
        }
        let Some(code) = self.code else {
            let error = self.error.as_deref().unwrap_or_default();
            return error.starts_with(MALFORMED) || error.starts_with(OTHER_VERSION);
        };
        matches!(code, RefusalCode::Malformed | RefusalCode::OtherVersion)
    }

    /// Whether nobody has looked at the request, since too many programs are asking the run.
    pub(crate) fn is_busy(&self) -> bool {
        self.code == Some(RefusalCode::Busy)
    }

    /// The answer that the request was refused.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        let Refusal { code, reason } = refusal;
        Self { code: Some(code), error: Some(reason), ..Self::default() }
    }

    /// The answer that the run has ended.
    pub(crate) fn run_ended() -> Self {
        Self::refused(RefusalCode::RunEnded.because("the run has ended"))
    }
}

impl Request {
    /// The line that a client sends for this request.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        let mut value = match self {
            Self::Command(command) => serde_json::to_value(command)?,
            Self::Query(query) => serde_json::to_value(query)?,
        };
        if let Value::Object(fields) = &mut value {
            fields.insert("version".to_owned(), VERSION.into());
        }
        serde_json::to_string(&value)
    }

    /// Reads a client's line. The refusal is meant for that client.
    pub fn from_line(line: &str) -> Result<Self, Refusal> {
        let malformed = |error: serde_json::Error| {
            RefusalCode::Malformed.because(format!("{MALFORMED}: {error}"))
        };
        let mut fields: Map<String, Value> = serde_json::from_str(line).map_err(malformed)?;
        match fields.remove("version") {
            Some(version) if version == VERSION => {}
            Some(version) => {
                let reason = format!("{OTHER_VERSION} {version}, not {VERSION}");
                return Err(RefusalCode::OtherVersion.because(reason));
            }
            None => {
                let reason = format!("{MALFORMED}: no `version`; this one is {VERSION}");
                return Err(RefusalCode::Malformed.because(reason));
            }
        }
        let is_query = fields.contains_key("query");
        let value = Value::Object(fields);
        if is_query {
            serde_json::from_value(value).map(Self::Query).map_err(malformed)
        } else {
            serde_json::from_value(value).map(Self::Command).map_err(malformed)
        }
    }
}

/// Asks the process that drives a run. A refusal is a reply, not an error. If too many programs are
/// asking the run, it is asked again, for a minute at most.
pub fn ask(run_dir: &Path, request: &Request) -> Result<Reply, ControlError> {
    ask_within(run_dir, request, PATIENCE)
}

/// The same, for a client that waits no longer than `patience`.
pub fn ask_within(
    run_dir: &Path,
    request: &Request,
    patience: Duration,
) -> Result<Reply, ControlError> {
    let until = deadline(patience);
    loop {
        let reply = ask_once(run_dir, request, patience)?;
        if !reply.is_busy() || is_past(until) {
            return Ok(reply);
        }
        pause(AGAIN);
    }
}

/// The same, but a run that too many programs are asking is not asked again.
pub(crate) fn ask_once(
    run_dir: &Path,
    request: &Request,
    patience: Duration,
) -> Result<Reply, ControlError> {
    let stream =
        connect(run_dir).map_err(|_| ControlError::NotDriven { path: run_dir.to_owned() })?;
    exchange(stream, request, patience)
        .map_err(|source| ControlError::NoAnswer { path: run_dir.to_owned(), source })
}

/// The process that drives a run and takes commands; `None` if no process does.
pub fn driver_of(run_dir: &Path) -> Option<i32> {
    let stream = connect(run_dir).ok()?;
    // The credentials are those of the process that listens.
    getsockopt(&stream, PeerCredentials).ok().map(|peer| peer.pid())
}

fn exchange(mut stream: UnixStream, request: &Request, patience: Duration) -> io::Result<Reply> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let line = request.to_line()? + "\n";
    // A run that too many programs are asking says so, and reads no request.
    let written = stream.write_all(line.as_bytes());
    let answer = match read_line(&mut BufReader::new(stream)) {
        Ok(Some(answer)) => answer,
        unanswered => {
            written?;
            unanswered?;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    Ok(serde_json::from_str(&answer)?)
}

fn connect(run_dir: &Path) -> io::Result<UnixStream> {
    let directory = File::open(run_dir)?;
    UnixStream::connect(socket_in(&directory, SOCKET))
}

/// The next line; `None` at the end. A line that is too long is an error.
pub(crate) fn read_line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    from.take(MAX_LINE).read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => {
            line.pop();
            String::from_utf8(line).map(Some).map_err(io::Error::other)
        }
        // The other side went away within a line, or the line is too long.
        Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_flat_lines_with_a_version() {
        let cancel = Request::Command(Command::Cancel { task: "x".to_owned(), by: None });
        let line = cancel.to_line().unwrap();
        let value: Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({"version": 1, "command": "cancel", "task": "x"});
        assert_eq!(value, expected);
        for request in [
            cancel,
            Request::Command(Command::Close),
            Request::Query(Query::Status),
            Request::Query(Query::Explain { task: None }),
            Request::Query(Query::Explain { task: Some("x".to_owned()) }),
        ] {
            assert_eq!(Request::from_line(&request.to_line().unwrap()), Ok(request));
        }
        let explain = Request::from_line(r#"{"version":1,"query":"explain","task":null}"#);
        assert_eq!(explain, Ok(Request::Query(Query::Explain { task: None })));
    }

    #[test]
    fn what_a_run_refuses_is_no_matter_of_versions() {
        let refused = RefusalCode::UnknownTask.because("there is no task `x`");
        assert!(!Reply::refused(refused).is_of_other_version());
        assert!(!Reply::done().is_of_other_version());
    }

    #[test]
    fn what_is_no_request_is_refused_in_words() {
        for (line, words) in [
            ("nonsense", "malformed request"),
            ("[1]", "malformed request"),
            (r#"{"command":"close"}"#, "no `version`; this one is 1"),
            (r#"{"version":2,"command":"close"}"#, "`version` is 2, not 1"),
            (r#"{"version":1,"command":"explode"}"#, "unknown variant `explode`"),
            (r#"{"version":1,"command":"cancel","task":"x","soon":1}"#, "soon"),
            (r#"{"version":1,"query":"weather"}"#, "unknown variant `weather`"),
        ] {
            let refusal = Request::from_line(line).unwrap_err();
            assert!(refusal.reason.contains(words), "{line}: {}", refusal.reason);
            let reply = Reply::refused(refusal);
            assert!(reply.is_of_other_version(), "{line}");
            // The words may change, and versions without codes are recognised by theirs.
            let other_words = Reply { error: Some("eh?".to_owned()), ..reply.clone() };
            assert!(other_words.is_of_other_version(), "{line}");
            assert!(Reply { code: None, ..reply }.is_of_other_version(), "{line}");
        }
    }
}
