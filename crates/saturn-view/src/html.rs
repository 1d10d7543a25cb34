//! Self-contained pages: the report of a run, a comparison of runs, a plan alone, policies on a
//! simulated workload, and a workload on pools of several sizes.
//!
//! A page needs no network, says so in its content security policy, and runs no script but its own.
//! All text from users and workers is escaped, since markup comes only from templates.

mod choices;
mod colours;
mod comparison;
mod curves;
mod evaluations;
mod gantt;
mod losses;
mod overview;
mod page;
mod parameters;
mod plan;
mod schedule;
mod simulated;
mod tables;
mod trials;
mod whatif;

use maud::{Markup, html};

pub use comparison::comparison_html;
pub use page::render_html;
pub use plan::plan_html;
pub use simulated::simulated_html;
pub use whatif::whatif_html;

use crate::report::Report;
use crate::units::count;

/// A coordinate as text. A tenth of a pixel is precise enough and keeps pages small.
pub(crate) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

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
    let shown: Vec<&str> =
        tasks.iter().take(MAX_NAMES).map(|task| report.task_name(*task)).collect();
    let num_more = tasks.len() - shown.len();
    let more = if num_more > 0 { format!(" and {num_more} more") } else { String::new() };
    shown.join(", ") + &more
}

/// The CSS class that gives an element a task's look.
pub(crate) fn task_class(task: usize) -> String {
    colours::class(task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short() {
        assert_eq!(px(10.0), "10");
        assert_eq!(px(10.04), "10");
        assert_eq!(px(10.26), "10.3");
    }
}
