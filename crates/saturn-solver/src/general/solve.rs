//! One solve of a problem with facts: proofs that there is no plan, bounds, the backend.

use std::thread;

use saturn_core::{Objective, Plan, PlanStatus, Problem, Reason};

use super::anneal::{Incumbent, Limits, search};
use super::bounds::{Bounds, Relaxation};
use super::instance::Instance;
use super::plain;
use super::play::{Choice, Genome, Placed, Player};
use super::wait::shift_gangs;
use super::yardsticks::yardstick;
use crate::bounds::area::{AreaBound, area_bound};
use crate::clock::Deadline;
use crate::error::SolveError;
use crate::milp::{self, Solution};
use crate::model::Model;
use crate::options::{Aim, Backend, Options};
use crate::program::Effort;
use crate::schedule::{Pace, Step, assignments};
use crate::solve::grade;

/// The share of the time for the search before anything else, and that of `milp` for its start.
const FIRST_SEARCH: f64 = 0.1;
const MILP_SEARCH: f64 = 0.05;
/// The share of a search for a start without most facts.
const PLAIN_SEARCH: f64 = 0.4;
/// Up to so many orders of pairs on nodes `auto` has the exact program prove.
const EXACT_REACH: usize = 450;
/// The exact program can't be interrupted: it begins with so few seconds, and has more each time.
const FIRST_SLICE_S: f64 = 0.5;
/// Nodes of the exact program's tree where moves are the limit.
const EXACT_NODES: i32 = 1_000;

/// Plans `problem`; every task fits the cluster by itself.
pub(crate) fn solve(
    problem: &Problem,
    options: &Options,
    model: &Model,
    deadline: Deadline,
    plan: &mut Plan,
) -> Result<(), SolveError> {
    let instance = Instance::new(problem, model, options.objective);
    // Types that fit no task can't be priced; those that do keep their prices.
    let prices = if model.tasks.iter().all(|task| task.shapes().next().is_some()) {
        area_bound(model).prices
    } else {
        vec![1.0; model.num_kinds]
    };
    let relaxation = Relaxation::new(&instance, &prices);
    let refutations = relaxation.refutations();
    if !refutations.is_empty() {
        let reason = |(task, reason)| Reason { task, reason };
        plan.reasons = refutations.into_iter().map(reason).collect();
        plan.status = PlanStatus::Infeasible;
        return Ok(());
    }
    let bounds = relaxation.bounds();
    plan.lower_bound_s = bounds.makespan;
    plan.completion_bound_s = bounds.completion;
    plan.cost_bound = bounds.cost;
    if deadline.is_over() {
        plan.reasons = vec![Reason { task: None, reason: "there was no time to look".to_owned() }];
        return Ok(());
    }
    let prices = &prices;
    let instance = &instance;
    let mut solve = Solve { problem, options, instance, prices, bounds, deadline, missed: None };
    solve.run(plan)?;
    if !plan.is_usable() && plan.status != PlanStatus::Infeasible {
        plan.reasons = solve.missed.map_or_else(
            || vec![Reason { task: None, reason: "no plan was tried in time".to_owned() }],
            |(_, reasons)| reasons,
        );
    }
    Ok(())
}

/// No plan of a plain problem has a smaller sum of ends.
pub(crate) fn completion_bound(problem: &Problem, model: &Model, prices: &[f64]) -> f64 {
    let instance = Instance::new(problem, model, Objective::Completion);
    Relaxation::new(&instance, prices).bounds().completion
}

/// What the exact program is asked.
pub(crate) struct Exact<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) model: &'a Model,
    pub(crate) objective: Objective,
    pub(crate) deadline: Deadline<'a>,
    pub(crate) max_nodes: Option<i32>,
}

/// Improves the plan of a plain problem, and its bound, by the exact program.
pub(crate) fn solve_exactly(exact: &Exact, plan: &mut Plan) -> Result<(), SolveError> {
    let instance = Instance::new(exact.problem, exact.model, exact.objective);
    let found = exact_in_slices(&instance, plan, exact.deadline, exact.max_nodes)?;
    take_solution(exact.problem, &instance, plan, found);
    Ok(())
}

