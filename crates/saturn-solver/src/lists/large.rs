//! Large problems, in cycles: hundreds of fillings, the best annealed as a whole, then mended.
//!
//! Fillings (`fill`) come within a percent or two of the bound, each in milliseconds. Then all
//! nodes are annealed, cold, in short epochs, at one target, in shares that are dealt anew every
//! epoch. The target does not fall on the way. Otherwise gangs would become too long, and the modes
//! that replace them can ruin a node beyond what a cold annealing mends. A few nodes stay late, and
//! `mend` improves them. Each cycle is longer than the cycle before, so that the share of each of
//! its parts does not depend on when the search ends.

use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::course::rounds::Limits;
use crate::lists::anneal::{Cooling, Region};
use crate::lists::fill::{Recipe, fill};
use crate::lists::list::{Lists, makespan};
use crate::lists::mend::Mend;
use crate::lists::progress::Progress;
use crate::lists::settle::{Incumbent, settled};
use crate::lists::shares::{Share, collect, deal};
use crate::problem::model::Model;

/// Moves for each task of the first cycle, and the growth from each cycle to the next.
const FIRST_PER_TASK: u64 = 600;
const GROWTH: f64 = 1.5;
/// The shares of a cycle for fillings and for annealing the whole.
const FILL: f64 = 0.4;
const WHOLE: f64 = 0.12;
/// Roughly the most gangs tried out for one plan, which bounds the drawings if there are many
/// tasks.
const LONGEST_FILL: f64 = 2e6;
/// Drawings of a node, at most.
const MOST_DRAWS: f64 = 200.0;
/// Gangs that an item of a round of fillings tries out for each task.
const FILL_PER_TASK: u64 = 60;
/// The most by which a price differs from that of the best plan so far, as a factor.
const DRIFT: f64 = 1.03;
/// Moves of an item in an epoch, at most, and epochs in a cycle at least.
const EPOCH: u64 = 60_000;
const LEAST_EPOCH: u64 = 1_024;
const EPOCHS: u64 = 8;

/// How far the search of a large problem has come.
pub(crate) struct Large {
    /// Moves of this cycle.
    size: f64,
    phase: Phase,
    filled: Filled,
    /// The lists that are annealed and mended.
    current: Lists,
}

/// The present part of a cycle, and its remaining moves.
enum Phase {
    Fill { left: u64 },
    Anneal { done: u64, total: u64, target: f64 },
    Mend { left: u64, mend: Mend },
}

/// The best filling so far.
#[derive(Clone)]
struct Filled {
    value: f64,
    lists: Lists,
    prices: Vec<f64>,
    /// How near to the bound to aim: nearer after a hit, farther after a miss.
    aim: f64,
    /// Whether this cycle found it.
    is_new: bool,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
fn moves(number: f64) -> u64 {
    number as u64
}

impl Large {
    /// A warm start that no filling beats is only mended: annealing the whole would lose its
    /// quality.
    pub(crate) fn new(progress: &Progress) -> Self {
        let size = (FIRST_PER_TASK * progress.model.tasks.len() as u64) as f64;
        let filled = Filled {
            value: progress.best.value,
            lists: progress.best.lists.clone(),
            prices: progress.bound.prices.clone(),
            aim: 0.7,
            is_new: false,
        };
        let current = progress.best.lists.clone();
        Self { size, phase: Phase::Fill { left: moves(size * FILL) }, filled, current }
    }

    pub(crate) fn round(&mut self, progress: &mut Progress, limits: &Limits) {
        let before = progress.course.num_moves();
        let spent = |progress: &Progress| progress.course.num_moves() - before;
        match &mut self.phase {
            Phase::Fill { .. } => {
                self.fill(progress, limits);
                let spent = spent(progress);
                let Phase::Fill { left } = &mut self.phase else { return };
                *left = left.saturating_sub(spent);
                if *left == 0 {
                    self.phase = self.after_filling(progress);
                }
            }
            Phase::Anneal { done, total, target } => {
                let (share, target) = (*done as f64 / *total as f64, *target);
                let length = *total / EPOCHS;
                epoch(progress, limits, &mut self.current, target, share, length);
                *done += spent(progress);
                if done >= total {
                    self.phase = self.mending(progress, target);
                }
            }
            Phase::Mend { left, mend } => {
                mend.round(progress, limits, &mut self.current);
                *left = left.saturating_sub(spent(progress));
                if *left == 0 {
                    self.size *= GROWTH;
                    self.filled.is_new = false;
                    self.phase = Phase::Fill { left: moves(self.size * FILL) };
                }
            }
        }
    }

    fn after_filling(&mut self, progress: &Progress) -> Phase {
        let target = self.target(progress);
        if self.filled.is_new {
            self.current.clone_from(&self.filled.lists);
            let total = moves(self.size * WHOLE).max(1);
            Phase::Anneal { done: 0, total, target }
        } else {
            self.current.clone_from(&progress.best.lists);
            self.mending(progress, target)
        }
    }

    fn mending(&self, progress: &Progress, target: f64) -> Phase {
        let left = moves(self.size * (1.0 - FILL - WHOLE));
        let mend = Mend::new(progress.model, &self.current, target);
        Phase::Mend { left, mend }
    }

