//! The views of a run for people, made from the engine's state and the run's [`History`].
//!
//! - [`History`] keeps what the state forgets, folded from the same records.
//! - [`Console`] shows a run while it goes on: on a terminal or as plain lines.
//! - [`status`] says where a run and each of its tasks stand, as data; [`status_text`] says it as
//!   text.
//! - [`explain`] says why a task, or the run, is where it is.
//! - [`Report`] is a run as data (`report.json`) and as a page (`report.html`).
//! - [`Comparison`] is several runs side by side, as data and as a page.
//! - [`trace`] is a run for Perfetto (`trace.json`): what each device did, and when.
//! - [`Simulated`] says what each policy came to on a simulated workload, as data, text and a page.
//! - [`Whatif`] says how long and how dear a workload is on pools of several sizes.
//! - [`plan_text`] is a plan of a planning problem for a terminal; [`plan_html`] is the same as a
//!   page.
//!
//! All views but the console are pure functions, without files, clock or network, so that snapshots
//! test them. Text from users and workers is escaped where it enters a view.

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
pub mod whatif;
mod whatif_text;
pub mod words;

pub use comparison::Comparison;
pub use console::{Console, Sink};
pub use expect::{Band, DEFAULT_RATIOS, MIN_ENDED, QUANTILES};
pub use explain::{Candidate, Code, Explanation, Reason, TaskMove, explain};
pub use history::{
    History, Move, Note, PastAttempt, PastEnd, PastTask, PastTrial, PoolChange, PoolEvent, replay,
    without_driver,
};
pub use html::{comparison_html, plan_html, render_html, simulated_html, whatif_html};
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
pub use whatif::Whatif;
pub use whatif_text::whatif_text;
