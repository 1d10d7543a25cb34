//! Solves, on a clock: the solver itself never reads one.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use saturn_core::{Problem, ProblemError};
use saturn_engine::{SolveAnswer, SolveOrder};
use saturn_solver::{Backend, Clock, Objective, Options, SolveError, solve};

use crate::clock;
use crate::error::with_causes;

/// A clock that starts with a solve, and the caller's wish to stop it.
pub struct Stopwatch<'a> {
    started: Instant,
    is_interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Stopwatch<'a> {
    /// Starts now.
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
    /// Whether what the user gave is wrong, rather than Saturn.
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
    /// What was solved.
    pub problem: Problem,
    /// The answer; whether there is a plan is in its status.
    pub plan: saturn_core::Plan,
    /// Makespan of current practice on the same problem, seconds, where it has one.
    pub current_practice_s: Option<f64>,
}

/// Solves the planning problem in a file's text.
pub fn solve_file(text: &str, options: &Options, clock: &dyn Clock) -> Result<Solved, PlanError> {
    let problem = Problem::from_json(text)?;
    let plan = solve(&problem, options, clock)?;
    // It tries to end early: what it would take is nothing to hold another objective against.
    let is_makespan = options.objective == Objective::Makespan;
    let current_practice_s = is_makespan.then(|| current_practice_s(&problem, clock)).flatten();
    Ok(Solved { problem, plan, current_practice_s })
}

/// A solve of what is left of a run, in a thread of its own. Dropping it stops and joins the thread.
#[derive(Debug)]
pub(crate) struct SolverThread {
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SolverThread {
    /// Starts solving; the answer goes to `done`.
    pub(crate) fn start(
        order: SolveOrder,
        done: impl FnOnce(Result<SolveAnswer, String>) + Send + 'static,
    ) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_stopped);
        let thread = std::thread::spawn(move || {
            let SolveOrder { problem, .. } = &order;
            let options = Options {
                objective: order.objective,
                time_limit_s: order.time_limit_s,
                seed: order.seed,
                max_switches: order.max_switches,
                min_switch_gain: order.min_switch_gain,
                warm_start: order.warm_start.clone(),
                ..Options::default()
            };
            let beside = (order.optimistic.as_ref(), order.expected.as_ref());
            let solve = AssertUnwindSafe(|| solve_run(problem, beside, &options, &flag));
            // The run must hear of a fault in the solver, or it would wait for its plan for ever.
            let answer = catch_unwind(solve)
                .unwrap_or_else(|_| Err("the solver panicked, which is a fault in Saturn".into()));
            done(answer);
        });
        Self { is_stopped, thread: Some(thread) }
    }
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
    // Its candidates are the problem's and more.
    let current_practice_s = expected.map_or(measured_s, practice);
    let practice_is_estimate = current_practice_s
        .is_some_and(|practice_s| measured_s.is_none_or(|measured_s| practice_s < measured_s));
    // Its candidates are the problem's and more, so the plan is one of it too.
    let optimistic = optimistic.filter(|_| plan.is_usable()).and_then(|optimistic| {
        let clock = Stopwatch::start(&is_interrupted);
        let options = Options { warm_start: Some(plan.clone()), ..options.clone() };
        // Without it no trial is chosen, and that is all.
        solve(optimistic, &options, &clock).ok()
    });
    Ok(SolveAnswer { plan, current_practice_s, practice_is_estimate, optimistic })
}

/// What all devices for one task at a time, each under its best technique, would take.
fn current_practice_s(problem: &Problem, clock: &dyn Clock) -> Option<f64> {
    let options = Options {
        backend: Backend::CurrentPractice,
        // A construction without search: the limit only has to lie ahead.
        time_limit_s: clock.elapsed_s() + 60.0,
        ..Options::default()
    };
    let plan = solve(problem, &options, clock).ok()?;
    plan.is_usable().then_some(plan.makespan_s)
}
