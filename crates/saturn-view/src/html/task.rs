//! The live page of a task: where it stands and why, which strategies it could have, its moves, its
//! curve and its log.

use maud::{Markup, html};
use serde_json::json;

use crate::explain::explanation::Explanation;
use crate::html::board::button;
use crate::html::board_tables::{devices_of, progress, strategy_of};
use crate::html::choices::candidate_table;
use crate::html::curves::{Chart, ChartSize, Curve};
use crate::html::live::{LivePage, live_section, run_address, task_address, to_come};
use crate::html::parts::task_class;
use crate::html::tables::status_words;
use crate::layout::units::{clock, duration, number};
use crate::report::metrics::LossPoint;
use crate::status::data::TaskStatus;

/// The end of a task's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogTail {
    /// The attempt.
    pub attempt: u64,
    /// The rank.
    pub rank: u32,
    /// How many ranks have a log.
    pub num_ranks: usize,
    /// The text.
    pub text: String,
    /// Whether the log has more before this.
    pub is_cut: bool,
}

/// What the page of a task shows.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskPage {
    /// The name of its run.
    pub run: String,
    /// The number of the newest event that the page takes account of.
    pub event: u64,
    /// Whether a process drives the run.
    pub is_driven: bool,
    /// The index of the task.
    pub index: usize,
    /// Where it stands.
    pub status: TaskStatus,
    /// Why.
    pub explanation: Explanation,
    /// Its losses.
    pub losses: Vec<LossPoint>,
    /// The end of its log, if it has one.
    pub log: Option<LogTail>,
}

impl TaskPage {
    /// The page.
    pub fn render(&self) -> String {
        let task = &self.status;
        let why = if task.attempt.is_none() && task.ended_s.is_none() {
            "Why it waits"
        } else {
            "Why it is here"
        };
        let body = html! {
            div.heading {
                h1 { i.dot.(task_class(self.index)) aria-hidden="true" {} (task.name) }
                div #head data-live { (self.head()) }
                p #said role="status" {}
            }
            div.pair {
                (live_section("why", why, &self.reasons()))
                (live_section("facts", "Facts", &self.facts()))
            }
            (live_section("losses", "Loss", &self.curve()))
            (live_section("choices", "What else it could be", &self.choices()))
            (live_section("moves", "Moves", &self.moves()))
            (live_section("log", "Log", &self.log()))
        };
        let title = format!("{} · {}", task.name, self.run);
        LivePage {
            title: &title,
            crumbs: &[
                (&self.run, run_address(&self.run)),
                (&task.name, task_address(&self.run, &task.name)),
            ],
            run: Some((&self.run, self.event)),
            body,
        }
        .render()
    }

    fn head(&self) -> Markup {
        let task = &self.status;
        let now_s = self.explanation.now_s;
        let (class, word) = status_words(task.stage);
        html! {
            p.subtitle {
                span.badge.(class) { (word) } " " (strategy_of(task))
                @if !task.devices.is_empty() { " on " (devices_of(task)) }
                @if self.is_driven && task.ended_s.is_none() {
                    @if let Some(start_s) = task.expected_start_s { " · starts " (to_come(start_s, now_s)) }
                    @if let Some(end_s) = task.expected_end_s { " · ends " (to_come(end_s, now_s)) }
                    @if let Some((early_s, late_s)) = task.expected_end_band_s {
                        " (" (to_come(early_s, now_s)) " – " (to_come(late_s, now_s)) ")"
                    }
                }
                @if let Some(at_s) = task.ended_s { " · ended at " (clock(at_s)) }
                @if task.is_late == Some(true) { " · " span.late { "late" } }
            }
            p { (progress(task, self.index)) @if let Some(loss) = task.loss { " · loss " b { (number(loss)) } } }
            @if self.is_driven && task.ended_s.is_none() { (self.acts()) }
        }
    }

    fn acts(&self) -> Markup {
        let task = &self.status;
        let of_task = |command: &str| json!({"command": command, "task": task.name}).to_string();
        let wish = |priority: i32| {
            json!({"command": "wish", "task": task.name, "priority": priority}).to_string()
        };
        let cancel = format!("Cancel {}? It can't be continued in this run.", task.name);
        html! {
            div.acts {
                @if task.stage == saturn_engine::Stage::Paused {
                    (button("Continue", &of_task("unpause"), None, None))
                } @else {
                    (button("Pause", &of_task("pause"), None, None))
                }
                (button("Sooner", &wish(task.priority.saturating_add(1)), None, None))
                (button("Later", &wish(task.priority.saturating_sub(1)), None, None))
                (button("Cancel", &of_task("cancel"), Some("bad"), Some(&cancel)))
            }
        }
    }

    fn reasons(&self) -> Markup {
        html! {
            ul.reasons {
                @for reason in &self.explanation.reasons {
                    li { code { (reason.code.word()) } br; (reason.sentence) }
                }
            }
        }
    }

    fn facts(&self) -> Markup {
        let task = &self.status;
        let rows = [
            ("priority", Some(task.priority.to_string())),
            ("due at", task.deadline_s.map(clock)),
            ("comes after", (!task.after.is_empty()).then(|| task.after.join(", "))),
            ("added at", Some(clock(task.added_s))),
            ("first trained at", task.started_s.map(clock)),
            ("trained for", task.train_s.map(duration)),
            ("attempts", Some(task.attempts.to_string())),
            ("evaluation", task.evaluation.as_ref().map(crate::phrases::words::metrics)),
            ("directory", Some(task.dir.clone())),
        ];
        html! {
            div.scroll {
                table {
                    caption { "Facts about the task; times are on the run's clock" }
                    tbody {
                        @for (name, value) in &rows {
                            @if let Some(value) = value { tr { th scope="row" { (name) } td.why { (value) } } }
                        }
                    }
                }
            }
        }
    }

    fn curve(&self) -> Markup {
        if self.losses.len() < 2 {
            return Markup::default();
        }
        let chart = Chart {
            label: format!("Training loss of {} by step", self.status.name),
            size: ChartSize::Wide,
            is_noisy: true,
            axis: "step",
            curves: vec![Curve {
                key: self.index.to_string(),
                class: task_class(self.index),
                name: &self.status.name,
                points: self.losses.clone(),
                value: self.status.loss,
            }],
        };
        chart.markup()
    }

    fn choices(&self) -> Markup {
        let candidates: Vec<_> = self.explanation.candidates.iter().collect();
        html! { @if !candidates.is_empty() { (candidate_table(&candidates)) } }
    }

    fn moves(&self) -> Markup {
        html! {
            @if !self.explanation.moves.is_empty() {
                ol.news {
                    @for one in self.explanation.moves.iter().rev() {
                        li { span.at { (clock(one.at_s)) } span { code { (one.code.word()) } " " (one.sentence) } }
                    }
                }
            }
        }
    }

    fn log(&self) -> Markup {
        let Some(log) = &self.log else { return Markup::default() };
        html! {
            p.note {
                "Attempt " (log.attempt) ", rank " (log.rank)
                @if log.num_ranks > 1 { " of " (log.num_ranks) " ranks" }
                @if log.is_cut { "; its end" }
                ". All of it: " code { "saturn logs " (self.run) " " (self.status.name) }
            }
            @if log.text.is_empty() {
                p { "It has printed nothing yet." }
            } @else {
                pre.log tabindex="0" aria-label="Log" { (log.text) }
            }
        }
    }
}
