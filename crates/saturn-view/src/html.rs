//! Self-contained pages: a run's report, and a plan alone.
//!
//! A page needs nothing from any network, says so in its content security policy, and runs no script
//! but its own. Text from users and workers is escaped by construction: markup comes from templates
//! alone.

mod evaluations;
mod gantt;
mod losses;
mod overview;
mod page;
mod parameters;
mod plan;
mod schedule;
mod tables;
mod trials;

use maud::{Markup, html};

pub use page::render_html;
pub use plan::plan_html;

use crate::units::count;

/// A coordinate: a tenth of a pixel is enough, and keeps pages small.
pub(crate) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Says how many of something are not shown; empty where all are.
pub(crate) fn not_shown(number: usize, noun: &str) -> Markup {
    html! {
        @if number > 0 {
            p.note { "and " (count(number, &format!("more {noun}"))) "; report.json has all" }
        }
    }
}

/// The class that gives an element the colour of a task.
pub(crate) fn task_class(task: usize) -> String {
    format!("t{task}")
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
