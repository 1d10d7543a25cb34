//! One solve: bounds, the chosen backend, the check.

use saturn_core::{Assignment, Plan, PlanStatus, Problem, check};

use crate::baselines::{self, Baseline};
use crate::bounds::area::{AreaBound, area_bound};
use crate::bounds::dual_feasible;
use crate::clock::{Clock, Deadline};
use crate::error::SolveError;
use crate::lists::{self, Lists};
use crate::milp;
use crate::model::Model;
use crate::options::{Backend, Objective, Options};
use crate::random::Random;
use crate::schedule::{Pace, Schedule, assignments};
use crate::search::Search;
use crate::sequence::{self, Player, Sequence};

/// A gap that counts as proven.
const OPTIMAL_GAP: f64 = 1e-6;
/// The share of the time limit for lower bounds beyond the area bound.
const BOUND_SHARE: f64 = 0.3;
/// Up to this many tasks `auto` looks for proofs by linear programs.
const PROOF_TASKS: usize = 120;

/// Plans `problem`: the best plan found within the limits of `options`, with what is proven of it.
///
/// A problem without a plan, and a limit reached before any plan was found, are answers, not errors:
/// see `PlanStatus`. Every plan has passed `saturn_core::check`.
pub fn solve(problem: &Problem, options: &Options, clock: &dyn Clock) -> Result<Plan, SolveError> {
    problem.validate()?;
    options.validate()?;
    let deadline = Deadline::new(clock, options.time_limit_s);
    let mut plan = Plan {
        status: PlanStatus::Infeasible,
        makespan_s: 0.0,
        lower_bound_s: 0.0,
        solve_s: 0.0,
        assignments: Vec::new(),
    };
    if problem.unplaceable().is_empty() {
        let model = Model::new(problem);
        let bound = area_bound(&model);
        plan.lower_bound_s = bound.makespan;
        plan.status = PlanStatus::TimedOut;
        if !deadline.is_over() {
            let solve = Solve { problem, options, model: &model, bound, deadline };
            solve.run(&mut plan)?;
        }
    }
    plan.solve_s = clock.elapsed_s();
    check(problem, &plan).map_err(SolveError::Wrong)?;
    Ok(plan)
}

struct Solve<'a> {
    problem: &'a Problem,
    options: &'a Options,
    model: &'a Model,
    bound: AreaBound,
    deadline: Deadline<'a>,
}

