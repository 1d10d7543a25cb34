//! Explanations: where a task stands and what it waits for, why it has its strategy, and why it was
//! moved. The run as a whole is explained too.
//!
//! Every reason has a stable [`Code`] for scripts and a sentence for people. Everything comes from
//! the journal, so explanations work for live runs and for ended runs.

use saturn_engine::{State, TaskId};
use serde::{Deserialize, Serialize};

use crate::explain::candidates::{self, Candidate};
use crate::explain::code::Code;
use crate::explain::failures;
use crate::explain::moves::{self, TaskMove};
use crate::explain::reason::Reason;
use crate::explain::run;
use crate::explain::stands;
use crate::facts::expect::Expected;
use crate::facts::history::History;

/// The version of [`Explanation`]. Within one version, fields are added and never removed or
/// changed.
const VERSION: u32 = 1;

/// Why a task, or the run, is where it is. All times are seconds on the run's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// 1.
    pub version: u32,
    /// The task's name; null for the run as a whole.
    pub task: Option<String>,
    /// The time of the explanation.
    pub now_s: f64,
    /// Where the task or run stands, and why. The first reason is the decisive one.
    pub reasons: Vec<Reason>,
    /// The expected launch of a task that waits.
    pub expected_start_s: Option<f64>,
    /// The expected end of the task, or of all planned tasks.
    pub expected_end_s: Option<f64>,
    /// The earliest and the latest end within the error band.
    pub expected_end_band_s: Option<(f64, f64)>,
    /// The time by which the task should end.
    #[serde(default)]
    pub deadline_s: Option<f64>,
    /// The same on the clock of the machine of the person who asks, while a process drives the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// Whether it is expected to end after that time; null while its end is not known.
    #[serde(default)]
    pub is_late: Option<bool>,
    /// The task's strategies: first its present one, then the others by time.
    pub candidates: Vec<Candidate>,
    /// Each time that the task continued under another strategy or on other devices.
    pub moves: Vec<TaskMove>,
    /// The last lines of the traceback of a task that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// The path of the log of its last attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// Explains a task, or the run as a whole, as of `now_s`.
pub fn explain(state: &State, history: &History, task: Option<TaskId>, now_s: f64) -> Explanation {
    let expected = Expected::of(state, history, now_s);
    let Some(task) = task else {
        return Explanation {
            version: VERSION,
            task: None,
            now_s,
            reasons: run::reasons(state, history, &expected, now_s),
            expected_start_s: None,
            expected_end_s: expected.end_s(),
            expected_end_band_s: expected.run_end_band(),
            deadline_s: None,
            due: None,
            is_late: None,
            candidates: Vec::new(),
            moves: Vec::new(),
            traceback: None,
            log: None,
        };
    };
    let times = expected.times(task).filter(|_| !state.has_ended(task));
    let is_waiting = state.attempt_of(task).is_none();
    let (traceback, log) = failures::trace(state, history, task);
    let deadline_s = state.task(task).spec.wishes.deadline_s.filter(|_| !state.has_ended(task));
    Explanation {
        version: VERSION,
        task: Some(state.name(task).to_owned()),
        now_s,
        reasons: stands::reasons(state, history, &expected, task, now_s),
        expected_start_s: times.filter(|_| is_waiting).map(|(start_s, _)| start_s),
        expected_end_s: times.map(|(_, end_s)| end_s),
        expected_end_band_s: times.and_then(|_| expected.end_band(task)),
        deadline_s,
        due: None,
        is_late: deadline_s.zip(times).map(|(due_s, (_, end_s))| end_s > due_s),
        candidates: candidates::of(state, history, task, now_s),
        moves: moves::of(state, history, task),
        traceback,
        log,
    }
}

/// The decisive reason of each of these tasks, if it has one. The forecast is made once for all.
pub(crate) fn first_reasons(
    state: &State,
    history: &History,
    expected: &Expected,
    tasks: &[TaskId],
    now_s: f64,
) -> Vec<(TaskId, Reason)> {
    let first = |task: &TaskId| {
        let reasons = stands::reasons(state, history, expected, *task, now_s);
        Some((*task, reasons.into_iter().next()?))
    };
    tasks.iter().filter_map(first).collect()
}

impl Explanation {
    /// The code of the decisive reason.
    pub fn code(&self) -> Code {
        // There is always a reason. Without one, nothing would keep the task from starting.
        self.reasons.first().map_or(Code::Ready, |reason| reason.code)
    }
}
