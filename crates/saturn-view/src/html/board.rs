//! The live page of a run: what its devices do now and next, who waits and why, curves and news.

use std::fmt::Write;

use maud::{Markup, html};
use saturn_engine::Stage;

use crate::board::data::{BarKind, Board, BoardBar};
use crate::facts::run_status::RunStatus;
use crate::html::curves::{Chart, ChartSize, Curve};
use crate::html::frame::{badge, tile};
use crate::html::gantt::{Bar, Device, Gantt, LiveAxis, Mark};
use crate::html::live::{LivePage, live_section, run_address, to_come};
use crate::html::parts::task_class;
use crate::layout::units::{clock, count, duration};
use crate::phrases::words::{device_kind, gang_devices, technique_on};
use crate::report::metrics::LossPoint;

/// A line of what happened.
#[derive(Debug, Clone, PartialEq)]
pub struct NewsLine {
    /// When, seconds on the run's clock.
    pub at_s: f64,
    /// What happened, in words.
    pub text: String,
}

/// What the page of a run shows.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPage {
    /// The run's name.
    pub name: String,
    /// The number of the newest event that the page takes account of.
    pub event: u64,
    /// Whether a process drives the run.
    pub is_driven: bool,
    /// The run at this moment.
    pub board: Board,
    /// The newest events, the newest first.
    pub news: Vec<NewsLine>,
    /// Losses of some tasks, by the index of the task.
    pub losses: Vec<(usize, Vec<LossPoint>)>,
}

