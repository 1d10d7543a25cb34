//! Plans with switches: the best plan without them, then pieces of tasks annealed and polished.
//!
//! [`pieces`] is the state, [`anneal`] the search on it, [`polish`] finds the best shares for what
//! the search has found. Gangs wider than a node are not cut, and a plan that has one is left as it
//! is.

mod anneal;
mod pieces;
mod polish;
mod region;

use saturn_core::{Node, Plan, PlanStatus, Problem, ProblemTask, WHOLE};

use crate::bounds::area::area_bound;
use crate::bounds::config_lp;
use crate::clock::Deadline;
use crate::model::{Model, Task};
use crate::options::{Backend, Options};
use crate::random::Random;
use crate::search::in_threads;
use crate::solve::{Solve, grade};
use crate::warm::is_staying;
use anneal::{Cooling, Region};
use pieces::{Piece, Player, settle_shares, stays_first};

/// The share of the limits for the plan without switches.
const WHOLE_SHARE: f64 = 0.15;
/// The share of what is left then for the bound.
const BOUND_SHARE: f64 = 0.25;
/// Up to this many tasks and nodes a problem is annealed whole.
const SMALL_TASKS: usize = 60;
const SMALL_NODES: usize = 4;
/// Moves of the first rounds; the length doubles every few rounds.
const FIRST_ROUND: u64 = 20_000;
const LONGEST_ROUND: u64 = 2_000_000;
const ROUNDS_PER_LENGTH: u64 = 6;
/// One run in so many starts at random, not from the best plan.
const FRESH: usize = 8;
/// The first temperature, least and most, and the last, relative to the bound.
const WARM: (f64, f64) = (0.01, 0.3);
const COLD: f64 = 0.0003;
/// Weight of the area, least and most.
const AREA: (f64, f64) = (0.7, 2.0);
/// Regions in a row that come out too large before the search gives up.
const MOST_REFUSED: u32 = 100;
/// Moves of one run there.
const MENDING: u64 = 30_000;
/// What ends later than the best plan by more than this part is not polished.
const POLISHING: f64 = 0.01;
/// With more tasks than this the program of the shares is too large.
const POLISHED_TASKS: usize = 300;

/// Whether a solve may plan switches: some task may be switched, and there is nothing to wait for or to
/// be in time for.
pub(crate) fn applies(problem: &Problem, model: &Model, options: &Options) -> bool {
    let is_timed_node =
        |node: &Node| node.available_from_s > 0.0 || node.available_until_s.is_some();
    let is_timed_task = |task: &ProblemTask| {
        task.release_s > 0.0 || !task.after.is_empty() || task.deadline_s.is_some()
    };
    options.max_switches > 0
        && problem.tasks.iter().any(|task| task.switch_cost_s.is_some())
        && problem.deadline_s.is_none()
        && !problem.cluster.nodes.iter().any(is_timed_node)
        && !problem.tasks.iter().any(is_timed_task)
        && !model.has_places()
}

/// The options for the plan without switches, which comes first.
pub(crate) fn whole(options: &Options) -> Options {
    Options {
        backend: Backend::Search,
        max_switches: 0,
        max_moves: options.max_moves.map(|moves| moves.div_ceil(4)),
        ..options.clone()
    }
}

/// Until when that is looked for.
pub(crate) fn until(deadline: Deadline) -> Deadline {
    deadline.within(deadline.left_s() * WHOLE_SHARE)
}

/// A lower bound on the makespan of every plan with switches, without a linear program of
/// configurations, which takes seconds where tasks are many and gains little there.
pub(crate) fn quick_bound(model: &Model, deadline: Deadline) -> f64 {
    let no_prices = || vec![1.0; model.num_kinds];
    let prices = if model.has_modes() { area_bound(model, deadline).prices } else { no_prices() };
    config_lp::area_of_free_switches(&model.without_switch_costs(), &prices)
}

