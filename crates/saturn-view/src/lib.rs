//! Everything that a person sees of a run, made from the engine's state and its [`History`].
//!
//! - [`History`] keeps what the state forgets, folded from the same records.
//! - [`Console`] shows a run while it goes on: on a terminal or as plain lines.
//! - [`Report`] is a run as data (`report.json`) and as a page (`report.html`).
//! - [`plan_text`] is a plan of a planning problem for a terminal, [`plan_html`] the same as a page.
//!
//! All but the thin console are pure functions: no files, no clock, no network, so each view is
//! tested by a snapshot. Text from users and workers is escaped where it enters a view.

mod console;
mod gantt_text;
mod history;
mod html;
mod limits;
pub mod live;
pub mod outcome;
mod paint;
pub mod plan_table;
pub mod report;
mod summary;
pub mod text;
mod transcript;
pub mod units;
pub mod words;

pub use console::{Console, Sink};
pub use history::{
    History, Move, Note, PastAttempt, PastEnd, PastTask, PastTrial, PoolChange, PoolEvent, replay,
};
pub use html::{plan_html, render_html};
pub use paint::Paint;
pub use plan_table::plan_text;
pub use report::{LossPoint, Report, read_metrics};
pub use summary::{Results, summary};
pub use transcript::Transcript;
