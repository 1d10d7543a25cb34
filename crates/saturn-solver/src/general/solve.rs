//! One solve of a problem with facts: proofs that there is no plan, bounds, the backend.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use saturn_core::{Objective, Plan, PlanStatus, Problem, Reason};

use super::anneal::{Incumbent, Limits, search};
use super::bounds::{Bounds, Relaxation};
use super::guide::guide;
use super::instance::Instance;
use super::plain::{Ask, Start, starts};
use super::play::{Genome, Placed, Player};
use super::wait::shift_gangs;
use super::warm::genome;
use super::yardsticks::yardstick;
use crate::baselines::Pace;
use crate::bounds::area::AreaBound;
use crate::bounds::dual_feasible;
use crate::clock::Deadline;
use crate::completion::Guide;
use crate::milp::{self, Solution};
use crate::model::Model;
use crate::options::{Backend, Options};
use crate::program::Effort;
use crate::schedule::{Step, assignments};
use crate::solve::grade;

/// The share of the time for the first bounds, at most.
const FIRST_BOUNDS: f64 = 0.1;
/// The share of the time for the search before anything else, and that of `milp` for its start.
const FIRST_SEARCH: f64 = 0.1;
const MILP_SEARCH: f64 = 0.05;
/// The share of a search for a start without most facts.
const PLAIN_SEARCH: f64 = 0.4;
/// The same with more tasks than this, where the lists know all but the wide gangs.
const MANY_PLAIN_SEARCH: f64 = 0.9;
const MANY_TASKS: usize = 80;
/// Up to so many orders of pairs on nodes `auto` has the exact program prove.
const EXACT_REACH: usize = 450;
/// The share of what is left after the first search for lower bounds by linear programs, with no
/// fewer seconds than this and no more tasks.
const BOUNDS: f64 = 0.2;
const LEAST_FOR_BOUNDS_S: f64 = 0.2;
const BOUND_TASKS: usize = 120;
/// Nodes of the exact program's tree where moves are the limit.
const EXACT_NODES: i32 = 100;

/// Plans `problem`; every task fits the cluster by itself.
pub(crate) fn solve(
    problem: &Problem,
    options: &Options,
    model: &Model,
    prices: &[f64],
    deadline: Deadline,
    plan: &mut Plan,
) {
    let instance = Instance::new(problem, model, options.objective, prices);
    let bounding = deadline.within(deadline.left_s() * FIRST_BOUNDS);
    let relaxation = Relaxation::new(&instance, prices, bounding);
    let refutations = relaxation.refutations();
    if !refutations.is_empty() {
        let reason = |(task, reason)| Reason { task, reason };
        plan.reasons = refutations.into_iter().map(reason).collect();
        plan.status = PlanStatus::Infeasible;
        return;
    }
    let bounds = relaxation.bounds();
    plan.lower_bound_s = bounds.makespan;
    plan.completion_bound_s = bounds.completion;
    plan.cost_bound = bounds.cost;
    if deadline.is_over() {
        plan.reasons = vec![Reason { task: None, reason: "there was no time to look".to_owned() }];
        return;
    }
    let guide = (options.objective == Objective::Completion)
        .then(|| guide(relaxation.ascent(bounds.makespan), options, deadline, plan));
    let bounds = Bounds { completion: plan.completion_bound_s, ..bounds };
    let instance = &instance;
    let mut solve =
        Solve { problem, options, instance, prices, bounds, guide, deadline, missed: None };
    solve.run(plan);
    if !plan.is_usable() && plan.status != PlanStatus::Infeasible {
        plan.reasons = solve.missed.map_or_else(
            || vec![Reason { task: None, reason: "no plan was tried in time".to_owned() }],
            |(_, reasons)| reasons,
        );
    }
}

/// Whether `auto` has the exact program prove.
pub(crate) fn is_in_exact_reach(model: &Model) -> bool {
    model.tasks.len() * model.tasks.len() * model.nodes.len() <= EXACT_REACH
}

/// What the exact program is asked.
pub(crate) struct Exact<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) model: &'a Model,
    pub(crate) prices: &'a [f64],
    pub(crate) objective: Objective,
    pub(crate) deadline: Deadline<'a>,
    pub(crate) max_nodes: Option<i32>,
}

