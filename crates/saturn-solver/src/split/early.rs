//! The last step of a solve for the makespan: of plans that end at the same time, one whose tasks
//! end early.
//!
//! The makespan leaves much of a plan open: the order of tasks on a device, and the strategies of
//! tasks that are not late. So the pieces of the plan are annealed once more. The cost is the
//! weighted sum of the tasks' ends. No task may end after the plan's own makespan, so every proof
//! about the makespan is valid for the new plan too. The number of launches may not grow. So a
//! running task that stays is moved, or a task is cut, only if that saves another launch.

use saturn_core::{Plan, Problem};

use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::course::rounds::{Course, Limits};
use crate::problem::grade::grade;
use crate::problem::model::Model;
use crate::problem::options::Options;
use crate::split::anneal::{Cooling, Ends, Goal, Region};
use crate::split::pieces::{Piece, Player, settle_shares, stays_first};
use crate::split::polish::{Shape, polish};
use crate::split::reading;
use crate::split::region;

/// Up to this many pieces and nodes a plan is annealed whole.
const SMALL_PIECES: usize = 60;
const SMALL_NODES: usize = 4;
/// Moves for each piece, if no limit allows fewer.
const MOVES_PER_PIECE: u64 = 20_000;
/// The share of a limit on moves.
const SHARE: u64 = 20;
/// Rounds, and annealings in each.
const ROUNDS: u64 = 3;
const ITEMS: usize = 8;
/// Moves of a round for each piece, where a plan is too large to be annealed whole.
const REGIONAL: u64 = 500;
/// The search gives up after this many rounds in a row whose regions were all too large.
const MOST_IDLE: u32 = 100;
/// The first temperature, least and most, and the last, relative to the mean weighted end of a task.
const WARM: (f64, f64) = (0.1, 1.0);
const COLD: f64 = 0.0005;
/// What a second beyond the cap costs, relative to a second of all ends.
const LATE: (f64, f64) = (1.0, 5.0);
/// One annealing in so many begins with the mirrored plan.
const MIRRORED: usize = 4;
/// What a launch costs, relative to the sum of ends.
const LAUNCH: f64 = 0.001;
/// Makespans that differ by less, relative, are equal.
const ROUNDING: f64 = 1e-9;

/// Has the tasks of a plan end earlier, without a longer makespan and without more launches.
///
/// Every gang must fit into a node, and nothing but devices and runtimes may limit the starts.
pub(crate) fn end_early(
    problem: &Problem,
    options: &Options,
    model: &Model,
    deadline: Deadline,
    plan: &mut Plan,
) {
    let model = &model.without_switch_costs();
    let early = Early {
        options,
        model,
        switch_costs: &reading::switch_costs(problem),
        may_switch: &if options.max_switches > 0 {
            reading::may_switch(problem, model)
        } else {
            vec![false; model.tasks.len()]
        },
        weights: &problem.tasks.iter().map(|task| task.weight).collect::<Vec<_>>(),
        deadline,
        cap: plan.makespan_s,
    };
    let max_switches = options.max_switches;
    let read = reading::pieces(problem, model, plan, early.may_switch, max_switches);
    let Some(pieces) = read.filter(|pieces| early.sum(pieces) > 0.0) else { return };
    let (makespan_s, completion_s) = (plan.makespan_s, plan.completion_s);
    let num_launches = launches(&pieces);
    let found = early.search(pieces);
    let assignments = early.player().assignments(&found);
    let better = Plan::of(problem, plan.objective, assignments);
    if better.makespan_s <= makespan_s
        && better.completion_s < completion_s
        && launches(&found) <= num_launches
    {
        plan.set_assignments(problem, better.assignments);
        grade(plan);
    }
}

/// Pieces that have to be launched.
fn launches(pieces: &[Piece]) -> usize {
    pieces.iter().filter(|piece| !piece.stays()).count()
}

/// The pieces in the opposite order: a node that is played backwards takes as long.
fn mirrored(pieces: &[Piece]) -> Vec<Piece> {
    let mut mirrored: Vec<Piece> = pieces.iter().rev().copied().collect();
    stays_first(&mut mirrored);
    mirrored
}

struct Early<'a> {
    options: &'a Options,
    /// With runtimes without switch costs.
    model: &'a Model,
    switch_costs: &'a [f64],
    may_switch: &'a [bool],
    weights: &'a [f64],
    deadline: Deadline<'a>,
    /// No task may end later, seconds.
    cap: f64,
}