impl RunPage {
    /// The page.
    pub fn render(&self) -> String {
        let body = html! {
            div.heading {
                h1 { (self.name) }
                div #head data-live { (self.head()) }
            }
            div.tiles #tiles data-live { (self.tiles()) }
            (live_section("devices", "Devices", &self.gantt()))
            (live_section("running", "Training now", &self.running()))
            (live_section("queue", "Queue", &self.queue()))
            (live_section("people", "People", &self.people()))
            div.pair {
                (live_section("losses", "Loss", &self.curves()))
                (live_section("news", "News", &self.told()))
            }
            (live_section("ended", "Ended", &self.ended()))
            section aria-labelledby="whole-title" {
                h2 #whole-title { "The whole run" }
                // Without a driver, nobody can carry them out.
                div #acts data-live {
                    @if self.is_driven {
                        div.acts {
                            (button("Close", r#"{"command":"close"}"#, None, Some("No more tasks can be added then. Close it?")))
                            (button("Stop at checkpoints", r#"{"command":"stop"}"#, Some("bad"), Some("Stop the whole run? It can be resumed.")))
                        }
                    }
                }
                p.note { "Its report: " code { "saturn report " (self.name) } ". Steer it from a terminal: " code { "saturn pause " (self.name) " TASK" } "." }
                p #said role="status" {}
            }
        };
        LivePage {
            title: &self.name,
            crumbs: &[(&self.name, run_address(&self.name))],
            run: Some((&self.name, self.event)),
            body,
        }
        .render()
    }

    fn head(&self) -> Markup {
        let status = &self.board.status;
        let (class, words) = match (status.status, status.stopping) {
            (RunStatus::Unfinished, Some(_)) => ("warn", "stopping".into()),
            (RunStatus::Unfinished, None) => ("good", "in progress".into()),
            (other, _) => badge(other, status.counts.done, status.counts.failed),
        };
        let pool = &status.pool;
        let num_devices = u32::try_from(pool.devices).unwrap_or(u32::MAX);
        let types: std::collections::BTreeSet<&str> =
            pool.by_node.iter().map(|node| node.gpu_type.as_str()).collect();
        let types = types.into_iter().collect::<Vec<_>>().join(", ");
        html! {
            p.subtitle {
                span.badge.(class) { (words) } " "
                (count(status.counts.all, "task")) " on " (num_devices) " " (device_kind(pool.device_kind, num_devices))
                @if !types.is_empty() && types != "cpu" { " (" (types) ")" }
                " · " (clock(status.now_s)) " on its clock"
                @if status.status == RunStatus::Unfinished && !status.is_closed { " · more tasks may come" }
                @if status.status.lacks_tasks(status.is_closed) { " · more may come once it is resumed" }
            }
            @if let Some((task, error)) = &status.waits_space {
                p.bad { (task) " waits for space on the disk: " (error) }
            }
            @for one in status.pool.set_aside.iter().take(3) {
                p.bad { "Device " (one.device) " of " (one.node) " is set aside: " (one.reason) }
            }
        }
    }

    fn tiles(&self) -> Markup {
        let status = &self.board.status;
        let counts = &status.counts;
        let now_s = status.now_s;
        let ended = counts.all - counts.open();
        let mut notes = Vec::new();
        for (number, word) in [
            (counts.diverged, Stage::Diverged.word()),
            (counts.failed, Stage::Failed.word()),
            (counts.cancelled, Stage::Cancelled.word()),
            (counts.stopped, Stage::Stopped.word()),
        ] {
            if number > 0 {
                notes.push(format!("{number} {word}"));
            }
        }
        let (num_known, num_all) = status.trials.progress();
        let late = status.tasks.iter().filter(|task| task.is_late == Some(true)).count();
        html! {
            div.tile title="the expected end of all planned tasks, and where it lies in four of five runs" {
                div.name { "All done" }
                div.value {
                    @match status.expected_end_s {
                        Some(end_s) if self.is_driven => { (to_come(end_s, now_s)) },
                        _ if status.status == RunStatus::Complete => "done",
                        _ if self.is_driven && counts.open() == 0 => "idle",
                        _ => "–",
                    }
                }
                div.note {
                    @if let (Some((early_s, late_s)), true) = (status.expected_end_band_s, self.is_driven) {
                        (to_come(early_s, now_s)) " – " (to_come(late_s, now_s))
                    }
                    @if status.unplanned > 0 { br; (count(status.unplanned, "task")) " not planned yet" }
                }
            }
            (tile("Tasks done", &format!("{} of {}", counts.done, counts.all), &notes.join(", "),
                Some(("main", ended as f64 / counts.all.max(1) as f64)), "tasks trained to their end"))
            (tile("Training", &counts.running.to_string(),
                &if counts.paused + counts.held > 0 { format!("{} paused or held", counts.paused + counts.held) } else { String::new() },
                None, "tasks that train now"))
            (tile("Waiting", &self.board.num_waiting().to_string(),
                &if late > 0 { format!("{late} late") } else { String::new() }, None, "tasks that wait"))
            (tile("Devices busy", &format!("{} of {}", status.pool.busy, status.pool.devices), "",
                Some(("plan", status.pool.busy as f64 / status.pool.devices.max(1) as f64)), "devices that attempts hold"))
            @if num_all > 0 {
                (tile("Trials", &format!("{num_known} of {num_all}"),
                    &if status.trials.running > 0 { format!("{} running", status.trials.running) } else { String::new() },
                    None, "trials of this run that have an outcome"))
            }
        }
    }

    fn gantt(&self) -> Markup {
        let board = &self.board;
        let status = &board.status;
        let is_live = !board.is_still;
        let has_nodes = board.devices.iter().any(|device| device.node > 0);
        let devices = board.devices.iter().map(|device| Device {
            node: device.node,
            node_name: if has_nodes { device.node_name.clone() } else { String::new() },
            id: device.id,
        });
        let now = is_live.then(|| Mark {
            at_s: status.now_s,
            label: "now".to_owned(),
            tip: format!("now: {} on the run's clock", clock(status.now_s)),
            class: "now",
        });
        let chart = Gantt {
            title: "What each device does, from a while ago to the expected end".to_owned(),
            devices: devices.collect(),
            bars: board.bars.iter().map(|bar| self.bar(bar)).collect(),
            marks: now.into_iter().collect(),
            to_s: board.to_s,
            live: is_live.then_some(LiveAxis { from_s: board.from_s, now_s: status.now_s }),
        };
        html! {
            (chart.markup())
            p.note {
                @if is_live { "Pale bars with dashes are expected. " }
                "A bar leads to its task."
            }
        }
    }

    fn bar(&self, bar: &BoardBar) -> Bar {
        let task = &self.board.status.tasks[bar.task];
        let strategy = technique_on(&bar.technique, bar.gpus);
        let class = match bar.kind {
            BarKind::Trained => "",
            BarKind::Failed => "failed",
            BarKind::Tried => "trial",
            BarKind::Next => "next",
        };
        let what = match (bar.kind, bar.is_live) {
            (BarKind::Next, _) => "expected",
            (BarKind::Tried, _) => "trial",
            (_, true) => "trains",
            (BarKind::Failed, _) => "failed",
            _ => "trained",
        };
        Bar {
            task: bar.task,
            label: task.name.clone(),
            detail: strategy.clone(),
            tip: format!(
                "{strategy} · {what}\n{} → {}  ({})",
                clock(bar.start_s),
                clock(bar.end_s),
                duration(bar.end_s - bar.start_s)
            ),
            class,
            devices: gang_devices(&bar.gang),
            start_s: bar.start_s,
            end_s: bar.end_s,
            ready_s: bar.ready_s.filter(|_| bar.kind != BarKind::Next),
        }
    }

    fn curves(&self) -> Markup {
        let curves = self.losses.iter().filter(|(_, points)| points.len() > 1);
        let curves = curves.map(|(task, points)| Curve {
            key: task.to_string(),
            class: task_class(*task),
            name: &self.board.status.tasks[*task].name,
            points: points.clone(),
            value: self.board.status.tasks[*task].loss,
        });
        let curves: Vec<Curve<'_>> = curves.collect();
        if curves.is_empty() {
            return Markup::default();
        }
        let label = "Training loss by step of tasks that train, and of those that ended last";
        let chart = Chart {
            label: label.to_owned(),
            size: ChartSize::Small,
            is_noisy: true,
            axis: "step",
            curves,
        };
        chart.markup()
    }

    fn told(&self) -> Markup {
        html! {
            @if !self.news.is_empty() {
                ol.news {
                    @for line in &self.news {
                        li { span.at { (clock(line.at_s)) } span { (told(&line.text)) } }
                    }
                }
            }
        }
    }
}

/// The first line of a text, with the others folded away.
fn told(text: &str) -> Markup {
    let (first, others) = text.split_once('\n').unwrap_or((text, ""));
    html! {
        (first)
        @if !others.is_empty() { details { summary { "more" } (others) } }
    }
}

/// JSON in letters that no page changes: a page shows invisible letters as codes of its own.
fn ascii(json: &str) -> String {
    let mut text = String::new();
    for letter in json.chars() {
        if letter.is_ascii() {
            text.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

/// A button that sends a command. The script shows it.
pub(super) fn button(
    words: &str,
    command: &str,
    class: Option<&str>,
    confirm: Option<&str>,
) -> Markup {
    let command = ascii(command);
    html! {
        button type="button" class=[class] data-command=(command) data-confirm=[confirm] { (words) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_command_on_a_page_names_the_task_whatever_letters_its_name_has() {
        let command = json!({"command": "pause", "task": "a\u{200d}é🪐\"<b>"}).to_string();
        let written = ascii(&command);
        assert!(written.is_ascii());
        let read: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(read.to_string(), command);
    }
}
