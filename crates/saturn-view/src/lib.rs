//! The views of a run for people, made from the engine's state and the run's [`History`].
//!
//! - [`History`] keeps what the state forgets, folded from the same records.
//! - [`Console`] shows a run while it goes on: on a terminal or as plain lines.
//! - [`status`] says where a run and each of its tasks stand, as data; [`status_text`] says it as
//!   text.
//! - [`Preview`] says when submitted tasks would end, and whom they would delay.
//! - [`explain`] says why a task, or the run, is where it is.
//! - [`Report`] is a run as data (`report.json`) and as a page (`report.html`).
//! - [`Comparison`] is several runs side by side, as data and as a page.
//! - [`trace`] is a run for Perfetto (`trace.json`): what each device did, and when.
//! - [`Simulated`] says what each policy came to on a simulated workload, as data, text and a page.
//! - [`ReplayedRuns`] sets recorded runs beside their replays in the simulator.
//! - [`Whatif`] says how long and how dear a workload is on pools of several sizes.
//! - [`RunPage`], [`TaskPage`] and [`runs_page`] are the pages of `saturn web`, made from a [`Board`]:
//!   a run at a moment.
//! - [`plan_text`] is a plan of a planning problem for a terminal; [`plan_html`] is the same as a
//!   page.
//!
//! All views but the console are pure functions, without files, clock or network, so that snapshots
//! test them. Text from users and workers is escaped where it enters a view.

mod board;
mod explain;
mod facts;
mod html;
mod layout;
mod phrases;
mod plans;
mod report;
mod status;
mod terminal;
mod trace;
mod transcript;

pub use board::data::{BarKind, Board, BoardBar, BoardDevice, Queued};
pub use board::plan::{PlanInForce, PlannedPlace};
pub use explain::candidates::Candidate;
pub use explain::code::Code;
pub use explain::explanation::{Explanation, explain};
pub use explain::moves::TaskMove;
pub use explain::reason::Reason;
pub use facts::counts::{TaskCounts, TrialCounts};
pub use facts::device_use::DeviceUse;
pub use facts::errors::ErrorsOn;
pub use facts::expect::{Band, DEFAULT_RUNS, DEFAULT_TRAINING, DEFAULT_WAITING, QUANTILES};
pub use facts::history::History;
pub use facts::outcome;
pub use facts::past::{
    Move, Note, PastAttempt, PastEnd, PastTask, PastTrial, PoolChange, PoolEvent,
};
pub use facts::replay::{Replay, replay, without_driver};
pub use facts::run_status::RunStatus;
pub use facts::tally::{DeviceCounts, Gauges, Tally};
pub use html::board::{NewsLine, RunPage};
pub use html::comparison::comparison_html;
pub use html::live::{LIVE_POLICY, failure_page, login_page};
pub use html::plan::plan_html;
pub use html::run::render_html;
pub use html::runs::{RunRow, runs_page};
pub use html::simulated::simulated_html;
pub use html::task::{LogTail, TaskPage};
pub use html::whatif::whatif_html;
pub use layout::paint::Paint;
pub use layout::{text, units};
pub use phrases::words;
pub use plans::table::{self as plan_table, plan_text};
pub use report::comparison::{self, Comparison};
pub use report::data::Report;
pub use report::device_time::{DeviceTimeReport, LateDeviceReport, UseReport};
pub use report::metrics::{LossPoint, TaskMetrics, read_metrics};
pub use report::replayed::{self, ReplayedRuns, replayed_text};
pub use report::simulated::{self, Simulated, simulated_text};
pub use report::whatif::{self, Whatif};
pub use report::whatif_run::{LeftOut, OfRun, left_out};
pub use report::whatif_text::whatif_text;
pub use report::whatif_types::{self, whatif_types_text};
pub use status::data::{
    DevicesOn, NodeStatus, PoolStatus, RunningTrial, SetAside, Status, TaskStatus, status,
};
pub use status::preview::{NewEnd, OtherEnd, Preview};
pub use status::text::status_text;
pub use terminal::console::{Console, Sink};
pub use terminal::live;
pub use terminal::summary::{Results, summary};
pub use trace::file::trace;
pub use transcript::writer::Transcript;
