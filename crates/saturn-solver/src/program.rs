//! Linear and mixed-integer programs in HiGHS: the one place that calls it.

use highs::{Col, HighsModelStatus, HighsSolutionStatus, RowProblem, Sense};

use crate::error::SolveError;

/// A program to be minimised, built row by row.
#[derive(Default)]
pub(crate) struct Program {
    rows: RowProblem,
    has_integers: bool,
}

/// What HiGHS makes of a program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// Proven to have no solution.
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
}

/// How long HiGHS may work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) time_limit_s: f64,
    /// Nodes of its tree: a limit that does not depend on the machine.
    pub(crate) max_nodes: Option<i32>,
}

impl Effort {
    /// So many seconds.
    pub(crate) fn seconds(time_limit_s: f64) -> Self {
        Self { time_limit_s, max_nodes: None }
    }
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
    pub(crate) fn solve(self, effort: Effort) -> Result<Outcome, SolveError> {
        let refused = |what: &dyn std::fmt::Debug| SolveError::Highs(format!("{what:?}"));
        let mut model =
            self.rows.try_optimise(Sense::Minimise).map_err(|status| refused(&status))?;
        model.make_quiet();
        let options = [
            model.try_set_option("time_limit", effort.time_limit_s.max(0.0)),
            model.try_set_option("mip_max_nodes", effort.max_nodes.unwrap_or(i32::MAX)),
            model.try_set_option("threads", 1),
            model.try_set_option("mip_rel_gap", 1e-7),
            model.try_set_option("mip_abs_gap", 1e-9),
            model.try_set_option("primal_feasibility_tolerance", 1e-9),
            model.try_set_option("mip_feasibility_tolerance", 1e-9),
        ];
        for option in options {
            option.map_err(|error| refused(&error))?;
        }
        let solved = model.try_solve().map_err(|status| refused(&status))?;
        match solved.status() {
            HighsModelStatus::Infeasible => Ok(Outcome::Infeasible),
            HighsModelStatus::Optimal
            | HighsModelStatus::ReachedTimeLimit
            | HighsModelStatus::ReachedSolutionLimit
            | HighsModelStatus::ReachedInterrupt
            | HighsModelStatus::ObjectiveBound => {
                let is_optimal = solved.status() == HighsModelStatus::Optimal;
                let bound = if self.has_integers {
                    solved
                        .double_info_value(c"mip_dual_bound")
                        .map_err(|status| refused(&status))?
                } else if is_optimal {
                    solved.objective_value()
                } else {
                    f64::NEG_INFINITY
                };
                let has_solution = solved.primal_solution_status() == HighsSolutionStatus::Feasible;
                let solution = solved.get_solution();
                Ok(Outcome::Known {
                    is_solved: is_optimal,
                    bound,
                    columns: has_solution.then(|| solution.columns().to_vec()),
                    duals: solution.dual_rows().to_vec(),
                })
            }
            other => Err(refused(&other)),
        }
    }
}