/// Improves a plan of whole tasks by switches within the limits of `solve`.
pub(crate) fn solve(solve: &Solve, plan: &mut Plan) {
    let model = &solve.model.without_switch_costs();
    // What holds of whole tasks alone is no bound here.
    plan.lower_bound_s = config_lp::area_of_free_switches(model, &solve.bound.prices);
    (plan.completion_bound_s, plan.cost_bound) = (0.0, 0.0);
    if !plan.is_usable() {
        return;
    }
    grade(plan);
    let without = plan.clone();
    if solve.deadline.is_over() {
        return;
    }
    let bounding = solve.deadline.within(solve.deadline.left_s() * BOUND_SHARE);
    let bound = config_lp::bound(model, &solve.bound.prices, bounding);
    plan.lower_bound_s = plan.lower_bound_s.max(bound);
    grade(plan);
    if plan.status != PlanStatus::Optimal {
        Search::new(solve, model, plan.lower_bound_s).run(plan);
    }
    let enough_s = without.makespan_s * (1.0 - solve.options.min_switch_gain);
    if plan.makespan_s > enough_s {
        *plan = Plan { lower_bound_s: plan.lower_bound_s, ..without };
    }
    grade(plan);
}

/// The search with switches at work.
struct Search<'a> {
    solve: &'a Solve<'a>,
    /// With runtimes as they are without switch costs.
    model: &'a Model,
    low: f64,
    switch_costs: Vec<f64>,
    may_switch: Vec<bool>,
    max_moves: Option<u64>,
}

/// The best pieces so far and when they end.
struct Incumbent {
    end: f64,
    pieces: Vec<Piece>,
}

impl<'a> Search<'a> {
    fn new(solve: &'a Solve<'a>, model: &'a Model, low: f64) -> Self {
        let costs = solve.problem.tasks.iter().map(|task| task.switch_cost_s);
        let may_switch = |(task, cost): (&Task, Option<f64>)| cost.is_some() && !task.is_fixed();
        Self {
            solve,
            model,
            low,
            switch_costs: costs.clone().map(|cost| cost.unwrap_or(0.0)).collect(),
            may_switch: model.tasks.iter().zip(costs).map(may_switch).collect(),
            max_moves: solve.options.max_moves.map(|moves| moves - moves.div_ceil(4)),
        }
    }

