//! Who shares a pool, on its live page: a table of the people, and whose each task is.

use maud::{Markup, html};

use crate::html::board::RunPage;
use crate::html::live::to_come;
use crate::layout::units::{duration, percent};
use crate::status::data::TaskStatus;
use crate::status::people::PersonStatus;

impl RunPage {
    /// The people who share the pool; nothing if the run is one person's.
    pub(super) fn people(&self) -> Markup {
        let people = &self.board.status.people;
        if people.is_empty() {
            return Markup::default();
        }
        html! {
            div.scroll {
                table.cards {
                    caption { "People who share the pool, and by when each can count on the end of their tasks" }
                    thead { tr {
                        th scope="col" { "person" } th.n scope="col" { "share" } th.n scope="col" { "devices" }
                        th.n scope="col" { "tasks" } th.n scope="col" { "device time used" } th.n scope="col" { "end" }
                        th.n scope="col" { "at the latest" } th.n scope="col" { "late" }
                    } }
                    tbody { @for person in people { (self.person_row(person)) } }
                }
            }
        }
    }

    fn person_row(&self, person: &PersonStatus) -> Markup {
        let at = |at_s: Option<f64>| {
            let at_s = at_s.filter(|_| self.is_driven);
            at_s.map(|at_s| to_come(at_s, self.board.status.now_s))
        };
        html! {
            tr {
                td.task { (person.name) }
                td.n data-name="share" { (person.share.map_or("–".to_owned(), percent)) }
                td.n data-name="devices" { (person.devices_in_words()) }
                td.n data-name="tasks" { (person.tasks) }
                td.n data-name="device time used" { (duration(person.used_s)) }
                td.n data-name="end" { @if let Some(end) = at(person.expected_end_s) { (end) } @else { "–" } }
                td.n data-name="at the latest" { @if let Some(end) = at(person.guaranteed_s) { (end) } @else { "–" } }
                td.n data-name="late" {
                    @if person.late > 0 { span.late { (person.late) } } @else { "–" }
                }
            }
        }
    }

    /// The heading of the column that says whose a task is; none if all tasks are one person's.
    pub(super) fn owner_heading(&self) -> Markup {
        html! { @if !self.board.status.people.is_empty() { th scope="col" { "person" } } }
    }

    /// Whose a task is, below that heading.
    pub(super) fn owner_cell(&self, task: &TaskStatus) -> Markup {
        let status = &self.board.status;
        html! {
            @if !status.people.is_empty() {
                td data-name="person" { (status.owner_of(task).unwrap_or_default()) }
            }
        }
    }
}
