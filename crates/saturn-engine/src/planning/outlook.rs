//! The planning problem of a run that has not begun: for a plan that is only looked at.
//!
//! Unmeasured strategies have estimates, if the measurements of their group or of other groups say
//! enough. Inspections are not awaited: nothing is to be launched.

use saturn_core::Problem;

use crate::facts::ids::TaskId;
use crate::planning::deadlines::LeftOut;
use crate::planning::experiment::Luck;
use crate::planning::problem::Remaining;
use crate::state::run::State;

/// A run that has been told of its tasks and nothing else.
#[derive(Debug)]
pub struct Outlook {
    /// The tasks of which enough is known.
    pub problem: Problem,
    /// Strategies in it that are estimates.
    pub num_estimated: usize,
    /// The tasks that a plan can't contain. No strategy of such a task has been measured, or its
    /// length is not known, or it comes after such a task.
    pub unknown: Vec<TaskId>,
}

/// The planning problem of a run that has been told of its tasks.
pub fn outlook(state: &State) -> Outlook {
    let is_known = |task: &TaskId| state.task(*task).steps.is_some() && state.fits_pool(*task);
    let known: Vec<TaskId> = state.open_tasks.iter().copied().filter(is_known).collect();
    let mut remaining = Remaining::new(state, &known, &LeftOut::default(), 0.0);
    let strategies =
        |problem: &Problem| problem.tasks.iter().map(|one| one.strategies.len()).sum::<usize>();
    let num_measured = strategies(&remaining.problem);
    let estimated = remaining.with_unmeasured(state, Luck::None);
    let problem = estimated.unwrap_or_else(|| remaining.problem.clone());
    let is_planned = |task: &TaskId| remaining.tasks.iter().any(|one| one.id == *task);
    let unknown = state.open_tasks.iter().copied().filter(|task| !is_planned(task)).collect();
    Outlook { num_estimated: strategies(&problem) - num_measured, problem, unknown }
}
