//! The search with switches: pieces of tasks on nodes, annealed in rounds and polished.

use saturn_core::{Plan, WHOLE};

use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::course::rounds::{Course, Limits};
use crate::lists::search as lists;
use crate::lists::solve::Solve;
use crate::problem::model::Model;
use crate::problem::options::Options;
use crate::split::anneal::{Cooling, Goal, Region};
use crate::split::pieces::{Piece, Player, settle_shares, stays_first};
use crate::split::polish::{self, Shape};
use crate::split::reading;
use crate::split::region;

/// Moves with switches for each move without, in small problems.
const SWITCHED_PER_WHOLE: u64 = 3;
/// Moves without switches for each move with, in large problems, and before them so many for each
/// task: most of what can be had there comes from a good plan of whole tasks.
const WHOLE_PER_SWITCHED: u64 = 3;
const WHOLE_FIRST: u64 = 8_000;
/// Up to this many tasks and nodes a problem is annealed whole.
const SMALL_TASKS: usize = 60;
const SMALL_NODES: usize = 4;
/// Moves of the first annealings. Their number doubles in each round up to a limit, and every few
/// rounds from there on.
const FIRST: u64 = 128;
const SHORT: u64 = 20_000;
const LONGEST: u64 = 2_000_000;
const ROUNDS_PER_LENGTH: u64 = 2;
/// One run in so many starts at random, not from the best plan.
const FRESH: usize = 8;
/// The first temperature, least and most, relative to the bound.
const WARM: (f64, f64) = (0.01, 0.3);
/// The last temperature, relative to the bound, where all nodes are annealed and where some are. The
/// long annealings of small problems end with the shares of the work, which only the cold settles.
const COLD_WHOLE: f64 = 0.000_05;
const COLD_REGION: f64 = 0.0003;
/// How far to the bound a target of small problems is, at most.
const REACH: f64 = 0.5;
/// Weight of the area, least and most.
const AREA: (f64, f64) = (0.7, 2.0);
/// The search gives up after this many regions in a row that are too large.
const MOST_REFUSED: u32 = 100;
/// Moves of one run in a region.
const MENDING: u64 = 30_000;
/// Pieces that end later than the best plan by more than this part are not polished.
const POLISHING: f64 = 0.01;
/// With more tasks than this the program of the shares is too large.
const POLISHED_TASKS: usize = 300;

/// The search with switches in progress.
pub(crate) struct Search<'a, 'b> {
    solve: &'a Solve<'a>,
    /// With runtimes without switch costs.
    model: &'b Model,
    /// No plan ends earlier.
    low: f64,
    /// Whether all nodes are annealed together.
    is_small: bool,
    switch_costs: Vec<f64>,
    may_switch: Vec<bool>,
    /// The search for whole tasks, which goes on beside this search, and its best plan.
    whole: Option<lists::Search<'a>>,
    without: &'b mut Plan,
    course: Course,
    best: Incumbent,
    /// Moves of an annealing, and rounds of that length so far.
    length: u64,
    num_rounds: u64,
    /// The number of regions in a row that were too large.
    num_refused: u32,
    /// Moves at which a large problem's pieces are polished next.
    polishes_at: u64,
}

/// The best pieces so far and when they end.
#[derive(Clone)]
struct Incumbent {
    end: f64,
    pieces: Vec<Piece>,
}

impl<'a, 'b> Search<'a, 'b> {
    /// Begins with the plan without switches; `None` if that plan has wide gangs.
    pub(crate) fn new(
        solve: &'a Solve<'a>,
        whole: Option<lists::Search<'a>>,
        model: &'b Model,
        low: f64,
        without: &'b mut Plan,
    ) -> Option<Self> {
        let Options { seed, threads, .. } = *solve.options;
        let mut search = Self {
            solve,
            model,
            low,
            is_small: model.tasks.len() <= SMALL_TASKS && model.nodes.len() <= SMALL_NODES,
            switch_costs: reading::switch_costs(solve.problem),
            may_switch: reading::may_switch(solve.problem, model),
            whole,
            without,
            course: Course::new(seed, threads),
            best: Incumbent { end: f64::INFINITY, pieces: Vec::new() },
            length: FIRST,
            num_rounds: 0,
            num_refused: 0,
            polishes_at: MENDING,
        };
        search.best = search.incumbent(search.without)?;
        let warm = solve.options.warm_start.as_ref();
        if let Some(warm) = warm.and_then(|plan| search.incumbent(plan)) {
            search.take(warm);
        }
        Some(search)
    }

