//! The tables of a run's live page: tasks that train, that wait and that have ended.

use maud::{Markup, html};

use crate::board::data::is_waiting;
use crate::html::board::RunPage;
use crate::html::live::{task_address, to_come};
use crate::html::parts::{long_table, task_class};
use crate::html::tables::status_words;
use crate::layout::units::{clock, count, duration, number};
use crate::phrases::words::{id_ranges, technique_on};
use crate::status::data::TaskStatus;

/// The most rows of a table.
const MAX_ROWS: usize = 500;

impl RunPage {
    pub(super) fn running(&self) -> Markup {
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
                        th scope="col" { "task" } (self.owner_heading()) th scope="col" { "strategy" }
                        th.n scope="col" { "devices" }
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
                (self.owner_cell(task))
                td { (strategy_of(task)) }
                td.n.all data-name="devices" { (devices_of(task)) }
                td.all { (progress(task, index)) }
                td.n data-name="loss" { (task.loss.map_or("–".to_owned(), number)) }
                td.n data-name="ends" { (self.end(task)) }
                td.n.all data-name="between" { (self.band(task)) }
            }
        }
    }

    pub(super) fn queue(&self) -> Markup {
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
                        th scope="col" { "task" } (self.owner_heading()) th scope="col" { "strategy" }
                        th.n scope="col" { "starts" }
                        th.n scope="col" { "ends" } th.n scope="col" { "between" } th scope="col" { "why it waits" }
                    } }
                    tbody {
                        @for queued in &board.queue {
                            @let task = &board.status.tasks[queued.task];
                            tr data-task=(queued.task) {
                                td.task { (self.link(queued.task, task)) }
                                (self.owner_cell(task))
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

    pub(super) fn ended(&self) -> Markup {
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
                th scope="col" { "task" } (self.owner_heading()) th scope="col" { "how" } th.n scope="col" { "loss" } th.n scope="col" { "steps" }
                th.n scope="col" { "trained for" } th.n scope="col" { "ended at" }
                @if has_why { th scope="col" { "why" } }
            }
        };
        let rows = ended.iter().take(MAX_ROWS).map(|(index, task)| {
            let (class, word) = status_words(task.stage);
            html! {
                tr data-task=(index) {
                    td.task { (self.link(*index, task)) }
                    (self.owner_cell(task))
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
        let ids = id_ranges(&one.devices);
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
