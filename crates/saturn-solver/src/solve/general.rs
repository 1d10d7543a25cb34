//! One solve of a problem with facts: proofs that there is no plan, bounds, the backend.

use saturn_core::{Objective, Plan, PlanStatus, Problem, Reason, SolveEnd, verified};

use crate::bounds::area::AreaBound;
use crate::bounds::dual_feasible;
use crate::course::beside::side_by_side;
use crate::course::clock::Deadline;
use crate::course::rounds::{Course, Limits};
use crate::general::anneal::Incumbent;
use crate::general::bounds::{Bounds, Relaxation};
use crate::general::construct::{construct, ranks, recipes};
use crate::general::guide::guide;
use crate::general::instance::Instance;
use crate::general::plain::{Ask, rests};
use crate::general::play::{Genome, Placed, Player};
use crate::general::search::Search;
use crate::general::warm::genome;
use crate::general::yardsticks::yardstick;
use crate::lists::solve as lists;
use crate::problem::baselines::Pace;
use crate::problem::grade::grade;
use crate::problem::model::Model;
use crate::problem::options::{Backend, Options};
use crate::solve::taking::{exactly, keeps_times, take, take_solutions};

/// The share of the time for the first bounds, at most.
const FIRST_BOUNDS: f64 = 0.1;
/// The share of the time for the search before all other work, and the share of `milp` for its
/// start.
const FIRST_SEARCH: f64 = 0.1;
const MILP_SEARCH: f64 = 0.05;
/// Up to this many orders of pairs on nodes `auto` has the exact program prove.
const EXACT_REACH: usize = 450;
/// The share of the time after the first search for lower bounds by linear programs. Then the
/// fewest seconds and the most tasks for these bounds.
const BOUNDS: f64 = 0.2;
const LEAST_FOR_BOUNDS_S: f64 = 0.2;
const BOUND_TASKS: usize = 120;
/// A plan that is above a bound by less, relative, is optimal.
const ROUNDING: f64 = 1e-9;
/// If moves are the limit: nodes of the exact program's tree, and the moves after which the program
/// runs. So with more moves it solves the same program.
const EXACT_NODES: i32 = 100;
const MOVES_BEFORE: u64 = 1_000;
/// Up to this many tasks times places and other tasks a plan may be built when the time is over:
/// about a tenth of a second.
const LATE_EFFORT: usize = 1_000_000;

/// Plans `problem`; every task fits the cluster by itself.
pub(crate) fn solve(
    problem: &Problem,
    options: &Options,
    model: &Model,
    prices: &[f64],
    deadline: Deadline,
    plan: &mut Plan,
) {
    let mut instance = Instance::new(problem, model, options.objective, prices);
    let bounding = deadline.within(deadline.left_s() * FIRST_BOUNDS);
    let relaxation = Relaxation::new(&instance, prices, bounding);
    plan.reasons = verified(problem, &relaxation.refutations(problem));
    if !plan.reasons.is_empty() {
        plan.ended = SolveEnd::Complete;
        return;
    }
    let bounds = relaxation.bounds();
    plan.lower_bound_s = bounds.makespan;
    plan.completion_bound_s = bounds.completion;
    plan.cost_bound = bounds.cost;
    plan.tardiness_bound = instance.least_tardiness() * (1.0 - ROUNDING);
    if !may_begin(options, deadline, plan) {
        return;
    }
    let guide = (options.objective == Objective::Completion)
        .then(|| guide(relaxation.ascent(bounds.makespan), options, deadline, plan));
    let bounds = Bounds { completion: plan.completion_bound_s, ..bounds };
    instance.guide = guide;
    let instance = &instance;
    let mut solve = Solve { problem, options, instance, prices, bounds, deadline, missed: None };
    solve.run(plan);
    if !plan.is_usable() && plan.reasons.is_empty() {
        plan.reasons = solve.missed.map_or_else(
            || vec![Reason::unproven(None, "the time limit was too short")],
            |(_, reasons)| reasons,
        );
    }
}

/// Whether a search may begin; otherwise the plan says why not. The bounds before it may have taken
/// all the time that there was. Even so a first plan is built, which takes a moment.
pub(crate) fn may_begin(options: &Options, deadline: Deadline, plan: &mut Plan) -> bool {
    let may_begin = options.time_limit_s > 0.0 && !deadline.is_interrupted();
    if !may_begin {
        let reason = "the time limit was reached before the search began";
        plan.reasons = vec![Reason::unproven(None, reason)];
    }
    may_begin
}

/// Whether `auto` has the exact program prove.
pub(crate) fn is_in_exact_reach(model: &Model) -> bool {
    model.tasks.len() * model.tasks.len() * model.nodes.len() <= EXACT_REACH
}

