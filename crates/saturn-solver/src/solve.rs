//! One solve: bounds, the chosen backend, the check.

use saturn_core::{Assignment, Plan, PlanStatus, Problem, check};

use crate::auto;
use crate::baselines::{self, Baseline};
use crate::bounds::area::{AreaBound, area_bound};
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
use crate::warm;

/// A gap that counts as proven.
const OPTIMAL_GAP: f64 = 1e-6;
/// With wide gangs about and more tasks than this, most of the time goes to lists.
const MANY_TASKS: usize = 80;

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

/// One solve at work.
pub(crate) struct Solve<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) options: &'a Options,
    pub(crate) model: &'a Model,
    pub(crate) bound: AreaBound,
    pub(crate) deadline: Deadline<'a>,
}

impl Solve<'_> {
    fn run(&self, plan: &mut Plan) -> Result<(), SolveError> {
        match self.options.backend {
            Backend::Auto => auto::solve(self, plan),
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
    pub(crate) fn search(&self, deadline: Deadline, low: f64) -> Schedule {
        let warm = self.options.warm_start.as_ref();
        let warm = warm.and_then(|plan| warm::lists(self.problem, self.model, plan));
        self.search_from(deadline, low, warm)
    }

    /// The same from given lists.
    pub(crate) fn search_from(
        &self,
        deadline: Deadline,
        low: f64,
        warm: Option<Lists>,
    ) -> Schedule {
        if !self.model.is_separable() {
            return self.search_sequences(deadline, low);
        }
        let best = self.search_lists(deadline, low, self.options.threads, 0.0, warm);
        lists::schedule(self.model, &best)
    }

    /// The search over lists, on so many threads, until a plan is better than `enough`.
    pub(crate) fn search_lists(
        &self,
        deadline: Deadline,
        low: f64,
        threads: usize,
        enough: f64,
        warm: Option<Lists>,
    ) -> Lists {
        let bound = AreaBound { makespan: low, prices: self.bound.prices.clone() };
        let Options { objective, max_moves, seed, .. } = *self.options;
        let search = Search {
            model: self.model,
            objective,
            bound: &bound,
            deadline,
            max_moves,
            seed,
            threads,
            enough,
        };
        search.run(warm).lists
    }

    /// For problems with wide gangs: those first, lists for the rest, then one sequence of all.
    fn search_sequences(&self, deadline: Deadline, low: f64) -> Schedule {
        let bound = AreaBound { makespan: low, prices: self.bound.prices.clone() };
        let Options { objective, max_moves, seed, threads, .. } = *self.options;
        let mut player = Player::new(self.model, objective, &bound.prices);
        let mut best: Option<(f64, Sequence)> = None;
        // Playing a sequence takes time in proportion to the tasks: many are better off as lists.
        let share = if self.model.tasks.len() > MANY_TASKS { 0.9 } else { 0.5 };
        let for_lists = deadline.within(deadline.left_s() * share);
        let mut sets: Vec<Sequence> = Vec::new();
        for target in [1.02, 1.1, 1.3] {
            let wide = sequence::wide_first(self.model, low * target);
            if !sets.contains(&wide) {
                sets.push(wide);
            }
        }
        for (round, wide) in sets.iter().enumerate() {
            let rest = sequence::rest_after(self.model, wide);
            let num_left = sets.len() - round;
            let search = Search {
                model: &rest,
                objective,
                bound: &bound,
                deadline: for_lists.within(for_lists.left_s() / num_left as f64),
                max_moves: max_moves.map(|moves| moves / 2 / sets.len() as u64),
                seed,
                threads,
                enough: 0.0,
            };
            let candidate = sequence::with_lists(wide, &search.run(None).lists);
            let value = player.value(&candidate);
            if best.as_ref().is_none_or(|(least, _)| value < *least) {
                best = Some((value, candidate));
            }
        }
        let start = best.map(|(_, sequence)| sequence).unwrap_or_default();
        let moves = max_moves.map(|moves| moves / 2);
        let mut random = Random::new(seed, 0);
        let (_, sequence) =
            sequence::anneal(self.model, objective, &bound, start, deadline, moves, &mut random);
        player.schedule(&sequence)
    }

    /// Takes a schedule into the plan if it is better than what is there.
    pub(crate) fn adopt(&self, plan: &mut Plan, schedule: &Schedule, pace: Pace) {
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
pub(crate) fn grade(plan: &mut Plan, objective: Objective) {
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