    /// The makespan that annealing the whole can be expected to reach in this cycle.
    fn target(&self, progress: &Progress) -> f64 {
        let per_task = self.size / progress.model.tasks.len() as f64;
        let least = progress.bound.makespan;
        // Measured: 1.4% above the bound with 20,000 moves a task on 128 nodes of 8.
        let reach = 0.014 * (2e4 / per_task.max(1.0)).powf(0.3);
        (least * (1.0 + reach.max(0.002))).min(least + (self.filled.value - least) * 0.7)
    }

    /// Draws fillings.
    fn fill(&mut self, progress: &mut Progress, limits: &Limits) {
        let Progress { model, bound, course, .. } = progress;
        let filling = Fillings {
            model,
            least: bound.makespan,
            tasks: self.filled.lists.iter().flatten().map(|entry| entry.task as usize).collect(),
            nodes: (0..model.nodes.len()).collect(),
            is_first: course.num_moves() == 0,
            deadline: limits.deadline,
        };
        let length = FILL_PER_TASK * model.tasks.len() as u64;
        let start = &self.filled;
        let items = vec![(); course.num_streams()];
        let round = course.round(limits, items, length, |(), random, most| {
            filling.draw(start.clone(), most, random)
        });
        let aims = round.results.iter().map(|found| found.aim);
        let aim = aims.sum::<f64>() / round.results.len().max(1) as f64;
        let best =
            round.results.into_iter().min_by(|left, right| left.value.total_cmp(&right.value));
        if let Some(best) = best.filter(|best| best.value < self.filled.value) {
            progress.take(Incumbent { value: best.value, lists: best.lists.clone() });
            if round.is_whole {
                self.filled = Filled { aim, is_new: true, ..best };
            }
        } else if round.is_whole {
            self.filled.aim = aim;
        }
    }
}

/// The model, tasks and nodes of fillings, and the limits within which fillings are drawn.
struct Fillings<'a> {
    model: &'a Model,
    least: f64,
    tasks: Vec<usize>,
    nodes: Vec<usize>,
    /// Whether these are the first of the search.
    is_first: bool,
    deadline: Deadline<'a>,
}

impl Fillings<'_> {
    /// Fillings, one after another, until `most` gangs were tried out. Returns the best filling, if
    /// it beats the filling to begin with.
    fn draw(&self, mut best: Filled, most: u64, random: &mut Random) -> Filled {
        let num_tasks = self.model.tasks.len() as f64;
        let most_draws = (LONGEST_FILL / 10.0 / num_tasks).clamp(10.0, MOST_DRAWS);
        let mut num_steps = 0;
        while num_steps < most && best.value > self.least * (1.0 + 1e-9) {
            let above = (best.value - self.least).min(self.least * 0.03);
            let reach = above * best.aim * (0.8 + 0.2 * random.unit());
            let mut recipe = Recipe::random(self.least + reach, most_draws, random);
            if self.is_first && num_steps == 0 {
                // If no task has to be moved, none should be.
                recipe.moved = 0.0;
            }
            // Prices decide which tasks go to which kind of node. Half of the fillings use the
            // prices of the best plan so far, the other half change these prices a little.
            let mut prices = best.prices.clone();
            if random.below(2) == 0 {
                for price in &mut prices {
                    *price *= random.log_between(1.0 / DRIFT, DRIFT);
                }
            }
            let tasks = self.tasks.clone();
            let filled =
                fill(self.model, &prices, &self.nodes, tasks, recipe, self.deadline, random);
            let Some((lists, steps)) = filled else { break };
            // Perhaps no task fits the target: that too counts, or this would not end.
            num_steps += steps.max(1);
            if makespan(self.model, &lists) < best.value {
                let Incumbent { value, lists } = settled(self.model, lists);
                best = Filled { value, lists, prices, aim: (best.aim * 0.85).max(0.3), ..best };
            } else {
                best.aim = (best.aim * 1.05).min(1.0);
            }
        }
        best
    }
}

/// Anneals the whole for a while, after `share` of the moves for that.
fn epoch(
    progress: &mut Progress,
    limits: &Limits,
    current: &mut Lists,
    target: f64,
    share: f64,
    length: u64,
) {
    let Progress { model, bound, course, .. } = progress;
    let (model, bound) = (*model, *bound);
    // Heat would only spoil the result of filling.
    let (hot, cold) = (bound.makespan * 0.0007, bound.makespan * 0.0003);
    let temperature = hot * (cold / hot).powf(share.min(1.0));
    let shares = deal(course, current);
    let length = (length / shares.len() as u64).clamp(LEAST_EPOCH, EPOCH);
    let cooling = Cooling { from: temperature, to: temperature, num_moves: length };
    let round = course.round(limits, shares, length, |mut share, random, most| {
        let lists = std::mem::take(&mut share.lists);
        let mut region = Region::new(model, &bound.prices, share.nodes, lists, target);
        region.run(cooling, most, None, limits.deadline, random);
        Share { nodes: region.nodes, lists: region.lists }
    });
    if round.is_whole {
        collect(round.results, current);
        progress.offer(current);
    }
}