impl Solve<'_> {
    fn run(&self, plan: &mut Plan) -> Result<(), SolveError> {
        match self.options.backend {
            Backend::Auto => self.auto(plan),
            Backend::Search => {
                let schedule = self.search(self.deadline, self.bound.makespan);
                self.adopt(plan, &schedule, Pace::Packed);
                Ok(())
            }
            Backend::Milp => self.milp(plan),
            Backend::CurrentPractice => {
                self.baseline(plan, Baseline::CurrentPractice, Pace::OneAtATime);
                Ok(())
            }
            Backend::Optimus => {
                self.baseline(plan, Baseline::Optimus, Pace::Packed);
                Ok(())
            }
            Backend::Max => {
                self.baseline(plan, Baseline::Max, Pace::Packed);
                Ok(())
            }
            Backend::Min => {
                self.baseline(plan, Baseline::Min, Pace::Packed);
                Ok(())
            }
            Backend::Random => {
                self.baseline(plan, Baseline::Random, Pace::Packed);
                Ok(())
            }
        }
    }

    fn baseline(&self, plan: &mut Plan, which: Baseline, pace: Pace) {
        let sequence = baselines::baseline(self.model, which, self.options.seed);
        self.adopt(plan, &self.scheduled(&sequence), pace);
    }

    fn scheduled(&self, sequence: &Sequence) -> Schedule {
        Player::new(self.model, self.options.objective, &self.bound.prices).schedule(sequence)
    }

    /// Search, with a share of the time for bounds where they are within reach.
    fn auto(&self, plan: &mut Plan) -> Result<(), SolveError> {
        let seeks_proof = self.options.objective == Objective::Makespan
            && self.model.tasks.len() <= PROOF_TASKS
            && self.options.max_moves.is_none();
        if !seeks_proof {
            let schedule = self.search(self.deadline, self.bound.makespan);
            self.adopt(plan, &schedule, Pace::Packed);
            return Ok(());
        }
        let first = self.deadline.within(self.deadline.left_s() * 0.1);
        let schedule = self.search(first, self.bound.makespan);
        self.adopt(plan, &schedule, Pace::Packed);
        if plan.status != PlanStatus::Optimal {
            let bounding = self.deadline.within(self.deadline.left_s() * BOUND_SHARE);
            plan.lower_bound_s =
                dual_feasible::raise(self.model, plan.lower_bound_s, plan.makespan_s, bounding)?;
            grade(plan, self.options.objective);
        }
        if plan.status != PlanStatus::Optimal {
            let schedule = self.search(self.deadline, plan.lower_bound_s);
            self.adopt(plan, &schedule, Pace::Packed);
        }
        Ok(())
    }

    /// The exact program, from a heuristic plan.
    fn milp(&self, plan: &mut Plan) -> Result<(), SolveError> {
        let first = self.deadline.within(self.deadline.left_s() * 0.05);
        let schedule = self.search(first, self.bound.makespan);
        self.adopt(plan, &schedule, Pace::Packed);
        if plan.status == PlanStatus::Optimal {
            return Ok(());
        }
        let horizon = self.horizon(plan);
        let left_s = self.deadline.left_s();
        let objective = self.options.objective;
        let found = milp::solve(self.model, objective, self.bound.makespan, horizon, left_s)?;
        if objective == Objective::Makespan {
            plan.lower_bound_s = plan.lower_bound_s.max(found.bound.min(plan.makespan_s));
        }
        if let Some(schedule) = found.schedule {
            self.adopt(plan, &schedule, Pace::Packed);
        }
        grade(plan, objective);
        Ok(())
    }

    /// A time by which some optimal plan ends, seconds.
    fn horizon(&self, plan: &Plan) -> f64 {
        let latest = match self.options.objective {
            Objective::Makespan => plan.makespan_s,
            Objective::Completion => {
                // Each other task ends no earlier than its shortest runtime.
                let shortest = self.model.tasks.iter().map(crate::model::Task::shortest);
                let (sum, longest) = shortest
                    .fold((0.0, 0.0f64), |(sum, longest), one| (sum + one, longest.max(one)));
                sum_of_ends(&plan.assignments) - sum + longest
            }
        };
        latest * (1.0 + 1e-9)
    }

    /// The anytime search: over lists, then over sequences where wide gangs may help.
    fn search(&self, deadline: Deadline, low: f64) -> Schedule {
        let bound = AreaBound { makespan: low, prices: self.bound.prices.clone() };
        let Options { objective, max_moves, seed, threads, .. } = *self.options;
        if self.model.is_separable() {
            let search = Search {
                model: self.model,
                objective,
                bound: &bound,
                deadline,
                max_moves,
                seed,
                threads,
            };
            let best = search.run(self.warm_lists(self.model));
            return lists::schedule(self.model, &best.lists);
        }
        let mut player = Player::new(self.model, objective, &bound.prices);
        let mut best: Option<(f64, Sequence)> = None;
        let half = deadline.within(deadline.left_s() * 0.5);
        let targets = [1.02, 1.1, 1.3];
        for (round, target) in targets.iter().enumerate() {
            let wide = sequence::wide_first(self.model, low * target);
            let rest = sequence::rest_after(self.model, &wide);
            let share = half.within(half.left_s() / (targets.len() - round) as f64);
            let search = Search {
                model: &rest,
                objective,
                bound: &bound,
                deadline: share,
                max_moves: max_moves.map(|moves| moves / 6),
                seed,
                threads,
            };
            let lists = search.run(None).lists;
            let candidate = sequence::with_lists(&wide, &lists);
            let value = player.value(&candidate);
            if best.as_ref().is_none_or(|(least, _)| value < *least) {
                best = Some((value, candidate));
            }
        }
        let start = best.map(|(_, sequence)| sequence).unwrap_or_default();
        let (_, sequence) = sequence::anneal(
            self.model,
            objective,
            &bound,
            start,
            deadline,
            max_moves.map(|moves| moves / 2),
            &mut Random::new(seed, 0),
        );
        player.schedule(&sequence)
    }

    /// The warm start as lists, as far as it fits the problem.
    fn warm_lists(&self, model: &Model) -> Option<Lists> {
        let warm = self.options.warm_start.as_ref()?;
        crate::warm::lists(self.problem, model, warm)
    }

    /// Takes a schedule into the plan if it is better than what is there.
    fn adopt(&self, plan: &mut Plan, schedule: &Schedule, pace: Pace) {
        let assignments = assignments(self.problem, schedule, pace);
        let value = |assignments: &[Assignment]| match self.options.objective {
            Objective::Makespan => latest_end(assignments),
            Objective::Completion => sum_of_ends(assignments),
        };
        if plan.assignments.is_empty() || value(&assignments) < value(&plan.assignments) {
            plan.makespan_s = latest_end(&assignments);
            plan.assignments = assignments;
        }
        grade(plan, self.options.objective);
    }
}

/// Sets the status of a plan that exists.
fn grade(plan: &mut Plan, objective: Objective) {
    plan.lower_bound_s = plan.lower_bound_s.min(plan.makespan_s);
    let is_optimal = objective == Objective::Makespan && plan.gap() <= OPTIMAL_GAP;
    plan.status = if is_optimal { PlanStatus::Optimal } else { PlanStatus::Feasible };
}

fn latest_end(assignments: &[Assignment]) -> f64 {
    assignments.iter().map(|assignment| assignment.end_s).fold(0.0, f64::max)
}

fn sum_of_ends(assignments: &[Assignment]) -> f64 {
    assignments.iter().map(|assignment| assignment.end_s).sum()
}