/// Improves the plan of a plain problem, and its bound, by the exact program.
pub(crate) fn solve_exactly(exact: &Exact, plan: &mut Plan) {
    let instance = Instance::new(exact.problem, exact.model, exact.objective, exact.prices);
    let found = exactly(&instance, plan, exact.deadline, exact.max_nodes);
    take_solution(exact.problem, &instance, plan, found);
}

struct Solve<'a> {
    problem: &'a Problem,
    options: &'a Options,
    instance: &'a Instance<'a>,
    /// Of GPU-seconds, by kind.
    prices: &'a [f64],
    bounds: Bounds,
    /// For weighted completion alone.
    guide: Option<Guide>,
    deadline: Deadline<'a>,
    /// The least that a plan missed its deadlines by, and by which.
    missed: Option<(f64, Vec<Reason>)>,
}

impl Solve<'_> {
    fn run(&mut self, plan: &mut Plan) {
        if let Some((which, pace)) = self.options.backend.baseline() {
            let seed = self.options.seed;
            if let Some(genome) = yardstick(self.instance, which, pace, seed, self.deadline) {
                self.adopt(plan, &genome, pace);
            }
            return;
        }
        match self.options.backend {
            Backend::Milp => {
                let first = self.deadline.within(self.deadline.left_s() * MILP_SEARCH);
                self.search(plan, first, self.options.threads, None);
                self.prove(plan, None);
            }
            Backend::Search => self.search(plan, self.deadline, self.options.threads, None),
            _ => self.auto(plan),
        }
    }

    /// Searches; where the exact program is in reach, one thread proves beside it.
    fn auto(&mut self, plan: &mut Plan) {
        let Options { threads, max_moves, .. } = *self.options;
        let num_tasks = self.instance.tasks.len();
        let is_in_reach = is_in_exact_reach(self.instance.model);
        let raises = self.options.objective == Objective::Makespan
            && !self.instance.has_times()
            && num_tasks <= BOUND_TASKS;
        if max_moves.is_some() || !is_in_reach && !raises {
            self.search(plan, self.deadline, threads, None);
            if is_in_reach {
                self.prove(plan, Some(EXACT_NODES));
            }
            return;
        }
        let first = self.deadline.within(self.deadline.left_s() * FIRST_SEARCH);
        self.search(plan, first, threads, None);
        if raises && plan.is_usable() && self.deadline.left_s() >= LEAST_FOR_BOUNDS_S {
            let bounding = self.deadline.within(self.deadline.left_s() * BOUNDS);
            let (model, low, high) = (self.instance.model, plan.lower_bound_s, plan.makespan_s);
            plan.lower_bound_s = dual_feasible::raise(model, low, high, bounding);
            self.bounds.makespan = self.bounds.makespan.max(plan.lower_bound_s);
            grade(plan);
        }
        if plan.status == PlanStatus::Optimal {
            return;
        }
        if !is_in_reach {
            let start = plan.clone();
            self.search(plan, self.deadline, threads, Some(&start));
        } else if threads == 1 {
            self.prove(plan, None);
        } else {
            self.prove_beside_search(plan);
        }
    }

    /// One thread proves by the exact program while the others search, until either is done.
    fn prove_beside_search(&mut self, plan: &mut Plan) {
        let start = plan.clone();
        let warm = Vec::from_iter(genome(self.problem, self.instance, &start));
        let threads = self.options.threads - 1;
        let is_proven = AtomicBool::new(false);
        let is_found = AtomicBool::new(false);
        let search_clock = self.deadline.stopped_by(&is_proven);
        let proof_clock = self.deadline.stopped_by(&is_found);
        let (solution, found) = thread::scope(|scope| {
            let prover = scope.spawn(|| {
                let deadline = self.deadline.on(&proof_clock);
                let solution = exactly(self.instance, &start, deadline, None);
                // Without a proof the search goes on.
                let is_solved = match &solution {
                    Solution::Infeasible => true,
                    Solution::Known { is_solved, .. } => *is_solved,
                };
                is_proven.store(is_solved, Ordering::Relaxed);
                solution
            });
            let deadline = self.deadline.on(&search_clock);
            let found = if self.is_for_lists() {
                (self.plain_starts(deadline, threads, Some(&start)), None)
            } else {
                (Vec::new(), search(self.instance, warm, self.limits(deadline, threads)))
            };
            // It ends early only with a plan that meets the bound.
            if !self.deadline.is_over() {
                is_found.store(true, Ordering::Relaxed);
            }
            match prover.join() {
                Ok(solution) => (solution, found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        for start in found.0 {
            self.adopt_placed(plan, start.placed);
        }
        if let Some(found) = found.1 {
            self.adopt(plan, &found.genome, Pace::Packed);
        }
        take_solution(self.problem, self.instance, plan, solution);
    }

    fn prove(&self, plan: &mut Plan, max_nodes: Option<i32>) {
        if plan.status == PlanStatus::Optimal {
            return;
        }
        let found = exactly(self.instance, plan, self.deadline, max_nodes);
        take_solution(self.problem, self.instance, plan, found);
    }

    fn limits<'b>(&self, deadline: Deadline<'b>, threads: usize) -> Limits<'b> {
        Limits {
            deadline,
            max_moves: self.options.max_moves,
            seed: self.options.seed,
            threads,
            bound: self.bounds.of(self.options.objective),
            low: self.bounds.makespan,
        }
    }

    /// Searches from plans of its own, from the plan at hand, and from `start`.
    fn search(
        &mut self,
        plan: &mut Plan,
        deadline: Deadline,
        threads: usize,
        start: Option<&Plan>,
    ) {
        let starts = self.plain_starts(deadline, threads, start);
        if self.is_for_lists() {
            for start in starts {
                self.adopt_placed(plan, start.placed);
            }
            return;
        }
        let mut warm: Vec<Genome> = starts.into_iter().map(|start| start.genome).collect();
        let given = [self.options.warm_start.as_ref(), start].into_iter().flatten();
        warm.extend(given.filter_map(|plan| genome(self.problem, self.instance, plan)));
        let found = search(self.instance, warm, self.limits(deadline, threads));
        if let Some(Incumbent { genome, .. }) = found {
            self.adopt(plan, &genome, Pace::Packed);
        }
    }

    /// Whether lists know all that there is to the problem under its objective.
    fn is_for_lists(&self) -> bool {
        self.guide.is_some() && !self.instance.couples_nodes()
    }

    /// Plans of the problem by lists, to be played with all facts.
    fn plain_starts(&self, deadline: Deadline, threads: usize, start: Option<&Plan>) -> Vec<Start> {
        if self.options.objective == Objective::Cost {
            return Vec::new();
        }
        let bound = AreaBound { makespan: self.bounds.makespan, prices: self.prices.to_vec() };
        let share = if self.is_for_lists() {
            1.0
        } else if self.instance.tasks.len() > MANY_TASKS && !self.instance.has_times() {
            MANY_PLAIN_SEARCH
        } else {
            PLAIN_SEARCH
        };
        let deadline = deadline.within(deadline.left_s() * share);
        let warm = start.or(self.options.warm_start.as_ref()).map(|plan| (self.problem, plan));
        let guide = self.guide.as_ref().map(|guide| (guide, self.bounds.completion));
        let ask = Ask { bound: &bound, guide, warm, options: self.options, threads, deadline };
        starts(self.instance, &ask)
    }

    /// Takes what a genome comes to into the plan if it is valid and better than what is there.
    fn adopt(&mut self, plan: &mut Plan, genome: &Genome, pace: Pace) {
        let mut player = Player::new(self.instance, pace);
        let mut placed = player.placed(genome);
        let worth = player.tally(f64::INFINITY);
        if !worth.is_valid() {
            if self.missed.as_ref().is_none_or(|(least, _)| worth.missed < *least) {
                self.missed = Some((worth.missed, self.misses(&placed)));
            }
            return;
        }
        if self.options.objective == Objective::Cost && self.options.backend.baseline().is_none() {
            shift_gangs(self.instance, &mut placed);
        }
        take(self.problem, self.instance, plan, placed);
    }

    /// The same with gangs as lists have them. They are not played anew: a plan that is worse as
    /// lists might become the better one by that, and then more time would be worse.
    fn adopt_placed(&mut self, plan: &mut Plan, placed: Vec<Placed>) {
        if keeps_times(self.instance, &placed) {
            take(self.problem, self.instance, plan, placed);
        } else {
            self.missed = Some((0.0, self.misses(&placed)));
        }
    }

    /// Which deadlines and departures gangs miss.
    fn misses(&self, placed: &[Placed]) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for one in placed {
            let (task, end) = (Some(one.task), one.end());
            let due = self.instance.tasks[one.task].due;
            if end > due {
                let reason =
                    format!("the best plan found ends it at {end} s: its deadline is {due} s");
                reasons.push(Reason { task, reason });
            }
            for (node, _) in &one.parts {
                let until = self.instance.nodes[*node].until;
                if end > until {
                    let name = &self.problem.cluster.nodes[*node].name;
                    let reason = format!(
                        "the best plan found ends it at {end} s on node `{name}`, which leaves at \
                         {until} s"
                    );
                    reasons.push(Reason { task, reason });
                }
            }
        }
        reasons
    }
}