/// The inputs of the exact program.
pub(crate) struct Exact<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) model: &'a Model,
    pub(crate) prices: &'a [f64],
    pub(crate) objective: Objective,
    pub(crate) deadline: Deadline<'a>,
    pub(crate) max_nodes: Option<i32>,
}

impl<'a> Exact<'a> {
    /// The whole of a problem for lists.
    pub(crate) fn of(solve: &'a lists::Solve, deadline: Deadline<'a>) -> Self {
        Self {
            problem: solve.problem,
            model: solve.model,
            prices: &solve.bound.prices,
            objective: solve.options.objective,
            deadline,
            max_nodes: None,
        }
    }
}

/// Improves the plan of a plain problem, and its bound, by the exact program.
pub(crate) fn solve_exactly(exact: &Exact, plan: &mut Plan) {
    let instance = Instance::new(exact.problem, exact.model, exact.objective, exact.prices);
    let found = exactly(&instance, plan, exact.deadline, exact.max_nodes);
    take_solutions(exact.problem, &instance, plan, found);
}

struct Solve<'a> {
    problem: &'a Problem,
    options: &'a Options,
    instance: &'a Instance<'a>,
    /// The prices of GPU-seconds, by kind.
    prices: &'a [f64],
    bounds: Bounds,
    deadline: Deadline<'a>,
    /// The least seconds by which a plan missed its deadlines, and the missed deadlines.
    missed: Option<(f64, Vec<Reason>)>,
}

impl<'a> Solve<'a> {
    fn run(&mut self, plan: &mut Plan) {
        if let Some((which, pace)) = self.options.backend.baseline() {
            let seed = self.options.seed;
            if let Some(genome) = yardstick(self.instance, which, pace, seed, self.deadline) {
                self.adopt(plan, &genome, pace);
            }
            return;
        }
        let instance = self.instance;
        let is_for_lists = instance.guide.is_some() && !instance.is_beyond_lists();
        let model = instance.model;
        let has_objective = self.options.objective != Objective::Cost;
        let rests = if !has_objective || model.host_binds || model.caps.bind() {
            // Lists that leave these out are no good starts.
            Vec::new()
        } else {
            rests(instance, self.bounds.makespan, is_for_lists)
        };
        let queues: Vec<_> = rests.iter().map(|rest| rest.queue(instance)).collect();
        let bound = AreaBound { makespan: self.bounds.makespan, prices: self.prices.to_vec() };
        let given = self.options.warm_start.as_ref();
        let ask = Ask {
            bound: &bound,
            guide: instance.guide.as_ref(),
            course: Course::new(self.options.seed, self.options.threads),
            warm: given.filter(|_| is_for_lists).map(|plan| (self.problem, plan)),
            deadline: self.deadline,
        };
        let warm = given.and_then(|plan| genome(self.problem, instance, plan));
        let warm = warm.into_iter().collect();
        let mut search = Search::new(instance, &rests, &queues, is_for_lists, &ask, warm);
        match self.options.backend {
            Backend::Milp => {
                let first = self.deadline.within(self.deadline.left_s() * MILP_SEARCH);
                search.advance(&Limits { deadline: first, ..self.limits() });
                self.adopt_search(plan, &search);
                self.prove(plan, None);
            }
            Backend::Search => {
                search.advance(&self.limits());
                self.adopt_search(plan, &search);
            }
            _ => self.auto(&mut search, plan),
        }
        if !plan.is_usable() && search.orders.best.is_none() && !is_for_lists {
            self.build_one(plan);
        }
    }

    /// Builds one plan beyond the time limit, if the time was over before any was built.
    fn build_one(&mut self, plan: &mut Plan) {
        let instance = self.instance;
        let num_tasks = instance.tasks.len();
        let effort = num_tasks * (num_tasks + instance.nodes.len());
        let until = self.deadline.without_end();
        let first = recipes(self.options.objective, self.bounds.makespan).into_iter().next();
        let Some(recipe) = first.filter(|_| effort <= LATE_EFFORT && !until.is_over()) else {
            return;
        };
        let mut player = Player::new(instance, Pace::Packed);
        let rank = ranks(instance, recipe.rule);
        if let Some(genome) = construct(&mut player, recipe, &rank, until, &|_, _| true, true) {
            self.adopt(plan, &genome, Pace::Packed);
        }
    }