    fn player(&self) -> Player<'_> {
        Player::new(self.model, &self.switch_costs)
    }

    fn take(&mut self, found: Incumbent) {
        if found.end < self.best.end {
            self.best = found;
        }
    }

    /// Goes on, with switches and without them in turn, until a limit is reached.
    pub(crate) fn advance(&mut self, limits: &Limits) {
        while self.advance_whole(limits) {
            let spent = self.whole.as_ref().map_or(0, lists::Search::num_moves);
            let max_moves = limits.max_moves.map(|most| most.saturating_sub(spent));
            let limits = Limits { max_moves, ..*limits };
            if self.is_optimal(&limits) || self.course.is_over(&limits) {
                return;
            }
            if self.is_small {
                self.anneal_whole(&limits);
            } else if !self.mend(&limits) {
                return;
            }
            if !self.is_small && self.course.num_moves() >= self.polishes_at {
                if self.model.tasks.len() <= POLISHED_TASKS {
                    self.improve(self.best.pieces.clone());
                }
                self.polishes_at = self.course.num_moves().saturating_mul(2);
            }
        }
    }

    /// Lets the search without switches catch up; returns whether it did.
    fn advance_whole(&mut self, limits: &Limits) -> bool {
        let Some(whole) = &mut self.whole else { return true };
        let spent = self.course.num_moves();
        let rests_at = if self.is_small {
            spent / SWITCHED_PER_WHOLE
        } else {
            self.model.tasks.len() as u64 * WHOLE_FIRST + spent * WHOLE_PER_SWITCHED
        };
        let max_moves = limits.max_moves.map(|most| most.saturating_sub(spent));
        // The bound on plans with switches holds for plans without switches too.
        whole.advance(&Limits { max_moves, rests_at, ..*limits });
        self.solve.adopt(self.without, whole.lists());
        if whole.num_moves() < rests_at && !whole.is_optimal(limits) {
            // Its findings since then count only as a plan without switches.
            return false;
        }
        if let Some(found) = self.incumbent(self.without) {
            self.take(found);
        }
        true
    }

    /// The best plan without switches.
    pub(crate) fn without(&self) -> &Plan {
        self.without
    }

    /// The search without switches, to go on with alone.
    pub(crate) fn into_whole(self) -> Option<lists::Search<'a>> {
        self.whole
    }

    pub(crate) fn is_optimal(&self, limits: &Limits) -> bool {
        limits.are_met_by(self.best.end)
    }

    /// Takes the best pieces into the plan.
    pub(crate) fn adopt(&self, plan: &mut Plan) {
        if self.best.end < plan.makespan_s {
            let assignments = self.player().assignments(&self.best.pieces);
            plan.set_assignments(self.solve.problem, assignments);
        }
    }

    /// A plan as pieces; `None` where it has none.
    fn incumbent(&self, plan: &Plan) -> Option<Incumbent> {
        let Options { max_switches, .. } = *self.solve.options;
        let pieces =
            reading::pieces(self.solve.problem, self.model, plan, &self.may_switch, max_switches)?;
        let end = self.end(&pieces);
        Some(Incumbent { end, pieces })
    }

    fn end(&self, pieces: &[Piece]) -> f64 {
        self.player().trace(pieces).iter().map(|one| one.end).fold(0.0, f64::max)
    }

    /// Takes pieces, polished, if they end earlier.
    fn improve(&mut self, mut pieces: Vec<Piece>) {
        settle_shares(&mut pieces, self.model.tasks.len());
        let mut end = self.end(&pieces);
        while let Some(polished) =
            polish::polish(&self.player(), &pieces, Shape::Makespan, self.solve.deadline)
        {
            let polished_end = self.end(&polished);
            if polished_end >= end * (1.0 - 1e-7) {
                break;
            }
            (end, pieces) = (polished_end, polished);
        }
        self.take(Incumbent { end, pieces });
    }

    /// Anneals some nodes and all pieces on them, from `pieces`; the best pieces met before `bar`.
    fn anneal(
        &self,
        nodes: &[usize],
        pieces: Vec<Piece>,
        (target, bar): (f64, f64),
        (num_moves, most): (u64, u64),
        deadline: Deadline,
        random: &mut Random,
    ) -> Option<Vec<Piece>> {
        let cold = if self.is_small { COLD_WHOLE } else { COLD_REGION };
        let cooling = Cooling {
            from: self.low * random.log_between(WARM.0, WARM.1),
            to: self.low * cold,
            num_moves,
            goal: Goal::Makespan { target, area: random.log_between(AREA.0, AREA.1) },
        };
        let max_pieces = self.solve.options.max_switches + 1;
        let mut region =
            Region::new(self.player(), nodes.to_vec(), max_pieces, &self.may_switch, pieces);
        region.run(cooling, most, bar, deadline, random)
    }

    /// Small problems: a round in which each stream anneals all nodes at once. The best of an
    /// annealing is polished even if it is no better than the known plan: its shares may be far
    /// from theirs.
    fn anneal_whole(&mut self, limits: &Limits) {
        let nodes: Vec<usize> = (0..self.model.nodes.len()).collect();
        let length = self.length;
        let mut course = self.course.clone();
        let items = vec![(); course.num_streams()];
        let round = course.round(limits, items, length, |(), random, most| {
            let is_fresh = random.below(FRESH) == 0;
            let pieces = if is_fresh { self.random(random) } else { self.best.pieces.clone() };
            let target = self.best.end - (self.best.end - self.low) * REACH * random.unit();
            let bars = (target, f64::INFINITY);
            self.anneal(&nodes, pieces, bars, (length, most), limits.deadline, random)
        });
        self.course = course;
        for mut pieces in round.results.into_iter().flatten() {
            settle_shares(&mut pieces, self.model.tasks.len());
            let end = self.end(&pieces);
            // Polishing gains little more than this. A part of a round may find pieces that polish
            // to more than those of the whole round.
            if round.is_whole && end < self.best.end * (1.0 + POLISHING) {
                self.improve(pieces);
            } else {
                self.take(Incumbent { end, pieces });
            }
        }
        if round.is_whole {
            self.num_rounds += 1;
            if self.length < SHORT || self.num_rounds == ROUNDS_PER_LENGTH {
                let most = if self.length < SHORT { SHORT } else { LONGEST };
                self.length = (self.length * 2).min(most);
                self.num_rounds = 0;
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

    /// Large problems: a round in which nodes that end last, each with some others, are annealed.
    /// Returns false if no region is small enough.
    fn mend(&mut self, limits: &Limits) -> bool {
        let model = self.model;
        let all: Vec<usize> = (0..model.nodes.len()).collect();
        let ends = self.player().ends(&all, &self.best.pieces);
        let mut is_taken = vec![false; model.nodes.len()];
        let mut course = self.course.clone();
        let mut dealer = course.dealer();
        let most_jobs = course.num_streams().min(all.len().div_ceil(region::REGION_NODES));
        let jobs = (0..most_jobs)
            .map(|_| region::choose(&self.best.pieces, &ends, &mut is_taken, &mut dealer));
        let jobs: Vec<Vec<usize>> = jobs.filter(|nodes| !nodes.is_empty()).collect();
        if jobs.is_empty() {
            self.course.pass();
            self.num_refused += 1;
            return self.num_refused <= MOST_REFUSED;
        }
        self.num_refused = 0;
        let round = course.round(limits, jobs, MENDING, |nodes, random, most| {
            let is_here = |piece: &&Piece| nodes.contains(&piece.node);
            let pieces: Vec<Piece> = self.best.pieces.iter().filter(is_here).copied().collect();
            let end = nodes.iter().map(|node| ends[*node]).fold(0.0, f64::max);
            let target = self.low + (end - self.low) * random.unit();
            let moves = (MENDING, most);
            let found = self.anneal(&nodes, pieces, (target, end), moves, limits.deadline, random);
            found.map(|pieces| (nodes, pieces))
        });
        self.course = course;
        let mut pieces = self.best.pieces.clone();
        for (nodes, better) in round.results.into_iter().flatten() {
            // Nodes that share no task are played alike in any order.
            pieces.retain(|piece| !nodes.contains(&piece.node));
            pieces.extend(better);
        }
        settle_shares(&mut pieces, model.tasks.len());
        // A region that ends earlier is kept though another node still ends as late as before.
        let end = self.end(&pieces);
        if round.is_whole || end < self.best.end {
            self.best = Incumbent { end, pieces };
        }
        true
    }
}