/// What the exact program finds before the deadline.
fn exactly(
    instance: &Instance,
    plan: &Plan,
    deadline: Deadline,
    max_nodes: Option<i32>,
) -> Solution {
    milp::solve(instance, plan.bound(), horizon(instance, plan), Effort { deadline, max_nodes })
}

/// A time by which some best plan ends, seconds.
fn horizon(instance: &Instance, plan: &Plan) -> f64 {
    let any = instance.horizon();
    if !plan.is_usable() {
        return any * (1.0 + 1e-9);
    }
    let latest = match instance.objective {
        Objective::Makespan => plan.makespan_s,
        Objective::Completion => {
            // Every other task ends no earlier than it can.
            let least: f64 =
                instance.tasks.iter().map(|task| task.weight * task.earliest_end).sum();
            let last = |task: &super::instance::TaskFacts| {
                task.earliest_end + (plan.completion_s - least).max(0.0) / task.weight
            };
            instance.tasks.iter().map(last).fold(0.0, f64::max)
        }
        Objective::Cost => any,
    };
    latest.min(any) * (1.0 + 1e-9)
}

/// Takes what the exact program found into the plan.
fn take_solution(problem: &Problem, instance: &Instance, plan: &mut Plan, found: Solution) {
    match found {
        Solution::Infeasible if !plan.is_usable() => {
            let reason = "no order of the tasks keeps every deadline and window: proven by the exact \
                          program";
            plan.reasons = vec![Reason { task: None, reason: reason.to_owned() }];
            plan.status = PlanStatus::Infeasible;
        }
        // A plan is at hand: what is infeasible is only doing better, within tolerances.
        Solution::Infeasible => {}
        Solution::Known { bound, placed, .. } => {
            let known = match instance.objective {
                Objective::Makespan => &mut plan.lower_bound_s,
                Objective::Completion => &mut plan.completion_bound_s,
                Objective::Cost => &mut plan.cost_bound,
            };
            *known = known.max(bound);
            if let Some(mut placed) = placed
                && keeps_times(instance, &placed)
            {
                if instance.objective == Objective::Cost {
                    shift_gangs(instance, &mut placed);
                }
                take(problem, instance, plan, placed);
            } else if plan.is_usable() {
                grade(plan);
            }
        }
    }
}

