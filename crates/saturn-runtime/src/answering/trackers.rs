//! The process that passes training results to a run's trackers (`saturn.worker.track`). A run has
//! trackers if its directory holds `loggers.pkl`.
//!
//! A thread of the driver tells this process of moves and ends, and the process reads the metrics
//! by itself. So the run never waits for this process. If the process dies, people get a note, and
//! nothing else happens. At the end of a run the process has some time to pass on the remaining
//! metrics.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use saturn_engine::{AttemptId, Observer, Purpose, Record, State, TaskEnd};
use saturn_store::with_causes;
use saturn_view::words;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answering::followers::Notes;
use crate::launching::parent::python_command;
use crate::launching::settings::LaunchSettings;
use crate::system::clock::{deadline, is_past, pause};
use crate::system::error::RuntimeError;

/// Settings and state of a run's trackers, pickled.
const LOGGERS: &str = "loggers.pkl";
/// How long the end of a run waits for trackers.
const PATIENCE: Duration = Duration::from_secs(30);

/// The process of the trackers.
#[derive(Debug)]
pub(crate) struct Trackers {
    child: Child,
}

/// The observer that tells the process what happens.
#[derive(Debug)]
struct Teller {
    lines: Sender<Value>,
}

/// A line from the process.
#[derive(Deserialize)]
struct TrackerLine {
    note: String,
}

/// A run's trackers, and the observer that must hear its records.
type Started = (Trackers, Box<dyn Observer>);

/// Starts the process; `None` if the run has no trackers.
pub(crate) fn start(
    run_dir: &Path,
    settings: &LaunchSettings,
) -> Option<Result<Started, RuntimeError>> {
    run_dir.join(LOGGERS).exists().then(|| {
        let log_path = run_dir.join("loggers.log");
        let log = OpenOptions::new().create(true).append(true).open(&log_path);
        let log = log.map_err(RuntimeError::file("open", &log_path))?;
        let mut command = python_command(settings);
        command.args(["-m", "saturn.worker.track"]).arg(run_dir);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = spawned
            .map_err(|source| RuntimeError::Python { python: settings.python.clone(), source })?;
        let (lines, to_write) = channel();
        if let Some(stdin) = child.stdin.take() {
            std::thread::spawn(move || write_lines(stdin, &to_write));
        }
        let teller: Box<dyn Observer> = Box::new(Teller { lines });
        Ok((Trackers { child }, teller))
    })
}

impl Trackers {
    /// Passes on to people what the process says.
    pub(crate) fn tell(&mut self, notes: Notes) {
        let Some(stdout) = self.child.stdout.take() else { return };
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // A tracker may print lines of its own.
                if let Ok(TrackerLine { note }) = serde_json::from_str(&line) {
                    notes.note(&note);
                }
            }
        });
    }

    /// Waits, for a limited time, until the process has passed everything on. The run's end was
    /// told before. Returns a note if it takes longer.
    pub(crate) fn wait(mut self) -> Option<String> {
        let until = deadline(PATIENCE);
        while matches!(self.child.try_wait(), Ok(None)) {
            if is_past(until) {
                return Some(format!(
                    "the trackers did not take all metrics within {} s and were stopped; each \
                     task's metrics.jsonl has all metrics",
                    PATIENCE.as_secs()
                ));
            }
            pause(Duration::from_millis(20));
        }
        let status = self.child.wait().ok().filter(|status| !status.success())?;
        Some(format!("the process of the trackers ended with {status}; loggers.log has more"))
    }
}

impl Drop for Trackers {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The note on trackers that could not be started.
pub(crate) fn not_started(error: &RuntimeError) -> String {
    format!("nothing is tracked: {}", with_causes(error))
}

fn write_lines(mut stdin: ChildStdin, lines: &Receiver<Value>) {
    for line in lines {
        if writeln!(stdin, "{line}").and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}

impl Teller {
    fn trains(&self, state: &State, id: AttemptId, step: u64) {
        let Some(attempt) = state.attempts.get(&id).filter(|one| one.purpose == Purpose::Train)
        else {
            return;
        };
        let spec = &state.task(attempt.task).spec;
        let strategy = &attempt.strategy;
        let place = words::on_devices(&state.cluster, &attempt.gang);
        self.send(json!({
            "type": "trains", "task": spec.name, "dir": spec.dir, "step": step,
            "strategy": format!("{} on {place}", strategy.technique), "gpus": strategy.gpus,
        }));
    }

    fn send(&self, line: Value) {
        // The process may have ended.
        let _ = self.lines.send(line);
    }
}

impl Observer for Teller {
    fn record(&mut self, state: &State, record: &Record, _now_s: f64) {
        match record {
            // Their launch was told to the trackers of the driver that died.
            Record::Resumed { adopted, .. } => {
                for attempt in adopted {
                    let started = state.attempts.get(attempt).and_then(|one| one.started);
                    if let Some((step, _)) = started {
                        self.trains(state, *attempt, step);
                    }
                }
            }
            Record::Started { attempt, step, .. } => self.trains(state, *attempt, *step),
            // The attempt has trained since step 0 as a trial, and becomes training only now.
            Record::WentOn { attempt, .. } => self.trains(state, *attempt, 0),
            Record::TaskEnded { task, end } => {
                let status = match end {
                    TaskEnd::Done { .. } => state.stage(*task).code(),
                    TaskEnd::Failed { .. } => "failed",
                    TaskEnd::Cancelled { .. } => "cancelled",
                    TaskEnd::Stopped { .. } => "stopped",
                };
                self.send(json!({"type": "ended", "task": state.name(*task), "status": status}));
            }
            Record::RunEnded { .. } => self.send(json!({"type": "over"})),
            _ => {}
        }
    }

    fn tick(&mut self, _state: &State, _now_s: f64) {}

    fn note(&mut self, _text: &str, _now_s: f64) {}
}
