//! The events of a run as lines for people: what happened, in order, each event once.
//!
//! A [`Transcript`] takes its facts from the state, the history and the record, and remembers only
//! what it needs to avoid repetition. It reports tasks and nodes that arrive together in one line,
//! once something else happens or time passes. A transcript prints nothing itself.

mod arrivals;
mod inspections;
mod plans;
mod pool;
mod training;
mod trials;

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::names::escape_terminal;
use saturn_engine::{Record, State, TaskId};

use self::arrivals::Arrivals;
use crate::history::History;
use crate::paint::{Paint, safe_lines};
use crate::text::{fit, pad, pad_left, width};
use crate::units::clock;

/// The columns before an event's text: the run's clock and a gap.
const CLOCK_WIDTH: usize = 7;
/// The columns of the word that names the kind of event.
const VERB_WIDTH: usize = 7;
/// The column at which continuation lines begin.
pub(crate) const INDENT: usize = CLOCK_WIDTH + 2 + VERB_WIDTH + 2;
/// Names longer than this are cut.
const MAX_NAME: usize = 32;
/// The most lines of a traceback that are shown; the log has all.
const MAX_TRACEBACK: usize = 40;

/// Turns records into lines.
#[derive(Debug)]
pub struct Transcript {
    paint: Paint,
    width: usize,
    /// Tracebacks that were shown, each with its task's group.
    shown: BTreeSet<(usize, String)>,
    /// The last reported seconds a step of training, by group, strategy and type of device.
    told_paces: BTreeMap<(String, String, String), f64>,
    /// The last reported error of each task that waits for space on the disk.
    told_no_space: BTreeMap<TaskId, String>,
    /// When an evaluation of each task was last reported.
    told_evaluations: BTreeMap<TaskId, f64>,
    /// Whether to show the next plan in full.
    show_plan: bool,
    /// Whether a line has said that the plan in force was kept although another plan would end
    /// sooner.
    is_kept_told: bool,
    /// Arrivals that are gathered and not reported yet.
    arrivals: Option<Arrivals>,
    /// The columns of the longest name, and the number of tasks that this covers.
    longest: (usize, usize),
}

impl Transcript {
    /// A transcript with lines of about `width` columns. Only tables keep strictly to it.
    pub fn new(paint: Paint, width: usize) -> Self {
        Self {
            paint,
            width,
            shown: BTreeSet::new(),
            told_paces: BTreeMap::new(),
            told_no_space: BTreeMap::new(),
            told_evaluations: BTreeMap::new(),
            show_plan: true,
            is_kept_told: false,
            arrivals: None,
            longest: (0, 0),
        }
    }

    /// The lines for a record that `state` and `history` have just applied. Often there is none.
    pub fn record(
        &mut self,
        state: &State,
        history: &History,
        record: &Record,
        now_s: f64,
    ) -> Vec<String> {
        self.measure_names(state);
        if self.arrive(state, history, record, now_s) {
            return Vec::new();
        }
        let lines = self.lines(state, history, record, now_s);
        if lines.is_empty() {
            return lines;
        }
        let mut all = self.arrived(state, history);
        all.extend(lines);
        all
    }

    /// The lines for gathered arrivals, once enough time has passed. Often there is none.
    pub fn tick(&mut self, state: &State, history: &History, now_s: f64) -> Vec<String> {
        if self.arrivals.as_ref().is_some_and(|arrivals| arrivals.may_wait(now_s)) {
            return Vec::new();
        }
        self.arrived(state, history)
    }

