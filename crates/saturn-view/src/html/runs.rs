//! The live list of runs.

use maud::{Markup, html};
use saturn_engine::Stage;

use crate::html::live::{LivePage, run_address};
use crate::layout::units::{count, duration};

/// A run in the list.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// Its name.
    pub name: String,
    /// Whether it is the pool.
    pub is_pool: bool,
    /// `running`, `interrupted`, `died`, `complete` or `damaged`.
    pub state: String,
    /// Why it can't be read, if it can't.
    pub error: Option<String>,
    /// Seconds since it began.
    pub age_s: f64,
    /// Number of tasks.
    pub tasks: usize,
    /// Tasks that train now.
    pub running: usize,
    /// Tasks that were trained to their end.
    pub done: usize,
    /// Tasks that ended otherwise: how many, and how.
    pub others: Vec<(usize, &'static str)>,
}

/// The page of all runs.
pub fn runs_page(runs: &[RunRow]) -> String {
    let num_running = runs.iter().filter(|run| run.state == "running").count();
    let rows = runs.iter().map(row);
    let body = html! {
        div.heading {
            h1 { "Runs" }
            div #head data-live {
                p.subtitle { (count(runs.len(), "run")) ", " (num_running) " in progress" }
            }
        }
        section {
            div #runs data-live {
                @if runs.is_empty() {
                    p { "There is no run yet. To begin one: " code { "saturn sweep sweep.toml" } ", or " code { "saturn serve" } " for a pool." }
                } @else {
                    div.scroll {
                        table.cards {
                            caption { "All runs: the pool first, then the newest" }
                            thead { tr { th scope="col" { "run" } th scope="col" { "state" } th scope="col" { "tasks" } th.n scope="col" { "begun" } } }
                            tbody { @for row in rows { (row) } }
                        }
                    }
                }
            }
        }
    };
    LivePage { title: "Runs", crumbs: &[], run: None, body }.render()
}

fn row(run: &RunRow) -> Markup {
    let failed = Stage::Failed.word();
    let has_failures = run.others.iter().any(|(number, how)| *number > 0 && *how == failed);
    let (class, state) = match run.state.as_str() {
        "complete" if has_failures => ("bad", "ended"),
        state @ ("running" | "complete") => ("good", state),
        state @ "damaged" => ("bad", state),
        state => ("warn", state),
    };
    let share = run.done as f64 / run.tasks.max(1) as f64 * 100.0;
    html! {
        tr {
            td.task { a href=(run_address(&run.name)) { (run.name) } @if run.is_pool { " " span.note { "pool" } } }
            td { span class=(class) { (state) } }
            td.all {
                @if let Some(error) = &run.error { span.bad { (error) } } @else {
                    span.progress aria-hidden="true" { i style=(format!("width:{share:.0}%")) {} }
                    (run.done) " of " (run.tasks) " done"
                    @if run.running > 0 { ", " (run.running) " running" }
                    @for (number, how) in &run.others { ", " (number) " " (how) }
                }
            }
            td.n.all { (duration(run.age_s)) " ago" }
        }
    }
}
