//! The console: prints the texts of the view functions while a run goes on.
//!
//! On a terminal, events scroll by above a live region that is redrawn in place. Elsewhere (pipes,
//! `TERM=dumb`, notebooks, CI) each event is a line, and a counter line comes now and then. The
//! console is an observer: it decides nothing and owns none of the run's state.

use std::fmt;
use std::io::Write;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use saturn_engine::{Observer, Record, State};

use crate::facts::history::History;
use crate::layout::paint::{Paint, is_dumb};
use crate::layout::text::wrap;
use crate::terminal::live::{counter, region};
use crate::terminal::summary::{Results, summary};
use crate::transcript::writer::{INDENT, Transcript};

/// Receives plain text. Each call brings one or more whole lines, with line ends.
pub type Sink = Box<dyn FnMut(&str) + Send>;

/// Least and greatest time between two counter lines, seconds.
const COUNTER_EVERY_S: (f64, f64) = (5.0, 60.0);
/// Within those limits, the time between counter lines is this share of the run's time so far. So
/// the log of a long run stays readable.
const COUNTER_SHARE: f64 = 0.05;
/// The width in columns of output that is not a terminal.
const PLAIN_WIDTH: usize = 120;
/// The time between two redraws of the live region: a constant, seconds, and seconds for each place
/// of the plan. The second part is for large plans, whose forecast is most of the work.
const REDRAW_S: (f64, f64) = (0.15, 2e-4);
/// The assumed size of a terminal that does not tell its size.
const FALLBACK_SIZE: (u16, u16) = (24, 80);

/// Shows a run to a person.
#[derive(Debug)]
pub struct Console {
    transcript: Transcript,
    history: History,
    paint: Paint,
    surface: Surface,
}

enum Surface {
    Plain { sink: Sink, last_said_s: f64 },
    Terminal { live: ProgressBar, size: Box<dyn Fn() -> (u16, u16) + Send>, drawn_s: f64 },
}

impl fmt::Debug for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { last_said_s, .. } => write!(f, "Plain(last said at {last_said_s} s)"),
            Self::Terminal { .. } => f.write_str("Terminal"),
        }
    }
}

impl Console {
    /// A console on this process's standard error, set up by its environment.
    pub fn stderr() -> Self {
        Self::new(Term::stderr().is_term(), None, |name| std::env::var(name).ok())
    }

    /// A console on standard error if `is_terminal` and the terminal can move its cursor. Otherwise
    /// plain lines go to `sink`, or to standard error without a sink.
    pub fn new(
        is_terminal: bool,
        sink: Option<Sink>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let paint = Paint::from_env(is_terminal, &env);
        let term = Term::stderr();
        if is_terminal && term.is_term() && !is_dumb(&env) {
            let target =
                ProgressDrawTarget::term_like_with_hz(Box::new(Term::buffered_stderr()), 20);
            return Self::on_terminal(
                target,
                Box::new(move || term.size_checked().unwrap_or(FALLBACK_SIZE)),
                paint,
            );
        }
        Self::plain(sink.unwrap_or_else(|| Box::new(to_stderr)), paint)
    }

    /// A console that prints plain lines.
    pub fn plain(sink: Sink, paint: Paint) -> Self {
        Self {
            transcript: Transcript::new(paint, PLAIN_WIDTH),
            history: History::default(),
            paint,
            surface: Surface::Plain { sink, last_said_s: 0.0 },
        }
    }

