//! Solves on a real clock, since the solver itself never reads one.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use saturn_core::{Problem, ProblemError};
use saturn_engine::{SolveAnswer, SolveOrder};
use saturn_solver::{Backend, Clock, Objective, Options, SolveError, solve};
use saturn_store::with_causes;

use crate::system::clock;

/// The time that the optimistic plan may take, seconds, where the plan itself took less.
const CHOICE_S: f64 = 0.1;

/// A clock that starts with a solve, and whether the caller wants to stop it.
pub struct Stopwatch<'a> {
    started: Instant,
    is_interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Stopwatch<'a> {
    /// Starts the clock.
    pub fn start(is_interrupted: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { started: clock::now(), is_interrupted }
    }
}

impl fmt::Debug for Stopwatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopwatch").field("started", &self.started).finish_non_exhaustive()
    }
}

impl Clock for Stopwatch<'_> {
    fn elapsed_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn is_interrupted(&self) -> bool {
        (self.is_interrupted)()
    }
}

/// Why a planning file gave no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file is wrong.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The solve failed.
    #[error(transparent)]
    Solve(#[from] SolveError),
}

impl PlanError {
    /// Whether the user's input is wrong, rather than Saturn.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Problem(_) => true,
            Self::Solve(error) => {
                matches!(error, SolveError::Problem(_) | SolveError::Option { .. })
            }
        }
    }
}

/// A planning problem and its plan.
#[derive(Debug)]
pub struct Solved {
    /// The problem that was solved.
    pub problem: Problem,
    /// The answer; its status says whether there is a plan.
    pub plan: saturn_core::Plan,
    /// The makespan of current practice on the same problem, seconds; `None` if current practice
    /// has no plan or the objective is another.
    pub current_practice_s: Option<f64>,
}

/// Solves the planning problem in a file's text.
pub fn solve_file(text: &str, options: &Options, clock: &dyn Clock) -> Result<Solved, PlanError> {
    let problem = Problem::from_json(text)?;
    let plan = solve(&problem, options, clock)?;
    // Current practice aims at an early end, so a comparison makes sense for the makespan only.
    let is_makespan = options.objective == Objective::Makespan;
    let current_practice_s = is_makespan.then(|| current_practice_s(&problem, clock)).flatten();
    Ok(Solved { problem, plan, current_practice_s })
}

/// A solve of a run's remaining problem, in a thread of its own. Dropping it stops the solver and
/// joins the thread.
#[derive(Debug)]
pub(crate) struct SolverThread {
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SolverThread {
    /// Starts solving. The answer goes to `done`.
    pub(crate) fn start(
        order: SolveOrder,
        done: impl FnOnce(Result<SolveAnswer, String>) + Send + 'static,
    ) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_stopped);
        let order = order.in_microseconds();
        let thread = std::thread::spawn(move || done(answered(&order, &flag)));
        Self { is_stopped, thread: Some(thread) }
    }
}

/// Solves in this thread.
pub(crate) fn solve_once(order: SolveOrder) -> Result<SolveAnswer, String> {
    answered(&order.in_microseconds(), &AtomicBool::new(false))
}

fn answered(order: &SolveOrder, is_stopped: &AtomicBool) -> Result<SolveAnswer, String> {
    let SolveOrder { problem, .. } = order;
    let options = Options {
        objective: order.objective,
        time_limit_s: order.time_limit_s,
        seed: order.seed,
        max_switches: order.max_switches,
        min_switch_gain: order.min_switch_gain,
        min_move_gain: order.min_move_gain,
        min_move_gain_s: order.min_move_gain_s,
        warm_start: order.warm_start.clone(),
        ..Options::default()
    };
    let beside = (order.optimistic.as_ref(), order.expected.as_ref());
    let solve = AssertUnwindSafe(|| solve_run(problem, beside, &options, is_stopped));
    // A panic of the solver must reach the run as an answer, or the run would wait for its plan
    // forever.
    catch_unwind(solve)
        .unwrap_or_else(|_| Err("the solver panicked, which is a fault in Saturn".into()))
}

impl Drop for SolverThread {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn solve_run(
    problem: &Problem,
    (optimistic, expected): (Option<&Problem>, Option<&Problem>),
    options: &Options,
    is_stopped: &AtomicBool,
) -> Result<SolveAnswer, String> {
    let is_interrupted = || is_stopped.load(Ordering::Relaxed);
    let clock = Stopwatch::start(&is_interrupted);
    let plan = solve(problem, options, &clock).map_err(|error| with_causes(&error))?;
    let is_makespan = options.objective == Objective::Makespan;
    let practice = |problem| is_makespan.then(|| current_practice_s(problem, &clock)).flatten();
    let measured_s = practice(problem);
    // `expected` has all candidates of `problem` and more.
    let current_practice_s = expected.map_or(measured_s, practice);
    let practice_is_estimate = current_practice_s
        .is_some_and(|practice_s| measured_s.is_none_or(|measured_s| practice_s < measured_s));
    // `optimistic` has all candidates of `problem` and more, so the plan is valid for it too.
    let optimistic = optimistic.filter(|_| plan.is_usable()).and_then(|optimistic| {
        let time_limit_s = choice_limit_s(options.time_limit_s, clock.elapsed_s());
        let clock = Stopwatch::start(&is_interrupted);
        let options = Options { time_limit_s, warm_start: Some(plan.clone()), ..options.clone() };
        // If this solve fails, no trial is chosen, which does no other harm.
        solve(optimistic, &options, &clock).ok()
    });
    Ok(SolveAnswer { plan, current_practice_s, practice_is_estimate, optimistic })
}

/// The time limit of the optimistic plan, seconds, where the plan itself took `plan_s` of its own
/// limit. The plan waits for the optimistic plan, and devices may wait for the plan. So a problem
/// that was solved at once does not take its whole limit here: the optimistic plan only says which
/// trials may pay.
fn choice_limit_s(time_limit_s: f64, plan_s: f64) -> f64 {
    time_limit_s.min(plan_s.max(CHOICE_S))
}

/// The makespan of current practice, seconds: one task at a time on all devices, each under its
/// best technique.
fn current_practice_s(problem: &Problem, clock: &dyn Clock) -> Option<f64> {
    let options = Options {
        backend: Backend::CurrentPractice,
        // Current practice is constructed without search, so the limit only has to lie in the
        // future.
        time_limit_s: clock.elapsed_s() + 60.0,
        ..Options::default()
    };
    let plan = solve(problem, &options, clock).ok()?;
    plan.is_usable().then_some(plan.makespan_s)
}

#[cfg(test)]
mod tests {
    use crate::system::solve::{CHOICE_S, choice_limit_s};

    #[test]
    #[expect(clippy::float_cmp, reason = "a limit is one of the numbers given, not a sum")]
    fn the_optimistic_plan_takes_no_longer_than_the_plan_or_a_moment() {
        assert_eq!(choice_limit_s(2.0, 0.001), CHOICE_S, "a plan that was proven at once");
        assert_eq!(choice_limit_s(2.0, 0.7), 0.7);
        assert_eq!(choice_limit_s(2.0, 2.1), 2.0, "no longer than the user allows");
        assert_eq!(choice_limit_s(0.05, 0.001), 0.05);
    }
}
