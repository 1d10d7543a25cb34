//! Everything that a person sees of a run, made from the engine's state and its [`History`].
//!
//! - [`History`] keeps what the state forgets, folded from the same records.
//! - [`Console`] shows a run while it goes on: on a terminal or as plain lines.
//! - [`status`] is where a run and each of its tasks stand, as data; [`status_text`] the same as text.
//! - [`explain`] says why a task, or the run, is as it is.
//! - [`Report`] is a run as data (`report.json`) and as a page (`report.html`).
//! - [`Comparison`] is several runs side by side, as data and as a page.
//! - [`trace`] is a run for Perfetto (`trace.json`): what each device did when.
//! - [`Simulated`] is what policies came to on a simulated workload, as data, as text and as a page.
//! - [`plan_text`] is a plan of a planning problem for a terminal, [`plan_html`] the same as a page.
//!
//! All but the thin console are pure functions: no files, no clock, no network, so each view is
//! tested by a snapshot. Text from users and workers is escaped where it enters a view.

pub mod comparison;
mod console;
mod expect;
mod explain;
mod gantt_text;
mod history;
mod html;
mod inspected;
mod limits;
pub mod live;
pub mod outcome;
mod paint;
pub mod plan_table;
pub mod report;
pub mod simulated;
mod status;
mod status_text;
mod summary;
pub mod text;
mod trace;
mod transcript;
pub mod units;
pub mod words;

pub use comparison::Comparison;
pub use console::{Console, Sink};
pub use expect::{Band, DEFAULT_RATIOS, MIN_ENDED, QUANTILES};
pub use explain::{Candidate, Code, Explanation, Reason, TaskMove, explain};
pub use history::{
    History, Move, Note, PastAttempt, PastEnd, PastTask, PastTrial, PoolChange, PoolEvent, replay,
    without_driver,
};
pub use html::{comparison_html, plan_html, render_html, simulated_html};
pub use paint::Paint;
pub use plan_table::plan_text;
pub use report::{LossPoint, Report, TaskMetrics, read_metrics};
pub use simulated::{Simulated, simulated_text};
pub use status::{
    DevicesOn, NodeStatus, PoolStatus, RunningTrial, SetAside, Status, TaskStatus, status,
};
pub use status_text::status_text;
pub use summary::{Results, summary};
pub use trace::trace;
pub use transcript::Transcript;
