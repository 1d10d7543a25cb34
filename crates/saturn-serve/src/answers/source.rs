//! The interface to whatever knows the runs.

use std::sync::Arc;

use saturn_engine::Command;
use saturn_view::{Explanation, PlanInForce, RunPage, Status, TaskPage};

use crate::answers::data::{Events, LogPart, LogQuery, RunMetrics, RunSummary, Seen};
use crate::answers::failure::Failure;

/// Answers questions about runs, and hands commands to them. Runs and tasks go by name.
///
/// Calls may block for a while: they are made on threads that may. Several may be made at once.
pub trait Source: Send + Sync + 'static {
    /// All runs, in the order in which a person wants to see them.
    fn runs(&self) -> Result<Vec<RunSummary>, Failure>;

    /// Where a run and all of its tasks stand.
    fn status(&self, run: &str) -> Result<Seen<Arc<Status>>, Failure>;

    /// Why a task, or the run as a whole, is where it is.
    fn explain(&self, run: &str, task: Option<&str>) -> Result<Seen<Explanation>, Failure>;

    /// The plan in force; `None` if no plan has been made.
    fn plan(&self, run: &str) -> Result<Seen<Option<PlanInForce>>, Failure>;

    /// A part of what a task's workers printed.
    fn log(&self, run: &str, task: &str, query: &LogQuery) -> Result<LogPart, Failure>;

    /// At most `most` events that follow event number `after`.
    fn events(&self, run: &str, after: u64, most: usize) -> Result<Events, Failure>;

    /// What the page of a run shows.
    fn run_page(&self, run: &str) -> Result<RunPage, Failure>;

    /// What the page of a task shows.
    fn task_page(&self, run: &str, task: &str) -> Result<TaskPage, Failure>;

    /// The numbers of all runs that go on, or did so a moment ago.
    fn metrics(&self) -> Result<Vec<RunMetrics>, Failure>;

    /// Carries out a command. Returns once the run's journal has it.
    fn command(&self, run: &str, command: Command) -> Result<(), Failure>;
}