    fn lines(
        &mut self,
        state: &State,
        history: &History,
        record: &Record,
        now_s: f64,
    ) -> Vec<String> {
        match record {
            Record::SetAside { node, devices, reason, .. } => {
                vec![self.set_aside(state, *node, devices, reason, now_s)]
            }
            Record::TakenBack { node, devices, reason } => {
                vec![self.taken_back(state, *node, devices, reason, now_s)]
            }
            Record::Closed => {
                vec![self.line(now_s, "close", "no more tasks will come: the run ends with these")]
            }
            Record::Wished { task, .. } => vec![self.wished(state, *task, now_s)],
            Record::Paused { task } => vec![self.paused(state, *task, now_s)],
            Record::Unpaused { task } => {
                let text = format!("{}  is taken up again", self.name(state, *task));
                vec![self.line(now_s, "unpause", &text)]
            }
            Record::Judged { task, judgement } => {
                self.judged(state, *task, judgement, now_s).into_iter().collect()
            }
            Record::Inspected { group, inspection } => {
                self.inspected(state, group, inspection, now_s)
            }
            Record::Tried { group, gpu_type, strategy, outcome } => {
                self.tried(state, (group, gpu_type), strategy, outcome, now_s)
            }
            Record::TrialsChosen { trials, saves_s, cost_s } => {
                vec![self.trials_chosen(state, trials, (*saves_s, *cost_s), now_s)]
            }
            Record::Observed { group, gpu_type, strategy, step_s } => {
                self.observed(state, (group, gpu_type), strategy, *step_s, now_s)
            }
            Record::Planned { plan } => self.planned(state, history, plan, now_s),
            Record::PlanKept { time_left_s, best_s } => {
                self.plan_kept(*time_left_s, *best_s, now_s).into_iter().collect()
            }
            Record::NotSolved { reason } => vec![self.not_solved(state, reason, now_s)],
            Record::Launched { attempt, .. } => self.launched(state, *attempt, now_s),
            Record::WentOn { attempt, step } => self.went_on(state, *attempt, *step, now_s),
            Record::Ended { attempt, end, step, .. } => {
                self.ended(state, history, *attempt, end, *step, now_s)
            }
            Record::Retrying { task, not_before_s, counts } => {
                self.retrying(state, *task, *not_before_s, *counts, now_s)
            }
            Record::Excluded { task, key, reason } => {
                vec![self.excluded(state, *task, key, reason, now_s)]
            }
            Record::TaskEnded { task, end } => {
                let mut lines = self.task_ended(state, history, *task, end, now_s);
                lines.extend(waits_for_tasks(state));
                lines
            }
            Record::Noted { task, text } => {
                let about = task.map(|task| self.name(state, task));
                self.note(about, text, now_s)
            }
            Record::Interrupted { at_once } => vec![self.interrupted(*at_once, now_s)],
            Record::Evaluated { attempt, evaluation, best, evaluation_s } => {
                let is_new = evaluation_s.is_some();
                let told = state.attempts.get(attempt).filter(|_| is_new).and_then(|live| {
                    self.evaluated(state, live.task, evaluation, best.as_ref(), now_s)
                });
                told.into_iter().collect()
            }
            // `arrivals` reports arrivals. Neighbouring lines and the live region show the effects
            // of the other records.
            Record::Began { .. }
            | Record::Resumed { .. }
            | Record::DriverStarted { .. }
            | Record::NodeJoined { .. }
            | Record::NodeLeft { .. }
            | Record::TaskAdded { .. }
            | Record::Started { .. }
            | Record::Checkpointed { .. }
            | Record::Clocked { .. }
            | Record::Until { .. }
            | Record::Stopping { .. }
            | Record::RunEnded { .. } => Vec::new(),
        }
    }

    /// A line about the run's present position, which is not an event.
    pub(crate) fn aside(&self, text: &str, now_s: f64) -> String {
        self.line(now_s, "", &self.paint.dim(text))
    }

    /// Lines for a message about the machine that runs the tasks.
    pub(crate) fn remark(&self, text: &str, now_s: f64) -> Vec<String> {
        self.note(None, text, now_s)
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
            "stopping at once; Ctrl-C again to leave without waiting"
        } else {
            "stopping at checkpoints; Ctrl-C again to stop at once"
        };
        self.line(now_s, &self.paint.warn("stop"), text)
    }

    /// The line of an event: clock, verb and text.
    fn line(&self, now_s: f64, verb: &str, text: &str) -> String {
        let clock = self.paint.dim(&pad_left(&clock(now_s), CLOCK_WIDTH));
        format!("{clock}  {}  {text}", pad(verb, VERB_WIDTH))
    }

    /// Updates the width of the longest task name, so that the text after names is aligned.
    fn measure_names(&mut self, state: &State) {
        let (longest, known) = self.longest;
        let new = state.tasks.get(known..).unwrap_or_default();
        let widths = new.iter().map(|task| width(&escape_terminal(&task.spec.name)));
        self.longest = (widths.fold(longest, usize::max), state.tasks.len());
    }

    /// A task's name, padded so that the text after it is aligned.
    fn name(&self, state: &State, task: TaskId) -> String {
        let name = fit(&escape_terminal(state.name(task)), MAX_NAME);
        self.paint.task(task.0, &pad(&name, self.longest.0.min(MAX_NAME)))
    }

    /// A worker's traceback, indented. Empty if it was shown before for a task of the same group.
    fn traceback(&mut self, state: &State, task: TaskId, traceback: &str) -> Vec<String> {
        let traceback = traceback.trim();
        let key = (state.task(task).group, traceback.to_owned());
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

/// A continuation line.
fn more(text: &str) -> String {
    format!("{}{text}", " ".repeat(INDENT)).trim_end().to_owned()
}

/// A line for a run in which every task has ended and that nobody has closed; `None` for other
/// runs.
fn waits_for_tasks(state: &State) -> Option<String> {
    let is_idle = !state.is_closed && state.task_ids().all(|task| state.has_ended(task));
    let text = "every task has ended; the run waits for more until it is closed (saturn close)";
    (is_idle && state.ended.is_none()).then(|| more(text))
}

/// `a, b, c and 9 more`: the first names of a list.
fn listed(names: &[String]) -> String {
    /// The most names listed.
    const MAX_LISTED: usize = 4;
    let shown = names.iter().take(MAX_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_LISTED) {
        0 => shown,
        number => format!("{shown} and {number} more"),
    }
}
