//! Explanations: where a task stands and what it waits for, why it has its strategy, and why it was
//! moved. The run as a whole is explained too.
//!
//! Every reason has a stable [`Code`] for scripts and a sentence for people. Everything comes from
//! the journal, so explanations work for live runs and for ended runs.

pub(crate) mod candidates;
mod code;
mod moves;
mod run;
mod stands;

use saturn_core::names::escape_terminal;
use saturn_engine::{State, TaskId};
use serde::{Deserialize, Serialize};

pub use candidates::Candidate;
pub use code::Code;
pub use moves::TaskMove;

use crate::expect::Expected;
use crate::history::History;
use crate::paint::Paint;
use crate::text::{Align, Table, pad, wrap};
use crate::units::{clock, duration};

/// The version of [`Explanation`]. Within one version, fields are added and never removed or
/// changed.
const VERSION: u32 = 1;
/// How to read the comparison of a task's strategies.
const LEGEND: &str =
    "+ and − compare with the task's strategy; devices' time is seconds × devices.";
/// The most facts of one kind that the text shows.
const MAX_SHOWN: usize = 12;

/// A reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The code, for scripts.
    pub code: Code,
    /// The sentence, for people.
    pub sentence: String,
    /// The names of other tasks that the reason names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<String>,
    /// The expected time until which the reason holds, seconds on the run's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_s: Option<f64>,
}

impl Reason {
    fn new(code: Code, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), tasks: Vec::new(), until_s: None }
    }

    fn about(self, tasks: Vec<String>) -> Self {
        Self { tasks, ..self }
    }

    fn until(self, until_s: Option<f64>) -> Self {
        Self { until_s, ..self }
    }
}

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
    /// The task's strategies: first its present one, then the others by time.
    pub candidates: Vec<Candidate>,
    /// Each time that the task continued under another strategy or on other devices.
    pub moves: Vec<TaskMove>,
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
            expected_end_band_s: expected.end_s().map(|end_s| expected.band.around(end_s, now_s)),
            candidates: Vec::new(),
            moves: Vec::new(),
        };
    };
    let times = expected.times(task).filter(|_| !state.has_ended(task));
    let is_waiting = state.attempt_of(task).is_none();
    Explanation {
        version: VERSION,
        task: Some(state.name(task).to_owned()),
        now_s,
        reasons: stands::reasons(state, history, &expected, task, now_s),
        expected_start_s: times.filter(|_| is_waiting).map(|(start_s, _)| start_s),
        expected_end_s: times.map(|(_, end_s)| end_s),
        expected_end_band_s: times.and_then(|_| expected.end_band(task)),
        candidates: candidates::of(state, history, task, now_s),
        moves: moves::of(state, history, task),
    }
}

impl Explanation {
    /// The code of the decisive reason.
    pub fn code(&self) -> Code {
        // There is always a reason. Without one, nothing would keep the task from starting.
        self.reasons.first().map_or(Code::Ready, |reason| reason.code)
    }

    /// The explanation as text of at most `width` columns. The last line has no line end.
    pub fn text(&self, width: usize, paint: Paint) -> String {
        let mut lines = Vec::new();
        for (index, reason) in self.reasons.iter().enumerate() {
            let sentence = escape_terminal(&reason.sentence);
            let sentence = if index == 0 { paint.bold(&sentence) } else { sentence };
            lines.extend(wrap(&sentence, width, 0));
        }
        if let Some(end_s) = self.expected_end_s {
            let start = self.expected_start_s.map(|start_s| {
                format!("start at {} (in {}), ", clock(start_s), duration(start_s - self.now_s))
            });
            let band = self
                .expected_end_band_s
                .map(|(early_s, late_s)| format!(" ({}-{})", clock(early_s), clock(late_s)));
            lines.push(format!(
                "expected: {}end at {}{}",
                start.unwrap_or_default(),
                clock(end_s),
                band.unwrap_or_default()
            ));
        }
        if !self.candidates.is_empty() {
            lines.extend([String::new(), paint.bold("strategies")]);
            lines.extend(self.candidate_lines(width, paint));
            let is_compared = |one: &Candidate| one.slower_s.is_some() && one.code != Code::Chosen;
            if self.candidates.iter().any(is_compared) {
                lines.extend(wrap(LEGEND, width, 0).iter().map(|line| paint.dim(line)));
            }
        }
        if !self.moves.is_empty() {
            lines.extend([String::new(), paint.bold("moves")]);
            let skipped = self.moves.len().saturating_sub(MAX_SHOWN);
            if skipped > 0 {
                lines.push(paint.dim(&format!("and {skipped} before these")));
            }
            for one in &self.moves[skipped..] {
                let line = format!("{}  {}", pad(&clock(one.at_s), 7), one.sentence);
                lines.extend(wrap(&escape_terminal(&line), width, 9));
            }
        }
        lines.join("\n")
    }

    fn candidate_lines(&self, width: usize, paint: Paint) -> Vec<String> {
        let has_types =
            self.candidates.iter().any(|one| one.gpu_type != self.candidates[0].gpu_type);
        let mut columns = vec![("strategy", Align::Left)];
        columns.extend(has_types.then_some(("on", Align::Left)));
        columns.extend([("takes", Align::Right), ("why", Align::Left)]);
        let mut table = Table::new(columns);
        for one in self.candidates.iter().take(MAX_SHOWN) {
            let mut row = vec![crate::words::technique_on(&one.technique, one.gpus)];
            row.extend(has_types.then(|| escape_terminal(&one.gpu_type)));
            row.push(one.time_s.map(duration).unwrap_or_default());
            row.push(escape_terminal(&one.sentence));
            table.push(row);
        }
        let mut lines = table.lines(width, paint, |row, column, cell| {
            if column == 0 && self.candidates[row].code == Code::Chosen {
                paint.good(cell)
            } else {
                cell.to_owned()
            }
        });
        let num_more = self.candidates.len().saturating_sub(MAX_SHOWN);
        lines.extend((num_more > 0).then(|| paint.dim(&format!("and {num_more} more"))));
        lines
    }
}

/// `a`, `a and b`, `a, b and 9 more`: names in a sentence.
fn names(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [one, other] => format!("{one} and {other}"),
        [one, other, others @ ..] => format!("{one}, {other} and {} more", others.len()),
    }
}

/// ` until about 0:53`; empty if the time is unknown.
fn until(until_s: Option<f64>) -> String {
    until_s.map(|until_s| format!(" until about {}", clock(until_s))).unwrap_or_default()
}
