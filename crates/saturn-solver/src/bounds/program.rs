//! Linear and mixed-integer programs in HiGHS: the only place that calls it.
//!
//! HiGHS can't be interrupted, doesn't always keep its time limit, and now and then ends with an
//! error. None of that may cost a plan. So each program is solved on a thread of its own. If the
//! deadline comes first, the thread is left behind and ends by its own limit. Any result that
//! is no answer is [`Outcome::Unknown`]. HiGHS has also called programs infeasible that are not
//! (HiGHS#2033). So "infeasible" is believed only after another solve with other tolerances and
//! without presolve. If the answers differ, presolve was wrong, and the program is solved without
//! it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use highs::{Col, HighsModelStatus, HighsSolutionStatus, HighsStatus, RowProblem, Sense};

use crate::course::clock::Deadline;

/// The share of the remaining time that is HiGHS's limit; it may work beyond its limit.
const SHARE: f64 = 0.97;
/// HiGHS's limit where the solve's limit is a number of moves, and the program's a number of nodes or
/// iterations. The solve's clock may stand still. A program that ended by real seconds would have an
/// answer on a quick machine alone. This limit only ends what would go on for ever.
const COUNTED_S: f64 = 600.0;
/// Nodes of the tree, in limits on them, for the check whether a program is infeasible.
const RELAXED_NODES: i32 = 10;
/// The longest time between two looks at the clock.
const LOOK: Duration = Duration::from_millis(4);
/// The shortest time between two looks at the clock.
const SHORTEST_LOOK: Duration = Duration::from_micros(200);
/// An answer may come late by this share of the time until the deadline.
const LATE: f64 = 0.02;
/// The longest time by which an answer may come late.
const MOST_LATE: Duration = Duration::from_millis(16);

/// A program to be minimised, built row by row.
#[derive(Default)]
pub(crate) struct Program {
    rows: RowProblem,
    has_integers: bool,
}

/// The outcome of a program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// There is no solution; HiGHS has found so twice.
    Infeasible,
    /// Stopped, or solved, with what is known.
    Known {
        /// Whether it was solved.
        is_solved: bool,
        /// No solution has a smaller objective than this.
        bound: f64,
        /// Values of the columns in order, if a solution was found.
        columns: Option<Vec<f64>>,
        /// Multipliers of the rows; for linear programs only.
        duals: Vec<f64>,
    },
    /// No answer: out of time or of iterations, or HiGHS failed.
    Unknown,
}

/// How long HiGHS may work.
#[derive(Clone, Copy)]
pub(crate) struct Effort<'a> {
    pub(crate) deadline: Deadline<'a>,
    /// Nodes of its tree: a limit that does not depend on the machine.
    pub(crate) max_nodes: Option<i32>,
    /// Iterations of the simplex method, of a linear program: such a limit too.
    pub(crate) max_iterations: Option<i32>,
}

impl<'a> Effort<'a> {
    /// An effort that only the deadline limits.
    pub(crate) fn until(deadline: Deadline<'a>) -> Self {
        Self { deadline, max_nodes: None, max_iterations: None }
    }
}

/// The tolerances of HiGHS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Care {
    /// As exact as it can be.
    Tight,
    /// As exact, without presolve.
    Unreduced,
    /// With its own tolerances and without presolve. Then a program that is infeasible by rounding
    /// alone is feasible.
    Relaxed,
}

impl Program {
    pub(crate) fn continuous(&mut self, cost: f64, low: f64, high: f64) -> Col {
        self.rows.add_column(cost, low..=high)
    }

    pub(crate) fn binary(&mut self, cost: f64) -> Col {
        self.integer(cost, 1.0)
    }

    pub(crate) fn integer(&mut self, cost: f64, high: f64) -> Col {
        self.has_integers = true;
        self.rows.add_integer_column(cost, 0.0..=high)
    }

    pub(crate) fn at_most(&mut self, high: f64, terms: &[(Col, f64)]) {
        self.rows.add_row(..=high, terms);
    }

    pub(crate) fn at_least(&mut self, low: f64, terms: &[(Col, f64)]) {
        self.rows.add_row(low.., terms);
    }

    pub(crate) fn equal(&mut self, value: f64, terms: &[(Col, f64)]) {
        self.rows.add_row(value..=value, terms);
    }

    /// Minimises on one thread within the effort.
    pub(crate) fn solve(self, effort: Effort) -> Outcome {
        let solved = |care| attempt(self.rows.clone(), self.has_integers, care, effort);
        match solved(Care::Tight) {
            Outcome::Infeasible => {}
            outcome => return outcome,
        }
        if solved(Care::Relaxed) == Outcome::Infeasible {
            return Outcome::Infeasible;
        }
        match solved(Care::Unreduced) {
            // It is not known which of the two is right.
            Outcome::Infeasible => Outcome::Unknown,
            outcome => outcome,
        }
    }
}

/// HiGHS's own limits.
#[derive(Clone, Copy)]
struct Limits {
    time_s: f64,
    nodes: i32,
    iterations: i32,
}

