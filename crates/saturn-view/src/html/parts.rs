//! The smallest parts of pages: long tables, names of tasks.

use maud::{Markup, html};

use crate::layout::units::count;
use crate::phrases::words::listed;
use crate::report::data::Report;

/// Says how many items are not shown; empty if all are shown.
pub(crate) fn not_shown(number: usize, noun: &str) -> Markup {
    html! {
        @if number > 0 {
            p.note { "and " (count(number, &format!("more {noun}"))) "; report.json has all" }
        }
    }
}

/// How many rows of a long table are visible at first. A browser lays out a table as a whole, so
/// that a table of a thousand rows makes scrolling stutter.
const MAX_SEEN: usize = 100;

/// A table that folds away all rows after the first [`MAX_SEEN`].
pub(crate) fn long_table(head: &Markup, rows: &[Markup], noun: &str) -> Markup {
    let (seen, folded) = rows.split_at(rows.len().min(MAX_SEEN));
    let table = |rows: &[Markup]| {
        html! {
            div.scroll { table { thead { (head) } tbody { @for row in rows { (row) } } } }
        }
    };
    html! {
        (table(seen))
        @if !folded.is_empty() {
            details.fold {
                summary { b { (count(folded.len(), &format!("more {noun}"))) } }
                (table(folded))
            }
        }
    }
}

/// The most names shown for a group of tasks.
const MAX_NAMES: usize = 3;

/// The first names of a group of tasks, and how many more tasks there are.
pub(crate) fn names(report: &Report, tasks: &[usize]) -> String {
    let names: Vec<&str> = tasks.iter().map(|task| report.task_name(*task)).collect();
    listed(&names, MAX_NAMES)
}

/// The CSS class that gives an element a task's look.
pub(crate) fn task_class(task: usize) -> String {
    crate::html::colours::class(task)
}