    /// Searches; if the exact program is in reach, one thread proves beside the search.
    fn auto(&mut self, search: &mut Search, plan: &mut Plan) {
        let limits = self.limits();
        let is_in_reach = is_in_exact_reach(self.instance.model);
        let raises = self.options.objective == Objective::Makespan
            && !self.instance.has_times()
            && self.instance.tasks.len() <= BOUND_TASKS;
        if limits.max_moves.is_some() {
            if is_in_reach {
                search.advance(&Limits { rests_at: MOVES_BEFORE, ..limits });
                self.adopt_search(plan, search);
                if search.num_moves() >= MOVES_BEFORE {
                    self.prove(plan, Some(EXACT_NODES));
                }
            }
        } else if is_in_reach || raises {
            let first = self.deadline.within(self.deadline.left_s() * FIRST_SEARCH);
            search.advance(&Limits { deadline: first, ..limits });
            self.adopt_search(plan, search);
            if raises && plan.is_usable() && plan.status != PlanStatus::Optimal {
                self.raise_bound(search, plan);
            }
            if is_in_reach && plan.status != PlanStatus::Optimal {
                self.prove_beside(search, plan);
            }
        }
        if plan.status != PlanStatus::Optimal && plan.reasons.is_empty() {
            search.advance(&self.limits());
            self.adopt_search(plan, search);
        }
    }

    /// Raises the bound by linear programs.
    fn raise_bound(&mut self, search: &mut Search, plan: &mut Plan) {
        if self.deadline.left_s() < LEAST_FOR_BOUNDS_S {
            return;
        }
        let deadline = self.deadline.within(self.deadline.left_s() * BOUNDS);
        let (model, low, high) = (self.instance.model, plan.lower_bound_s, plan.makespan_s);
        let limits = Limits { deadline, ..self.limits() };
        let raise = |until: Deadline| dual_feasible::raise(model, low, high, until);
        let bound = if limits.threads > 1 {
            side_by_side(&limits, 1.0, |limits| advance(search, limits), raise)
        } else {
            raise(deadline)
        };
        plan.lower_bound_s = plan.lower_bound_s.max(bound);
        self.bounds.makespan = self.bounds.makespan.max(plan.lower_bound_s);
        grade(plan);
        self.adopt_search(plan, search);
    }

    /// Proves by the exact program; with several threads the others search, until either is done.
    fn prove_beside(&mut self, search: &mut Search, plan: &mut Plan) {
        if self.options.threads == 1 {
            return self.prove(plan, None);
        }
        let (instance, limits, start) = (self.instance, self.limits(), plan.clone());
        let found = side_by_side(
            &limits,
            1.0,
            |limits| advance(search, limits),
            |until| exactly(instance, &start, until, None),
        );
        self.adopt_search(plan, search);
        take_solutions(self.problem, instance, plan, found);
    }

    fn prove(&self, plan: &mut Plan, max_nodes: Option<i32>) {
        if plan.status == PlanStatus::Optimal {
            return;
        }
        let found = exactly(self.instance, plan, self.deadline, max_nodes);
        take_solutions(self.problem, self.instance, plan, found);
    }

    fn limits(&self) -> Limits<'a> {
        let Options { max_moves, threads, .. } = *self.options;
        // The bounds are shaved by as much as a value may be above one.
        let low = self.bounds.of(self.options.objective) * (1.0 + ROUNDING);
        Limits { low, ..Limits::new(self.deadline, max_moves, threads) }
    }

    /// Takes the best plan of a search.
    fn adopt_search(&mut self, plan: &mut Plan, search: &Search) {
        if let Some((rest, search)) = search.for_lists() {
            if !search.lists().is_empty() {
                self.adopt_placed(plan, rest.placed(self.instance, search.lists()));
            }
            return;
        }
        if let Some(Incumbent { genome, .. }) = &search.orders.best {
            self.adopt(plan, genome, Pace::Packed);
        }
        if let Some((_, placed)) = &search.orders.shifted {
            take(self.problem, self.instance, plan, placed.clone());
        }
    }

    /// Takes the plan of a genome into `plan` if it is valid and better.
    fn adopt(&mut self, plan: &mut Plan, genome: &Genome, pace: Pace) {
        let mut player = Player::new(self.instance, pace);
        let placed = player.placed(genome);
        let worth = player.tally(f64::INFINITY);
        if !worth.is_valid() {
            if self.missed.as_ref().is_none_or(|(least, _)| worth.missed < *least) {
                self.missed = Some((worth.missed, self.misses(&placed)));
            }
            return;
        }
        take(self.problem, self.instance, plan, placed);
    }

    /// The same for gangs of lists. They are not played anew: that might turn a worse plan of lists
    /// into the better plan, and then more time would be worse.
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
                reasons.push(Reason::unproven(task, reason));
            }
            for (node, _) in &one.parts {
                let until = self.instance.nodes[*node].until;
                if end > until {
                    let name = &self.problem.cluster.nodes[*node].name;
                    let reason = format!(
                        "the best plan found ends it at {end} s on node `{name}`, which leaves at \
                         {until} s"
                    );
                    reasons.push(Reason::unproven(task, reason));
                }
            }
        }
        reasons
    }
}

/// Goes on with a search; returns whether it came to an end.
fn advance(search: &mut Search, limits: &Limits) -> bool {
    search.advance(limits);
    search.is_optimal(limits)
}
