//! The live page of a run: what its devices do now and next, who waits and why, curves and news.

use maud::{Markup, html};
use saturn_engine::Stage;

use crate::board::data::{BarKind, Board, BoardBar, is_waiting};
use crate::facts::run_status::RunStatus;
use crate::html::curves::{Chart, ChartSize, Curve};
use crate::html::frame::{badge, tile};
use crate::html::gantt::{Bar, Device, Gantt, LiveAxis, Mark};
use crate::html::live::{LivePage, live_section, run_address, task_address, to_come};
use crate::html::parts::{long_table, task_class};
use crate::html::tables::status_words;
use crate::layout::units::{clock, count, duration, number};
use crate::phrases::words::{device_kind, gang_devices, technique_on};
use crate::report::metrics::LossPoint;
use crate::status::data::TaskStatus;

/// The most rows of a table.
const MAX_ROWS: usize = 500;

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
        let status = &self.board.status;
        let body = html! {
            div.heading {
                h1 { (self.name) }
                div #head data-live { (self.head()) }
            }
            div.tiles #tiles data-live { (self.tiles()) }
            (live_section("devices", "Devices", &self.gantt()))
            (live_section("running", "Training now", &self.running()))
            (live_section("queue", "Queue", &self.queue()))
            div.pair {
                (live_section("losses", "Loss", &self.curves()))
                (live_section("news", "News", &self.told()))
            }
            (live_section("ended", "Ended", &self.ended()))
            section aria-labelledby="whole-title" {
                h2 #whole-title { "The whole run" }
                div.acts {
                    (button("Close", r#"{"command":"close"}"#, None, Some("No more tasks can be added then. Close it?")))
                    (button("Stop at checkpoints", r#"{"command":"stop"}"#, Some("bad"), Some("Stop the whole run? It can be resumed.")))
                }
                p.note { "Its report: " code { "saturn report " (self.name) } ". Steer it from a terminal: " code { "saturn pause " (self.name) " TASK" } "." }
                p #said role="status" {}
            }
        };
        LivePage {
            title: &self.name,
            crumbs: &[(&self.name, run_address(&self.name))],
            run: Some((&self.name, self.event)),
            num_tasks: status.tasks.len(),
            body,
        }
        .render()
    }

    fn head(&self) -> Markup {
        let status = &self.board.status;
        let (class, words) = match (status.status, status.stopping) {
            (RunStatus::Unfinished, Some(_)) => ("warn", "stopping"),
            (RunStatus::Unfinished, None) => ("good", "in progress"),
            (other, _) => badge(other, status.counts.failed),
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

    fn running(&self) -> Markup {
        let tasks = self.board.status.tasks.iter().enumerate();
        let rows: Vec<Markup> = tasks
            .filter(|(_, task)| task.attempt.is_some())
            .take(MAX_ROWS)
            .map(|(index, task)| self.running_row(index, task))
            .collect();
        if rows.is_empty() {
            return Markup::default();
        }
        html! {
            div.scroll {
                table.cards {
                    caption { "Tasks that train now" }
                    thead { tr {
                        th scope="col" { "task" } th scope="col" { "strategy" } th.n scope="col" { "devices" }
                        th scope="col" { "steps" } th.n scope="col" { "loss" } th.n scope="col" { "ends" } th.n scope="col" { "between" }
                    } }
                    tbody { @for row in &rows { (row) } }
                }
            }
        }
    }

    fn running_row(&self, index: usize, task: &TaskStatus) -> Markup {
        html! {
            tr data-task=(index) {
                td.task { (self.link(index, task)) }
                td { (strategy_of(task)) }
                td.n.all data-name="devices" { (devices_of(task)) }
                td.all { (progress(task, index)) }
                td.n data-name="loss" { (task.loss.map_or("–".to_owned(), number)) }
                td.n data-name="ends" { (self.end(task)) }
                td.n.all data-name="between" { (self.band(task)) }
            }
        }
    }

    fn queue(&self) -> Markup {
        let board = &self.board;
        let num_left_out = board.num_waiting() - board.queue.len();
        if board.queue.is_empty() {
            return Markup::default();
        }
        let now_s = board.status.now_s;
        html! {
            div.scroll {
                table.cards {
                    caption { "Tasks that wait, by their expected start, and why each waits" }
                    thead { tr {
                        th scope="col" { "task" } th scope="col" { "strategy" } th.n scope="col" { "starts" }
                        th.n scope="col" { "ends" } th.n scope="col" { "between" } th scope="col" { "why it waits" }
                    } }
                    tbody {
                        @for queued in &board.queue {
                            @let task = &board.status.tasks[queued.task];
                            tr data-task=(queued.task) {
                                td.task { (self.link(queued.task, task)) }
                                td { (strategy_of(task)) }
                                td.n data-name="starts" {
                                    @match task.expected_start_s {
                                        Some(start_s) if self.is_driven => { (to_come(start_s, now_s)) },
                                        _ => "–",
                                    }
                                }
                                td.n data-name="ends" { (self.end(task)) }
                                td.n.all data-name="between" { (self.band(task)) }
                                td.why { code { (queued.reason.code.word()) } " " (queued.reason.sentence) }
                            }
                        }
                    }
                }
            }
            @if num_left_out > 0 { p.note { "and " (count(num_left_out, "more task")) } }
        }
    }

    fn ended(&self) -> Markup {
        let tasks = self.board.status.tasks.iter().enumerate();
        let mut ended: Vec<(usize, &TaskStatus)> =
            tasks.filter(|(_, task)| !is_waiting(task) && task.attempt.is_none()).collect();
        if ended.is_empty() {
            return Markup::default();
        }
        let at = |task: &TaskStatus| task.ended_s.unwrap_or(0.0);
        let has_why = ended.iter().any(|(_, task)| task.error.is_some());
        ended.sort_by(|one, other| at(other.1).total_cmp(&at(one.1)));
        let head = html! {
            tr {
                th scope="col" { "task" } th scope="col" { "how" } th.n scope="col" { "loss" } th.n scope="col" { "steps" }
                th.n scope="col" { "trained for" } th.n scope="col" { "ended at" }
                @if has_why { th scope="col" { "why" } }
            }
        };
        let rows = ended.iter().take(MAX_ROWS).map(|(index, task)| {
            let (class, word) = status_words(task.stage);
            html! {
                tr data-task=(index) {
                    td.task { (self.link(*index, task)) }
                    td class=(class) { (word) }
                    td.n { (task.loss.map_or("–".to_owned(), number)) }
                    td.n { (task.step) }
                    td.n { (task.train_s.map_or("–".to_owned(), duration)) }
                    td.n { (clock(at(task))) }
                    @if has_why { td.why { (task.error.as_deref().unwrap_or_default()) } }
                }
            }
        });
        long_table(&head, &rows.collect::<Vec<_>>(), "task")
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

    fn link(&self, index: usize, task: &TaskStatus) -> Markup {
        html! {
            i.dot.(task_class(index)) aria-hidden="true" {}
            a href=(task_address(&self.name, &task.name)) data-of=(index) { (task.name) }
        }
    }

    fn end(&self, task: &TaskStatus) -> Markup {
        html! {
            @match task.expected_end_s {
                Some(end_s) if self.is_driven => { (to_come(end_s, self.board.status.now_s)) },
                _ => "–",
            }
            @if task.is_late == Some(true) { " " span.late { "late" } }
        }
    }

    fn band(&self, task: &TaskStatus) -> Markup {
        let now_s = self.board.status.now_s;
        html! {
            @if let (Some((early_s, late_s)), true) = (task.expected_end_band_s, self.is_driven) {
                (to_come(early_s, now_s)) " – " (to_come(late_s, now_s))
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

/// A button that sends a command. The script shows it.
pub(super) fn button(
    words: &str,
    command: &str,
    class: Option<&str>,
    confirm: Option<&str>,
) -> Markup {
    html! {
        button type="button" class=[class] data-command=(command) data-confirm=[confirm] { (words) }
    }
}

/// A task's technique and number of devices.
pub(super) fn strategy_of(task: &TaskStatus) -> String {
    match (&task.technique, task.gpus) {
        (Some(technique), Some(gpus)) => technique_on(technique, gpus),
        _ => "–".to_owned(),
    }
}

/// A task's devices, in words.
pub(super) fn devices_of(task: &TaskStatus) -> String {
    let several = task.devices.len() > 1;
    let parts = task.devices.iter().map(|one| {
        let ids = crate::phrases::words::id_ranges(&one.devices);
        if several { format!("{} {ids}", one.node) } else { ids }
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// How far a task is.
pub(super) fn progress(task: &TaskStatus, index: usize) -> Markup {
    let share = task.steps.map(|steps| task.step as f64 / steps.max(1) as f64 * 100.0);
    html! {
        @if let Some(share) = share {
            span.progress.(task_class(index)) aria-hidden="true" { i style=(format!("width:{share:.1}%")) {} }
        }
        (task.step) @if let Some(steps) = task.steps { " of " (steps) }
    }
}