/// Solves the rows on a thread of its own.
fn attempt(rows: RowProblem, has_integers: bool, care: Care, effort: Effort) -> Outcome {
    let deadline = effort.deadline;
    let is_counted = effort.max_nodes.is_some() || effort.max_iterations.is_some();
    let least_s = if deadline.is_counted() && is_counted { COUNTED_S } else { 0.0 };
    let left_s = deadline.left_s();
    let limits = Limits {
        time_s: (left_s * SHARE).max(least_s),
        nodes: effort.max_nodes.unwrap_or(i32::MAX),
        iterations: effort.max_iterations.unwrap_or(i32::MAX),
    };
    if left_s <= 0.0 {
        return Outcome::Unknown;
    }
    let (sender, receiver) = channel();
    let work = move || {
        let found = run(rows, has_integers, care, limits);
        // If the deadline came first, nobody listens any more.
        let _ = sender.send(found.unwrap_or(Outcome::Unknown));
    };
    if thread::Builder::new().name("highs".to_owned()).spawn(work).is_err() {
        return Outcome::Unknown;
    }
    let mut is_late = false;
    loop {
        // The deadline's clock may stand still, so this only guesses when to look next.
        let left = Duration::try_from_secs_f64(deadline.left_s()).unwrap_or(LOOK);
        let late = Duration::try_from_secs_f64(left_s * LATE).unwrap_or(MOST_LATE).min(MOST_LATE);
        let wait = if is_late { late } else { left.clamp(SHORTEST_LOOK, LOOK) };
        match receiver.recv_timeout(wait) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => return Outcome::Unknown,
            Err(RecvTimeoutError::Timeout) if is_late || deadline.is_interrupted() => {
                return Outcome::Unknown;
            }
            Err(RecvTimeoutError::Timeout) => is_late = deadline.is_over(),
        }
    }
}

fn run(
    rows: RowProblem,
    has_integers: bool,
    care: Care,
    limits: Limits,
) -> Result<Outcome, HighsStatus> {
    let mut model = rows.try_optimise(Sense::Minimise)?;
    model.make_quiet();
    // Other options keep HiGHS's defaults; a limit must be set.
    model.try_set_option("time_limit", limits.time_s).map_err(|_| HighsStatus::Error)?;
    let set = [
        model.try_set_option("mip_max_nodes", limits.nodes),
        model.try_set_option("simplex_iteration_limit", limits.iterations),
        model.try_set_option("threads", 1),
        model.try_set_option("mip_rel_gap", 1e-7),
        model.try_set_option("mip_abs_gap", 1e-9),
    ];
    set.into_iter().collect::<Result<(), _>>().map_err(|_| HighsStatus::Error)?;
    let mut set = vec![];
    if care != Care::Tight {
        set.push(model.try_set_option("presolve", "off"));
    }
    if care == Care::Relaxed {
        let nodes = limits.nodes.saturating_mul(RELAXED_NODES);
        set.push(model.try_set_option("mip_max_nodes", nodes));
    } else {
        set.push(model.try_set_option("primal_feasibility_tolerance", 1e-9));
        set.push(model.try_set_option("mip_feasibility_tolerance", 1e-9));
    }
    set.into_iter().collect::<Result<(), _>>().map_err(|_| HighsStatus::Error)?;
    let solved = model.try_solve()?;
    match solved.status() {
        HighsModelStatus::Infeasible => Ok(Outcome::Infeasible),
        HighsModelStatus::Optimal
        | HighsModelStatus::ReachedTimeLimit
        | HighsModelStatus::ReachedSolutionLimit
        | HighsModelStatus::ReachedInterrupt
        | HighsModelStatus::ObjectiveBound => {
            let is_solved = solved.status() == HighsModelStatus::Optimal;
            let bound = if has_integers {
                solved.double_info_value(c"mip_dual_bound")?
            } else if is_solved {
                solved.objective_value()
            } else {
                f64::NEG_INFINITY
            };
            let has_solution = solved.primal_solution_status() == HighsSolutionStatus::Feasible;
            let solution = solved.get_solution();
            Ok(Outcome::Known {
                is_solved,
                bound,
                columns: has_solution.then(|| solution.columns().to_vec()),
                duals: solution.dual_rows().to_vec(),
            })
        }
        _ => Ok(Outcome::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::course::clock::{Clock, FrozenClock};

    /// A clock that says at once that everything is over.
    struct Over;

    impl Clock for Over {
        fn elapsed_s(&self) -> f64 {
            0.0
        }

        fn is_interrupted(&self) -> bool {
            true
        }
    }

    /// A column between 0 and 1 that is to be at least `least`.
    fn program(least: f64) -> Program {
        let mut program = Program::default();
        let column = program.binary(1.0);
        program.at_least(least, &[(column, 1.0)]);
        program
    }

    #[test]
    fn what_is_infeasible_by_less_than_a_tolerance_is_not_believed() {
        let effort = Effort::until(Deadline::new(&FrozenClock, 10.0));
        assert_eq!(program(1.5).solve(effort), Outcome::Infeasible);
        assert_ne!(program(1.0 + 1e-8).solve(effort), Outcome::Infeasible);
        assert!(matches!(program(0.5).solve(effort), Outcome::Known { is_solved: true, .. }));
    }

    #[test]
    fn a_program_that_needs_more_iterations_than_allowed_is_unknown() {
        let solved = |max_iterations| {
            let mut program = Program::default();
            let columns: Vec<_> = (1..=6)
                .map(|number| program.continuous(1.0 + f64::from(number * number % 5), 0.0, 9.0))
                .collect();
            for row in 1..=6_u32 {
                let terms: Vec<_> = (1_u32..)
                    .zip(&columns)
                    .map(|(number, column)| (*column, f64::from((row * number) % 7)))
                    .collect();
                program.at_least(20.0 + f64::from(row), &terms);
            }
            let until = Effort::until(Deadline::new(&FrozenClock, 10.0));
            program.solve(Effort { max_iterations, ..until })
        };
        for enough in [None, Some(1000)] {
            assert!(matches!(solved(enough), Outcome::Known { is_solved: true, .. }));
        }
        assert_eq!(solved(Some(1)), Outcome::Unknown);
    }

    #[test]
    fn without_time_nothing_is_known() {
        let effort = Effort::until(Deadline::new(&Over, 10.0));
        assert_eq!(program(0.5).solve(effort), Outcome::Unknown);
    }
}