    /// A console on a terminal of `size` (rows, columns).
    fn on_terminal(
        target: ProgressDrawTarget,
        size: Box<dyn Fn() -> (u16, u16) + Send>,
        paint: Paint,
    ) -> Self {
        let live = ProgressBar::with_draw_target(None, target);
        live.set_style(
            ProgressStyle::with_template("{msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        let (_, columns) = size();
        Self {
            transcript: Transcript::new(paint, usize::from(columns)),
            history: History::default(),
            paint,
            surface: Surface::Terminal { live, size, drawn_s: f64::NEG_INFINITY },
        }
    }

    /// The same console with a history that began before, for a run that is resumed.
    #[must_use]
    pub fn with_history(self, history: History) -> Self {
        Self { history, ..self }
    }

    /// The run's history.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Clears the live region and prints the summary.
    pub fn finish(&mut self, state: &State, now_s: f64, results: &Results) {
        if let Surface::Terminal { live, .. } = &self.surface {
            live.set_message("");
        }
        let mut lines = self.transcript.tick(state, &self.history, f64::INFINITY);
        lines.extend(summary(state, &self.history, results, self.paint));
        self.say(&lines, now_s);
        if let Surface::Terminal { live, .. } = &self.surface {
            live.finish_and_clear();
        }
    }

    fn say(&mut self, lines: &[String], now_s: f64) {
        if lines.is_empty() {
            return;
        }
        match &mut self.surface {
            Surface::Plain { sink, last_said_s } => {
                sink(&format!("{}\n", lines.join("\n")));
                *last_said_s = now_s;
            }
            Surface::Terminal { live, size, .. } => {
                let (_, columns) = size();
                let wrapped = lines.iter().flat_map(|line| wrap(line, columns.into(), INDENT));
                // The progress bar would drop an empty last line.
                let lines: Vec<String> = wrapped
                    .map(|line| if line.is_empty() { " ".to_owned() } else { line })
                    .collect();
                live.println(lines.join("\n"));
            }
        }
    }
}

impl Observer for Console {
    fn record(&mut self, state: &State, record: &Record, now_s: f64) {
        self.history.record(state, record, now_s);
        let lines = self.transcript.record(state, &self.history, record, now_s);
        self.say(&lines, now_s);
    }

    fn tick(&mut self, state: &State, now_s: f64) {
        let lines = self.transcript.tick(state, &self.history, now_s);
        self.say(&lines, now_s);
        match &mut self.surface {
            Surface::Plain { last_said_s, .. } => {
                let (least_s, most_s) = COUNTER_EVERY_S;
                if now_s - *last_said_s >= (now_s * COUNTER_SHARE).clamp(least_s, most_s)
                    && let Some(line) = counter(state, &self.history, now_s)
                {
                    let line = self.transcript.aside(&line, now_s);
                    self.say(&[line], now_s);
                }
            }
            Surface::Terminal { live, size, drawn_s } => {
                let num_places = state.plan.as_ref().map_or(0, |plan| plan.places.len());
                if now_s - *drawn_s < REDRAW_S.0 + REDRAW_S.1 * num_places as f64 {
                    return;
                }
                *drawn_s = now_s;
                let (rows, columns) = size();
                let rows = usize::from(rows).saturating_sub(1).max(1);
                let size = (usize::from(columns), rows);
                let lines = region(state, &self.history, now_s, size, self.paint);
                live.set_message(lines.join("\n"));
            }
        }
    }

    fn note(&mut self, text: &str, now_s: f64) {
        let lines = self.transcript.remark(text, now_s);
        self.say(&lines, now_s);
    }
}

/// A closed standard error must not end a run. The journal holds what can't be shown.
fn to_stderr(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use indicatif::InMemoryTerm;
    use saturn_core::{Gang, Knobs, Node, Placement, Strategy};
    use saturn_engine::{
        Allowed, AttemptId, DeviceKind, Level, Mode, NodeId, Policy, Purpose, RunConfig, RunEnd,
        TaskId, TaskSpec, TechniqueRef, Wishes,
    };

    use super::*;

    fn config() -> RunConfig {
        RunConfig {
            mode: Mode::Orchestrate,
            device_kind: DeviceKind::Cpu,
            device_memory_bytes: None,
            techniques: vec![TechniqueRef {
                name: "ddp".to_owned(),
                level: Level::Managed,
                import: None,
                pickle: None,
            }],
            policy: Policy::default(),
        }
    }

    fn only_task() -> TaskSpec {
        TaskSpec {
            name: "only".to_owned(),
            dir: "tasks/only".to_owned(),
            steps: Some(100),
            epochs: None,
            batches_a_step: NonZeroU64::MIN,
            can_resume: true,
            gpu_range: None,
            allowed: Allowed::default(),
            profile_key: "only".to_owned(),
            measured: Vec::new(),
            wishes: Wishes::default(),
            evaluation: None,
            parameters: saturn_core::Knobs::new(),
            goal: None,
            is_rest: false,
            start_step: 0,
            owner: None,
        }
    }

    #[test]
    fn events_scroll_above_a_live_region_that_goes_at_the_end() {
        let screen = InMemoryTerm::new(12, 90);
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let mut console = Console::on_terminal(target, Box::new(|| (12, 90)), Paint::PLAIN);
        let mut state = State::new(config());
        let mut tell = |console: &mut Console, record: Record, now_s: f64| {
            state.apply(&record, now_s);
            console.record(&state, &record, now_s);
            console.tick(&state, now_s);
        };
        tell(&mut console, Record::Began { config: config() }, 0.0);
        let joined = Record::NodeJoined {
            node: NodeId(0),
            spec: Node::new("n0", 1, "cpu"),
            host_memory_bytes: None,
        };
        tell(&mut console, joined, 0.0);
        tell(&mut console, Record::TaskAdded { task: TaskId(0), spec: only_task() }, 0.0);
        let gang: Gang = vec![Placement { node: 0, devices: vec![0] }];
        let launch = Record::Launched {
            attempt: AttemptId(1),
            task: TaskId(0),
            purpose: Purpose::Train,
            strategy: Strategy { technique: "ddp".to_owned(), gpus: 1, knobs: Knobs::new() },
            gang,
            until_step: None,
        };
        tell(&mut console, launch, 1.0);
        console.note("one core is busy", 2.0);
        insta::assert_snapshot!("live", screen.contents());

        tell(&mut console, Record::RunEnded { end: RunEnd::Complete }, 3.0);
        let results = Results { run_dir: "runs/a".to_owned(), ..Results::default() };
        console.finish(&state, 3.0, &results);
        insta::assert_snapshot!("finished", screen.contents());
    }
}
