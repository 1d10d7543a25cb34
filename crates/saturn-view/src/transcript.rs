//! The events of a run as lines for a person: what happened, in order, each said once.
//!
//! A [`Transcript`] remembers only what it needs so as not to repeat itself; everything that it says
//! is in the state and the record. It prints nothing.

mod plans;
mod training;
mod trials;

pub(crate) use trials::progress as trial_progress;

use std::collections::BTreeSet;

use saturn_core::names::escape_terminal;
use saturn_engine::{Record, State, TaskId, forecast};

use crate::paint::{Paint, safe_lines};
use crate::text::{fit, pad, pad_left};
use crate::units::clock;

/// Columns before an event's words: the run's clock and a gap.
const CLOCK_WIDTH: usize = 7;
/// Columns of the word that says what kind of event a line tells of.
const VERB_WIDTH: usize = 7;
/// Where continuation lines begin.
pub(crate) const INDENT: usize = CLOCK_WIDTH + 2 + VERB_WIDTH + 2;
/// Names longer than this are cut.
const MAX_NAME: usize = 32;
/// Lines of a traceback that are printed; the log has all of them.
const MAX_TRACEBACK: usize = 40;

/// Turns records into lines.
#[derive(Debug)]
pub struct Transcript {
    paint: Paint,
    width: usize,
    /// Failures whose tracebacks were shown: group of the task, and the traceback.
    shown: BTreeSet<(usize, String)>,
    /// When the plan in force would end, as last forecast.
    expected_end_s: Option<f64>,
    /// The next plan is to be shown whole.
    show_plan: bool,
}

impl Transcript {
    /// Lines at most about `width` columns wide; only tables keep strictly to it.
    pub fn new(paint: Paint, width: usize) -> Self {
        Self { paint, width, shown: BTreeSet::new(), expected_end_s: None, show_plan: true }
    }

    /// The lines for a record that was just applied to `state`; often none.
    pub fn record(&mut self, state: &State, record: &Record, now_s: f64) -> Vec<String> {
        let lines = self.lines(state, record, now_s);
        self.observe(state, now_s);
        lines
    }

    /// Keeps in mind when the plan in force would end, to compare the next plan with.
    pub fn observe(&mut self, state: &State, now_s: f64) {
        if state.plan().is_some() {
            self.expected_end_s = Some(forecast(state, now_s).end_s);
        }
    }

    fn lines(&mut self, state: &State, record: &Record, now_s: f64) -> Vec<String> {
        match record {
            Record::Began { .. } => self.began(state, now_s),
            Record::Resumed { .. } => self.resumed(state, now_s),
            Record::Tried { trial, strategy, outcome } => {
                self.tried(state, *trial, strategy, outcome, now_s)
            }
            Record::Planned { plan } => self.planned(state, plan, now_s),
            Record::PlanKept { time_left_s, best_s } => {
                vec![self.plan_kept(*time_left_s, *best_s, now_s)]
            }
            Record::Launched { attempt, .. } => self.launched(state, *attempt, now_s),
            Record::Ended { attempt, end, step } => self.ended(state, *attempt, end, *step, now_s),
            Record::Retrying { task, not_before_s } => {
                vec![self.retrying(state, *task, *not_before_s, now_s)]
            }
            Record::Excluded { task, strategy, reason } => {
                vec![self.excluded(state, *task, strategy, reason, now_s)]
            }
            Record::TaskEnded { task, end } => self.task_ended(state, *task, end, now_s),
            Record::Noted { task, text } => self.noted(state, *task, text, now_s),
            Record::Interrupted { at_once } => vec![self.interrupted(*at_once, now_s)],
            // What these mean is told by the lines before and after them, and by the live region.
            Record::Started { .. }
            | Record::Checkpointed { .. }
            | Record::Stopping { .. }
            | Record::RunEnded { .. } => Vec::new(),
        }
    }

    /// A line that is no event: where the run stands.
    pub(crate) fn aside(&self, text: &str, now_s: f64) -> String {
        self.line(now_s, "", &self.paint.dim(text))
    }

    /// A word about the machine that runs the tasks.
    pub(crate) fn remark(&self, text: &str, now_s: f64) -> Vec<String> {
        self.note(None, text, now_s)
    }

    fn noted(&self, state: &State, task: TaskId, text: &str, now_s: f64) -> Vec<String> {
        self.note(Some(self.name(state, task)), text, now_s)
    }

    fn note(&self, about: Option<String>, text: &str, now_s: f64) -> Vec<String> {
        let mut lines = safe_lines(text);
        let about = about.map(|name| format!("{name}  ")).unwrap_or_default();
        let first = format!("{about}{}", lines.next().unwrap_or_default());
        let mut noted = vec![self.line(now_s, "note", &first)];
        noted.extend(lines.map(|line| more(&line)));
        noted
    }

    fn interrupted(&self, at_once: bool, now_s: f64) -> String {
        let text = if at_once {
            "stopping at once"
        } else {
            "stopping at checkpoints; Ctrl-C again to stop at once"
        };
        self.line(now_s, &self.paint.warn("stop"), text)
    }

    /// One event: clock, verb, words.
    fn line(&self, now_s: f64, verb: &str, text: &str) -> String {
        let clock = self.paint.dim(&pad_left(&clock(now_s), CLOCK_WIDTH));
        format!("{clock}  {}  {text}", pad(verb, VERB_WIDTH))
    }

    /// A task's name, padded so that what follows stands in a column.
    fn name(&self, state: &State, task: TaskId) -> String {
        let longest = state
            .config
            .tasks
            .iter()
            .map(|spec| crate::text::width(&escape_terminal(&spec.name)))
            .max()
            .unwrap_or(0);
        let name = fit(&escape_terminal(state.name(task)), MAX_NAME);
        self.paint.task(task.0, &pad(&name, longest.min(MAX_NAME)))
    }

    /// A worker's traceback, indented, the first time that it is seen for tasks that are alike.
    fn traceback(&mut self, state: &State, task: TaskId, traceback: &str) -> Vec<String> {
        let traceback = traceback.trim();
        let key = (state.group_of(task).0, traceback.to_owned());
        if traceback.is_empty() || !self.shown.insert(key) {
            return Vec::new();
        }
        let all: Vec<String> = safe_lines(traceback).collect();
        let skipped = all.len().saturating_sub(MAX_TRACEBACK);
        let mut lines = Vec::new();
        if skipped > 0 {
            lines.push(more(&self.paint.dim(&format!("│ … {skipped} lines before these"))));
        }
        lines.extend(all[skipped..].iter().map(|line| more(&self.paint.dim(&format!("│ {line}")))));
        lines
    }
}

/// A line that goes on from the one before.
fn more(text: &str) -> String {
    format!("{}{text}", " ".repeat(INDENT)).trim_end().to_owned()
}