    fn player(&self) -> Player<'_> {
        Player::new(self.model, &self.switch_costs)
    }

    fn run(&self, plan: &mut Plan) {
        let Some(mut best) = self.incumbent(plan) else { return };
        if let Some(warm) = &self.solve.options.warm_start
            && let Some(warm) = self.incumbent(warm)
            && warm.end < best.end
        {
            best = warm;
        }
        let nodes = self.model.nodes.len();
        if self.model.tasks.len() <= SMALL_TASKS && nodes <= SMALL_NODES {
            self.anneal_whole(&mut best);
        } else {
            self.mend(&mut best);
        }
        // Regions of a large problem are kept as they are found: only here is it known what ends first.
        if best.end < plan.makespan_s {
            let assignments = self.player().assignments(&best.pieces);
            plan.set_assignments(self.solve.problem, assignments);
        }
    }

    /// A plan as pieces; `None` where a task is missing, cut too often, or not on one node.
    fn incumbent(&self, plan: &Plan) -> Option<Incumbent> {
        let model = self.model;
        let num_tasks = model.tasks.len();
        let mut assignments: Vec<_> = plan.assignments.iter().collect();
        assignments.sort_by(|left, right| left.start_s.total_cmp(&right.start_s));
        let mut num_pieces = vec![0; num_tasks];
        let mut pieces = Vec::with_capacity(assignments.len());
        for one in assignments {
            let [part] = one.gang.as_slice() else { return None };
            model.nodes.get(part.node)?;
            let strategy = self.solve.problem.tasks.get(one.task)?.strategies.get(one.strategy)?;
            num_pieces[one.task] += 1;
            let stay = model.tasks[one.task].stay.as_ref();
            let stay = stay.filter(|_| is_staying(model, one));
            if let Some(piece) = stay.and_then(|stay| Piece::staying(one.task, stay, one.share)) {
                pieces.push(piece);
                continue;
            }
            let modes = model.modes_on(one.task, part.node);
            let narrower = modes.partition_point(|mode| mode.gpus <= strategy.gpus);
            let index = narrower.checked_sub(1)?;
            pieces.push(Piece::new(one.task, part.node, index, &modes[index], one.share));
        }
        let most = |task: usize| {
            if self.may_switch[task] { self.solve.options.max_switches + 1 } else { 1 }
        };
        if (0..num_tasks).any(|task| num_pieces[task] == 0 || num_pieces[task] > most(task)) {
            return None;
        }
        stays_first(&mut pieces);
        settle_shares(&mut pieces, num_tasks);
        if pieces.iter().any(|piece| piece.share <= 0.0 || piece.share > WHOLE) {
            return None;
        }
        let end = self.end(&pieces);
        Some(Incumbent { end, pieces })
    }

    fn end(&self, pieces: &[Piece]) -> f64 {
        self.player().trace(pieces).iter().map(|one| one.end).fold(0.0, f64::max)
    }

    fn is_done(&self, best: &Incumbent, num_moves: u64) -> bool {
        best.end <= self.low * (1.0 + 1e-9)
            || self.solve.deadline.is_over()
            || self.max_moves.is_some_and(|limit| num_moves >= limit)
    }

    /// Takes pieces into `best`, polished, if they end earlier.
    fn improve(&self, best: &mut Incumbent, mut pieces: Vec<Piece>) {
        let player = self.player();
        settle_shares(&mut pieces, self.model.tasks.len());
        let mut end = self.end(&pieces);
        while let Some(polished) = polish::polish(&player, &pieces, self.solve.deadline) {
            let polished_end = self.end(&polished);
            if polished_end >= end * (1.0 - 1e-7) {
                break;
            }
            (end, pieces) = (polished_end, polished);
        }
        if end < best.end {
            *best = Incumbent { end, pieces };
        }
    }

    /// Anneals some nodes and all pieces on them, from `pieces`; the best pieces met before `bar`.
    fn anneal(
        &self,
        nodes: &[usize],
        pieces: Vec<Piece>,
        (target, bar): (f64, f64),
        num_moves: u64,
        random: &mut Random,
        moves: &mut u64,
    ) -> Option<Vec<Piece>> {
        let cooling = Cooling {
            from: self.low * random.log_between(WARM.0, WARM.1),
            to: self.low * COLD,
            num_moves,
            target,
            area: random.log_between(AREA.0, AREA.1),
        };
        let max_pieces = self.solve.options.max_switches + 1;
        let mut region =
            Region::new(self.player(), nodes.to_vec(), max_pieces, &self.may_switch, pieces);
        region.run(cooling, bar, self.solve.deadline, random, moves)
    }

    /// Small problems: all nodes at once, again and again, each thread on its own. The best of a run
    /// is polished even where it is no better than what is known: its shares may be far from theirs.
    fn anneal_whole(&self, best: &mut Incumbent) {
        let options = self.solve.options;
        let nodes: Vec<usize> = (0..self.model.nodes.len()).collect();
        let mut randoms: Vec<Random> =
            (0..options.threads as u64).map(|stream| Random::new(options.seed, stream)).collect();
        let (mut num_moves, mut round, mut length) = (0, 0, FIRST_ROUND);
        while !self.is_done(best, num_moves) {
            round += 1;
            if round % ROUNDS_PER_LENGTH == 0 {
                length = (length * 2).min(LONGEST_ROUND);
            }
            let share = self
                .max_moves
                .map_or(u64::MAX, |limit| (limit - num_moves).div_ceil(options.threads as u64));
            let results = in_threads(&mut randoms, |random, moves| {
                let is_fresh = random.below(FRESH) == 0;
                let pieces = if is_fresh { self.random(random) } else { best.pieces.clone() };
                let target = self.low + (best.end - self.low) * random.unit();
                let limits = (target, f64::INFINITY);
                self.anneal(&nodes, pieces, limits, length.min(share), random, moves)
            });
            for (found, moves) in results {
                num_moves += moves;
                // Polishing gains little more than this.
                if let Some(pieces) = found
                    && self.end(&pieces) < best.end * (1.0 + POLISHING)
                {
                    self.improve(best, pieces);
                }
            }
        }
    }

    /// Every task whole, in a random mode, place and order.
    fn random(&self, random: &mut Random) -> Vec<Piece> {
        let model = self.model;
        let mut pieces: Vec<Piece> = (0..model.tasks.len())
            .filter_map(|task| {
                if let Some(stay) = &model.tasks[task].stay
                    && (model.tasks[task].is_fixed() || random.below(2) == 0)
                    && let Some(piece) = Piece::staying(task, stay, WHOLE)
                {
                    return Some(piece);
                }
                let fits = |node: &usize| !model.modes_on(task, *node).is_empty();
                let nodes: Vec<usize> = (0..model.nodes.len()).filter(fits).collect();
                let node = *nodes.get(random.below(nodes.len().max(1)))?;
                let modes = model.modes_on(task, node);
                let index = random.below(modes.len());
                Some(Piece::new(task, node, index, &modes[index], WHOLE))
            })
            .collect();
        random.shuffle(&mut pieces);
        stays_first(&mut pieces);
        pieces
    }

    /// Large problems: the node that ends last with some others, each thread on nodes of its own.
    fn mend(&self, best: &mut Incumbent) {
        let options = self.solve.options;
        let model = self.model;
        let mut random = Random::new(options.seed, u64::MAX);
        let mut randoms: Vec<Random> =
            (0..options.threads as u64).map(|stream| Random::new(options.seed, stream)).collect();
        let (mut num_moves, mut num_refused) = (0, 0);
        let mut player = self.player();
        let all: Vec<usize> = (0..model.nodes.len()).collect();
        while !self.is_done(best, num_moves) {
            let ends = player.ends(&all, &best.pieces);
            let mut is_taken = vec![false; model.nodes.len()];
            let mut jobs = Vec::new();
            for random_of_thread in &mut randoms {
                let nodes = region::choose(&best.pieces, &ends, &mut is_taken, &mut random);
                if !nodes.is_empty() {
                    jobs.push((random_of_thread, nodes));
                }
            }
            let num_jobs = jobs.len() as u64;
            if num_jobs == 0 {
                num_refused += 1;
                if num_refused > MOST_REFUSED {
                    break;
                }
                continue;
            }
            num_refused = 0;
            let share =
                self.max_moves.map_or(u64::MAX, |limit| (limit - num_moves).div_ceil(num_jobs));
            let results = in_threads(&mut jobs, |(random, nodes), moves| {
                let is_here = |piece: &&Piece| nodes.contains(&piece.node);
                let pieces: Vec<Piece> = best.pieces.iter().filter(is_here).copied().collect();
                let end = nodes.iter().map(|node| ends[*node]).fold(0.0, f64::max);
                let target = self.low + (end - self.low) * random.unit();
                let found =
                    self.anneal(nodes, pieces, (target, end), MENDING.min(share), random, moves);
                found.map(|pieces| (nodes.clone(), pieces))
            });
            let mut pieces = best.pieces.clone();
            for (found, moves) in results {
                num_moves += moves;
                if let Some((nodes, better)) = found {
                    // Nodes that share no task are played alike in any order.
                    pieces.retain(|piece| !nodes.contains(&piece.node));
                    pieces.extend(better);
                }
            }
            settle_shares(&mut pieces, model.tasks.len());
            // A region that ends earlier is kept though another node still ends as late as before.
            *best = Incumbent { end: self.end(&pieces), pieces };
        }
        if model.tasks.len() <= POLISHED_TASKS {
            let pieces = best.pieces.clone();
            self.improve(best, pieces);
        }
    }
}