/// Whether gangs keep deadlines and departures.
fn keeps_times(instance: &Instance, placed: &[Placed]) -> bool {
    let makespan = placed.iter().map(Placed::end).fold(0.0, f64::max);
    let slack = 1e-10 * (1.0 + makespan);
    placed.iter().all(|one| {
        let untils = one.parts.iter().map(|(node, _)| instance.nodes[*node].until);
        one.end() <= untils.fold(instance.tasks[one.task].due, f64::min) + slack
    })
}

/// Gangs with their starts, in order of them.
fn steps(mut placed: Vec<Placed>) -> Vec<Step> {
    placed
        .sort_by(|left, right| left.start.total_cmp(&right.start).then(left.task.cmp(&right.task)));
    let step = |one: Placed| {
        let Placed { task, strategy, parts, start: from, stays, .. } = one;
        Step { task, strategy, parts, from, stays }
    };
    placed.into_iter().map(step).collect()
}

/// Takes gangs into the plan if they are better than what is there.
fn take(problem: &Problem, instance: &Instance, plan: &mut Plan, placed: Vec<Placed>) {
    let steps = steps(placed);
    let assignments = assignments(problem, instance.model, &steps);
    let found = Plan::of(problem, instance.objective, assignments);
    if !plan.is_usable() || found.value() < plan.value() {
        plan.set_assignments(problem, found.assignments);
    }
    grade(plan);
}
