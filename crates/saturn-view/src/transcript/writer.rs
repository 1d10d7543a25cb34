//! Writes the lines of a transcript, and remembers what was told.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::names::escape_terminal;
use saturn_engine::{AttemptId, State, TaskId};

use crate::layout::paint::{Paint, safe_lines};
use crate::layout::text::{fit, pad, pad_left, width};
use crate::layout::units::clock;
use crate::phrases::events;
use crate::transcript::gathered::Arrivals;

/// The columns before an event's text: the run's clock and a gap.
const CLOCK_WIDTH: usize = 7;
/// The columns of the word that names the kind of event.
const VERB_WIDTH: usize = 7;
/// The column at which continuation lines begin.
pub(crate) const INDENT: usize = CLOCK_WIDTH + 2 + VERB_WIDTH + 2;
/// Names longer than this are cut.
const MAX_NAME: usize = 32;
/// The most names listed in a line.
pub(super) const MAX_LISTED: usize = 4;
/// The most lines of a traceback that are shown; the log has all.
const MAX_TRACEBACK: usize = 40;

/// Which figures of all tasks together the lines have told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ToldOfAll {
    /// How long the run is likely to take.
    pub(super) length: bool,
    /// How long current practice would take.
    pub(super) practice: bool,
}

/// Turns records into lines.
#[derive(Debug)]
pub struct Transcript {
    pub(super) paint: Paint,
    pub(super) width: usize,
    /// Tracebacks that were shown, each with its task's group.
    pub(super) shown: BTreeSet<(usize, String)>,
    /// The last reported seconds a step of training, by group, strategy and type of device.
    pub(super) told_paces: BTreeMap<(String, String, String), f64>,
    /// The last reported error of each task that waits for space on the disk.
    pub(super) told_no_space: BTreeMap<TaskId, String>,
    /// The last reported error of each task's training, and the attempt that failed with it.
    pub(super) told_errors: BTreeMap<TaskId, (AttemptId, String)>,
    /// When an evaluation of each task was last reported.
    pub(super) told_evaluations: BTreeMap<TaskId, f64>,
    /// How many lines have said why devices began to train late.
    pub(super) num_late_told: usize,
    /// Whether to show the next plan in full.
    pub(super) show_plan: bool,
    /// Whether a line has said that the plan in force was kept although another plan would end
    /// sooner.
    pub(super) is_kept_told: bool,
    /// Which figures of all tasks together were told.
    pub(super) told: ToldOfAll,
    /// Arrivals that are gathered and not reported yet.
    pub(super) arrivals: Option<Arrivals>,
    /// The columns of the longest name, and the number of tasks that this covers.
    pub(super) longest: (usize, usize),
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
            told_errors: BTreeMap::new(),
            told_evaluations: BTreeMap::new(),
            num_late_told: 0,
            show_plan: true,
            is_kept_told: false,
            told: ToldOfAll::default(),
            arrivals: None,
            longest: (0, 0),
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

    pub(super) fn note(&self, about: Option<String>, text: &str, now_s: f64) -> Vec<String> {
        let mut lines = safe_lines(text);
        let about = about.map(|name| format!("{name}  ")).unwrap_or_default();
        let first = format!("{about}{}", lines.next().unwrap_or_default());
        let mut noted = vec![self.line(now_s, "note", &first)];
        noted.extend(lines.map(|line| more(&line)));
        noted
    }

    pub(super) fn interrupted(&self, at_once: bool, now_s: f64) -> String {
        self.line(now_s, &self.paint.warn("stop"), events::interrupted(at_once))
    }

    /// The line of an event: clock, verb and text.
    pub(super) fn line(&self, now_s: f64, verb: &str, text: &str) -> String {
        let clock = self.paint.dim(&pad_left(&clock(now_s), CLOCK_WIDTH));
        format!("{clock}  {}  {text}", pad(verb, VERB_WIDTH))
    }

    /// Updates the width of the longest task name, so that the text after names is aligned.
    pub(super) fn measure_names(&mut self, state: &State) {
        let (longest, known) = self.longest;
        let new = state.tasks.get(known..).unwrap_or_default();
        let widths = new.iter().map(|task| width(&escape_terminal(&task.spec.name)));
        self.longest = (widths.fold(longest, usize::max), state.tasks.len());
    }

    /// A task's name, padded so that the text after it is aligned.
    pub(super) fn name(&self, state: &State, task: TaskId) -> String {
        let name = fit(&escape_terminal(state.name(task)), MAX_NAME);
        self.paint.task(task.0, &pad(&name, self.longest.0.min(MAX_NAME)))
    }

    /// A worker's traceback, indented. Empty if it was shown before for a task of the same group.
    pub(super) fn traceback(
        &mut self,
        state: &State,
        task: TaskId,
        traceback: &str,
    ) -> Vec<String> {
        let traceback = traceback.trim();
        let key = (state.task(task).group, traceback.to_owned());
        if traceback.is_empty() || !self.shown.insert(key) {
            return Vec::new();
        }
        let all: Vec<String> = safe_lines(traceback).collect();
        let skipped = all.len().saturating_sub(MAX_TRACEBACK);
        let mut lines = Vec::new();
        if skipped > 0 {
            lines.push(more(&self.paint.dim(&format!("│ … {skipped} earlier lines"))));
        }
        lines.extend(all[skipped..].iter().map(|line| more(&self.paint.dim(&format!("│ {line}")))));
        lines
    }
}

/// A continuation line.
pub(super) fn more(text: &str) -> String {
    format!("{}{text}", " ".repeat(INDENT)).trim_end().to_owned()
}

/// A line for a run in which every task has ended and that nobody has closed; `None` for other
/// runs.
pub(super) fn waits_for_tasks(state: &State) -> Option<String> {
    let is_idle = !state.is_closed && state.task_ids().all(|task| state.has_ended(task));
    let text = "every task has ended; the run waits for more until it is closed (saturn close)";
    (is_idle && state.ended.is_none()).then(|| more(text))
}