struct Solve<'a> {
    problem: &'a Problem,
    options: &'a Options,
    instance: &'a Instance<'a>,
    /// Of GPU-seconds, by kind.
    prices: &'a [f64],
    bounds: Bounds,
    deadline: Deadline<'a>,
    /// The least that a plan missed its deadlines by, and by which.
    missed: Option<(f64, Vec<Reason>)>,
}

impl Solve<'_> {
    fn run(&mut self, plan: &mut Plan) -> Result<(), SolveError> {
        if let Some((which, pace)) = self.options.backend.baseline() {
            let seed = self.options.seed;
            if let Some(genome) = yardstick(self.instance, which, pace, seed, self.deadline) {
                self.adopt(plan, &genome, pace);
            }
            return Ok(());
        }
        match self.options.backend {
            Backend::Milp => {
                let first = self.deadline.within(self.deadline.left_s() * MILP_SEARCH);
                self.search(plan, first, self.options.threads);
                self.prove(plan, None)
            }
            Backend::Search => {
                self.search(plan, self.deadline, self.options.threads);
                Ok(())
            }
            _ => self.auto(plan),
        }
    }

    /// Searches; where the exact program is in reach, one thread proves beside it.
    fn auto(&mut self, plan: &mut Plan) -> Result<(), SolveError> {
        let num_tasks = self.instance.tasks.len();
        let is_in_reach = num_tasks * num_tasks * self.instance.nodes.len() <= EXACT_REACH;
        if !is_in_reach {
            self.search(plan, self.deadline, self.options.threads);
            return Ok(());
        }
        if self.options.max_moves.is_some() {
            self.search(plan, self.deadline, self.options.threads);
            return self.prove(plan, Some(EXACT_NODES));
        }
        let first = self.deadline.within(self.deadline.left_s() * FIRST_SEARCH);
        self.search(plan, first, self.options.threads);
        if plan.status == PlanStatus::Optimal {
            return Ok(());
        }
        if self.options.threads == 1 {
            return self.prove(plan, None);
        }
        let start = plan.clone();
        let warm = Vec::from_iter(self.warm(Some(&start)));
        let limits = self.limits(self.deadline, self.options.threads - 1);
        let is_proven = std::sync::atomic::AtomicBool::new(false);
        let clock = self.deadline.stopped_by(&is_proven);
        let (solution, found) = thread::scope(|scope| {
            let prover = scope.spawn(|| {
                let solution = exact_in_slices(self.instance, &start, self.deadline, None);
                is_proven.store(true, std::sync::atomic::Ordering::Relaxed);
                solution
            });
            let limits = Limits { deadline: self.deadline.on(&clock), ..limits };
            let found = search(self.instance, warm, limits);
            match prover.join() {
                Ok(solution) => (solution, found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        if let Some(found) = found {
            self.adopt(plan, &found.genome, Pace::Packed);
        }
        take_solution(self.problem, self.instance, plan, solution?);
        Ok(())
    }

    fn prove(&self, plan: &mut Plan, max_nodes: Option<i32>) -> Result<(), SolveError> {
        if plan.status == PlanStatus::Optimal {
            return Ok(());
        }
        let found = exact_in_slices(self.instance, plan, self.deadline, max_nodes)?;
        take_solution(self.problem, self.instance, plan, found);
        Ok(())
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

    fn search(&mut self, plan: &mut Plan, deadline: Deadline, threads: usize) {
        let warm = match self.warm(self.options.warm_start.as_ref()) {
            Some(genome) => vec![genome],
            None => Vec::from_iter(self.plain_start(deadline, threads)),
        };
        let found = search(self.instance, warm, self.limits(deadline, threads));
        if let Some(Incumbent { genome, .. }) = found {
            self.adopt(plan, &genome, Pace::Packed);
        }
    }

    /// A plan of the problem without most of its facts, to be played with them.
    fn plain_start(&self, deadline: Deadline, threads: usize) -> Option<Genome> {
        let aim = match self.options.objective {
            Objective::Makespan => Aim::Makespan,
            Objective::Completion => Aim::Completion,
            Objective::Cost => return None,
        };
        let bound = AreaBound { makespan: self.bounds.makespan, prices: self.prices.to_vec() };
        plain::start(self.instance, aim, &bound, self.options, threads, deadline, PLAIN_SEARCH)
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

    /// A plan at hand as a start: whatever of it fits.
    fn warm(&self, plan: Option<&Plan>) -> Option<Genome> {
        let plan = plan.filter(|plan| !plan.assignments.is_empty())?;
        let mut choices: Vec<Option<Choice>> = vec![None; self.instance.tasks.len()];
        let mut starts = vec![f64::INFINITY; choices.len()];
        for assignment in &plan.assignments {
            let task = assignment.task;
            let spec = self.problem.tasks.get(task);
            let strategy = spec.and_then(|spec| spec.strategies.get(assignment.strategy));
            let (Some(strategy), [part, ..]) = (strategy, assignment.gang.as_slice()) else {
                continue;
            };
            if part.node >= self.instance.nodes.len() {
                continue;
            }
            let is_left = self.instance.stay(task).is_some_and(|stay| {
                stay.gang == assignment.gang && stay.strategy == assignment.strategy
            });
            let wide = &self.instance.model.tasks[task].wide;
            let choice = if is_left && assignment.start_s == 0.0 {
                Some(Choice::Stay).filter(|_| self.instance.may_stay(task))
            } else if assignment.gang.len() > 1 {
                let kind = self.instance.model.nodes[part.node].kind;
                let mode = wide.iter().position(|mode| {
                    mode.strategy as usize == assignment.strategy
                        && mode.kind == kind
                        && self.instance.has_nodes_for(task, mode)
                });
                mode.map(|mode| Choice::Wide { mode, lead: Some(part.node) })
            } else {
                let modes = self.instance.model.modes_on(task, part.node);
                let mode = modes.partition_point(|mode| mode.gpus <= strategy.gpus).checked_sub(1);
                let may = self.instance.may_use(task, part.node);
                mode.filter(|_| may).map(|mode| Choice::Narrow { node: part.node, mode })
            };
            choices[task] = choice;
            starts[task] = assignment.start_s;
        }
        // Tasks that are new go behind, as a plan built in one go has them.
        let base = search(
            self.instance,
            Vec::new(),
            Limits { max_moves: Some(0), ..self.limits(self.deadline, 1) },
        )?;
        let mut order = base.genome.order;
        order.sort_by(|left, right| starts[*left].total_cmp(&starts[*right]));
        let given = choices.into_iter().zip(base.genome.choices);
        let choices = given.enumerate().map(|(task, (choice, built))| {
            if self.instance.tasks[task].is_fixed { Choice::Stay } else { choice.unwrap_or(built) }
        });
        Some(Genome { order, choices: choices.collect() })
    }
}

/// The exact program in slices of time, each as long as all before it: between them it can be
/// interrupted.
fn exact_in_slices(
    instance: &Instance,
    plan: &Plan,
    deadline: Deadline,
    max_nodes: Option<i32>,
) -> Result<Solution, SolveError> {
    let low = plan.bound();
    let horizon = horizon(instance, plan);
    if max_nodes.is_some() {
        let effort = Effort { time_limit_s: deadline.left_s(), max_nodes };
        return milp::solve(instance, low, horizon, effort);
    }
    let mut slice_s = FIRST_SLICE_S;
    loop {
        let left_s = deadline.left_s();
        // A last slice that would be short joins the one before it.
        let is_last = slice_s * 2.0 > left_s;
        let time_limit_s = if is_last { left_s } else { slice_s };
        let found = milp::solve(instance, low, horizon, Effort::seconds(time_limit_s))?;
        let is_solved = match &found {
            Solution::Infeasible => true,
            Solution::Known { is_solved, .. } => *is_solved,
        };
        if is_solved || is_last || deadline.is_over() {
            return Ok(found);
        }
        slice_s *= 2.0;
    }
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
    let assignments = assignments(problem, instance.model, &steps, Pace::Packed);
    let found = Plan::of(problem, instance.objective, assignments);
    if !plan.is_usable() || found.value() < plan.value() {
        plan.set_assignments(problem, found.assignments);
    }
    grade(plan);
}
