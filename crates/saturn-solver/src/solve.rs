//! One solve: bounds, the chosen backend, the check.

use saturn_core::{
    Node, Objective, Plan, PlanStatus, Problem, ProblemTask, Reason, SolveEnd, check,
};

use crate::auto;
use crate::baselines;
use crate::bounds::area::{AreaBound, area_bound};
use crate::bounds::config_lp;
use crate::clock::{Clock, Deadline};
use crate::error::SolveError;
use crate::general::{self, Exact};
use crate::lists::{self, Lists};
use crate::model::Model;
use crate::options::{Aim, Backend, Options};
use crate::random::Random;
use crate::schedule::{Pace, Schedule, assignments};
use crate::search::Search;
use crate::sequence::{self, Player, Sequence};
use crate::split;
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
    let mut plan = Plan::none(options.objective);
    let unplaceable = problem.unplaceable();
    if unplaceable.is_empty() {
        let model = Model::new(problem);
        if let Some(aim) = aim(problem, &model, options) {
            let bound = area_bound(&model);
            let may_switch =
                split::applies(problem, options) && !model.has_running() && !model.has_places();
            plan.lower_bound_s = if may_switch {
                config_lp::area_of_free_switches(&model, &bound.prices)
            } else {
                bound.makespan
            };
            if aim == Aim::Completion {
                let prices = &bound.prices;
                plan.completion_bound_s = general::completion_bound(problem, &model, prices);
            }
            if !deadline.is_over() {
                let solve = Solve { problem, options, aim, model: &model, bound, deadline };
                if may_switch {
                    split::solve(&solve, &mut plan)?;
                } else {
                    solve.run(&mut plan)?;
                }
            }
        } else {
            general::solve(problem, options, &model, deadline, &mut plan)?;
        }
    } else {
        let reason = |(task, reason)| Reason { task: Some(task), reason };
        plan.reasons = unplaceable.into_iter().map(reason).collect();
        plan.status = PlanStatus::Infeasible;
    }
    let is_done = matches!(plan.status, PlanStatus::Optimal | PlanStatus::Infeasible)
        || options.backend.baseline().is_some() && !deadline.is_over();
    plan.ended = if is_done {
        SolveEnd::Complete
    } else if clock.is_interrupted() {
        SolveEnd::Interrupted
    } else {
        SolveEnd::Limit
    };
    plan.solve_s = clock.elapsed_s();
    check(problem, &plan).map_err(SolveError::Wrong)?;
    Ok(plan)
}

/// What the searches over lists make small, where `problem` is one for them: devices, runtimes and,
/// where every gang fits into a node, running tasks are all there is to it.
fn aim(problem: &Problem, model: &Model, options: &Options) -> Option<Aim> {
    let runs_on_lists = model.is_separable() && options.backend.baseline().is_none();
    let is_plain_node =
        |node: &Node| node.available_from_s == 0.0 && node.available_until_s.is_none();
    let is_plain_task = |task: &ProblemTask| {
        let ProblemTask { release_s, after, deadline_s, only_nodes, not_nodes, running, .. } = task;
        let is_free = only_nodes.is_none() && not_nodes.is_empty() && running.is_none();
        let may_go_on_lists = is_free || runs_on_lists;
        may_go_on_lists && *release_s == 0.0 && after.is_empty() && deadline_s.is_none()
    };
    let is_plain = problem.deadline_s.is_none()
        && problem.cluster.nodes.iter().all(is_plain_node)
        && problem.tasks.iter().all(is_plain_task);
    match options.objective {
        Objective::Makespan if is_plain => Some(Aim::Makespan),
        Objective::Completion
            if is_plain
                && problem.tasks.iter().all(|task| task.weight.to_bits() == 1.0f64.to_bits()) =>
        {
            Some(Aim::Completion)
        }
        _ => None,
    }
}

/// One solve of a plain problem at work.
pub(crate) struct Solve<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) options: &'a Options,
    pub(crate) aim: Aim,
    pub(crate) model: &'a Model,
    pub(crate) bound: AreaBound,
    pub(crate) deadline: Deadline<'a>,
}

impl Solve<'_> {
    fn run(&self, plan: &mut Plan) -> Result<(), SolveError> {
        if let Some((which, pace)) = self.options.backend.baseline() {
            let sequence = baselines::baseline(self.model, which, self.options.seed);
            self.adopt(plan, &self.scheduled(&sequence), pace);
            return Ok(());
        }
        match self.options.backend {
            Backend::Milp => self.milp(plan),
            Backend::Search => {
                let schedule = self.search(self.deadline, self.bound.makespan);
                self.adopt(plan, &schedule, Pace::Packed);
                Ok(())
            }
            _ => auto::solve(self, plan),
        }
    }

    fn scheduled(&self, sequence: &Sequence) -> Schedule {
        Player::new(self.model, self.aim, &self.bound.prices).schedule(sequence)
    }

    /// The exact program, from a heuristic plan.
    fn milp(&self, plan: &mut Plan) -> Result<(), SolveError> {
        let first = self.deadline.within(self.deadline.left_s() * 0.05);
        let schedule = self.search(first, self.bound.makespan);
        self.adopt(plan, &schedule, Pace::Packed);
        if plan.status == PlanStatus::Optimal {
            return Ok(());
        }
        let exact = Exact {
            problem: self.problem,
            model: self.model,
            objective: self.options.objective,
            deadline: self.deadline,
            max_nodes: None,
        };
        general::solve_exactly(&exact, plan)
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
        let Options { max_moves, seed, .. } = *self.options;
        let search = Search {
            model: self.model,
            objective: self.aim,
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
        let Options { max_moves, seed, threads, .. } = *self.options;
        let objective = self.aim;
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
        let assignments = assignments(self.problem, self.model, schedule, pace);
        let found = Plan::of(self.problem, self.options.objective, assignments);
        if plan.assignments.is_empty() || found.value() < plan.value() {
            plan.set_assignments(self.problem, found.assignments);
        }
        grade(plan);
    }
}

/// Sets the status of a plan that exists, and keeps its bounds below what it is worth.
pub(crate) fn grade(plan: &mut Plan) {
    plan.lower_bound_s = plan.lower_bound_s.min(plan.makespan_s);
    plan.completion_bound_s = plan.completion_bound_s.min(plan.completion_s);
    plan.cost_bound = plan.cost_bound.min(plan.cost);
    let is_proven = plan.gap() <= OPTIMAL_GAP;
    plan.status = if is_proven { PlanStatus::Optimal } else { PlanStatus::Feasible };
}