impl Early<'_> {
    fn player(&self) -> Player<'_> {
        Player::new(self.model, self.switch_costs)
    }

    fn search(&self, mut pieces: Vec<Piece>) -> Vec<Piece> {
        let Options { seed, threads, max_moves, .. } = *self.options;
        let most = MOVES_PER_PIECE * pieces.len() as u64;
        let most = max_moves.map_or(most, |moves| most.min(moves / SHARE));
        let limits = Limits::new(self.deadline, Some(most), threads);
        let mut course = Course::new(seed, threads);
        let is_small = pieces.len() <= SMALL_PIECES && self.model.nodes.len() <= SMALL_NODES;
        let mut num_idle = 0;
        while !course.is_over(&limits) && num_idle <= MOST_IDLE {
            let before = course.num_moves();
            let length = (most / (ROUNDS * ITEMS as u64)).max(1);
            pieces = if is_small {
                self.round_of_all(&mut course, &limits, length, &pieces)
            } else {
                self.round_of_regions(&mut course, &limits, most, &pieces)
            };
            num_idle = if course.num_moves() == before { num_idle + 1 } else { 0 };
        }
        self.with_best_shares(pieces)
    }

    fn round_of_all(
        &self,
        course: &mut Course,
        limits: &Limits,
        length: u64,
        pieces: &[Piece],
    ) -> Vec<Piece> {
        let nodes: Vec<usize> = (0..self.model.nodes.len()).collect();
        let items = vec![(); ITEMS];
        let round = course.round(limits, items, length, |(), random, most| {
            let goal = self.goal(pieces);
            let start =
                if random.below(MIRRORED) == 0 { mirrored(pieces) } else { pieces.to_vec() };
            let cooling = self.cooling(goal, pieces, length, random);
            let mut region = self.region(nodes.clone(), start);
            region.run(cooling, most, self.value(&goal, pieces), limits.deadline, random)
        });
        let goal = self.goal(pieces);
        let found = round.results.into_iter().flatten().map(|mut pieces| {
            settle_shares(&mut pieces, self.model.tasks.len());
            (self.value(&goal, &pieces), pieces)
        });
        let least = (self.value(&goal, pieces), pieces.to_vec());
        found.fold(least, |best, one| if one.0 < best.0 { one } else { best }).1
    }

    fn round_of_regions(
        &self,
        course: &mut Course,
        limits: &Limits,
        most: u64,
        pieces: &[Piece],
    ) -> Vec<Piece> {
        let num_nodes = self.model.nodes.len();
        let mut dealer = course.dealer();
        let order: Vec<f64> = (0..num_nodes).map(|_| dealer.unit()).collect();
        let mut is_taken = vec![false; num_nodes];
        let jobs = (0..num_nodes.div_ceil(region::REGION_NODES))
            .map(|_| region::choose(pieces, &order, &mut is_taken, &mut dealer));
        let jobs: Vec<Vec<usize>> = jobs.filter(|nodes| !nodes.is_empty()).collect();
        let here = |nodes: &[usize]| -> Vec<Piece> {
            pieces.iter().filter(|piece| nodes.contains(&piece.node)).copied().collect()
        };
        let of_all = most.min(REGIONAL * pieces.len() as u64);
        let length = of_all / jobs.len().max(1) as u64;
        let round = course.round(limits, jobs, length.max(1), |nodes, random, most| {
            // With thousands of pieces, it takes long to find the pieces on these nodes.
            if limits.deadline.is_over() {
                return None;
            }
            let own = here(&nodes);
            let goal = self.goal(&own);
            let cooling = self.cooling(goal, &own, length, random);
            let mut region = self.region(nodes.clone(), own.clone());
            let bar = self.value(&goal, &own);
            let found = region.run(cooling, most, bar, limits.deadline, random);
            found.map(|pieces| (nodes, pieces))
        });
        let mut pieces = pieces.to_vec();
        for (nodes, better) in round.results.into_iter().flatten() {
            pieces.retain(|piece| !nodes.contains(&piece.node));
            pieces.extend(better);
        }
        stays_first(&mut pieces);
        settle_shares(&mut pieces, self.model.tasks.len());
        pieces
    }

    fn region(&self, nodes: Vec<usize>, pieces: Vec<Piece>) -> Region<'_> {
        let max_pieces = self.options.max_switches + 1;
        Region::new(self.player(), nodes, max_pieces, self.may_switch, pieces)
    }

    fn goal(&self, pieces: &[Piece]) -> Ends<'_> {
        let sum = self.sum(pieces);
        let mut weight = 0.0;
        for piece in pieces {
            weight += self.weights[piece.task] * piece.share;
        }
        Ends {
            cap: self.cap * (1.0 + ROUNDING / 2.0),
            weights: self.weights,
            late: weight,
            most_launches: launches(pieces),
            launch: LAUNCH * sum,
        }
    }

    fn cooling<'b>(
        &self,
        goal: Ends<'b>,
        pieces: &[Piece],
        num_moves: u64,
        random: &mut Random,
    ) -> Cooling<'b> {
        let mean = self.sum(pieces) / pieces.len() as f64;
        let from = mean * random.log_between(WARM.0, WARM.1);
        let late = goal.late * random.log_between(LATE.0, LATE.1);
        let goal = Goal::Ends(Ends { late, ..goal });
        Cooling { from, to: mean * COLD, num_moves, goal }
    }

    /// The weighted sum of the ends of the tasks of these pieces.
    fn sum(&self, pieces: &[Piece]) -> f64 {
        let placed = self.player().trace(pieces);
        let mut ends = vec![0.0; self.model.tasks.len()];
        for (piece, one) in pieces.iter().zip(placed) {
            ends[piece.task] = one.end;
        }
        ends.iter().zip(self.weights).map(|(end, weight)| end * weight).sum()
    }

    fn value(&self, goal: &Ends, pieces: &[Piece]) -> f64 {
        let ends = self.player().trace(pieces).iter().map(|one| one.end).fold(0.0, f64::max);
        if ends > goal.cap || launches(pieces) > goal.most_launches {
            return f64::INFINITY;
        }
        self.sum(pieces) + goal.launch * launches(pieces) as f64
    }

    /// The same pieces with the shares by which their tasks end earliest.
    fn with_best_shares(&self, mut pieces: Vec<Piece>) -> Vec<Piece> {
        let goal = self.goal(&pieces);
        let mut value = self.value(&goal, &pieces);
        while pieces.len() <= SMALL_PIECES && pieces.iter().any(Piece::is_part) {
            let shape = Shape::Ends { cap: goal.cap, weights: self.weights };
            let Some(found) = polish(&self.player(), &pieces, shape, self.deadline) else { break };
            let found_value = self.value(&goal, &found);
            if found_value >= value * (1.0 - 1e-7) {
                break;
            }
            (value, pieces) = (found_value, found);
        }
        pieces
    }
}
