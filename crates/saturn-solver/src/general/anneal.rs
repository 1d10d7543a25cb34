//! The anytime search over orders and choices.
//!
//! In a round each stream anneals once, from the best plan or from a newly built plan, with a
//! random target and a random first temperature. Rounds get longer. Missing a deadline or departure
//! costs more than any gain, and a plan that misses less is better, whatever its value. So the
//! search first looks for a valid plan, then for a good plan. Missing a soft deadline is priced alike,
//! in proportion to its own price, and a plan that is less tardy is better, whatever its value. For
//! the cost it looks for nothing but
//! a valid plan at first: a late plan may cost nothing, and then its cost says nothing of what a
//! missed second is worth.

use std::cmp::Ordering;

use saturn_core::Objective;

use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::course::rounds::{Course, Limits};
use crate::general::construct::{Recipe, construct, guided, ranks, recipes};
use crate::general::instance::Instance;
use crate::general::play::{Choice, Genome, Placed, Player, Worth};
use crate::general::soft::tardiness;
use crate::general::wait;
use crate::problem::baselines::Pace;
use crate::problem::tardiness::compare_tardiness;

/// Moves of the first annealings; twice as many in each round.
const FIRST_ROUND: u64 = 256;
const LONGEST_ROUND: u64 = 400_000;
const MOVES_PER_LOOK: u64 = 16;
/// The cost of a missed second, in seconds of the objective.
const PENALTY: f64 = 6.0;
/// Letting the gangs of a plan wait takes as long as this many moves, times the square of the
/// number of tasks. That pays only once the search has taken as long, or as many moves.
const MOVES_OF_SHIFTS: u64 = 2;
const FREE_SHIFTS: u64 = 1_000;
/// Roughly the number of tasks times choices that recipes look at before the annealing begins. Then
/// the number of recipes: at least, for a search without other starts, and at most.
const EFFORT: usize = 4_000_000;
const LEAST_RECIPES: usize = 3;
const MOST_RECIPES: usize = 64;

/// The best genome so far.
#[derive(Debug, Clone)]
pub(crate) struct Incumbent {
    pub(crate) worth: Worth,
    pub(crate) genome: Genome,
}

/// The search in progress.
pub(crate) struct Search<'a> {
    instance: &'a Instance<'a>,
    pub(crate) course: Course,
    player: Player<'a>,
    /// No plan ends earlier.
    low: f64,
    /// No plan is less tardy.
    least_tardiness: f64,
    /// Recipes and their ranks, and how many plans were built by them.
    recipes: Vec<(Recipe, Vec<f64>)>,
    num_built: usize,
    pub(crate) best: Option<Incumbent>,
    /// For the cost: the cheapest of the best plans of each round, with waiting gangs, and its
    /// tardiness and cost.
    pub(crate) shifted: Option<((f64, f64), Vec<Placed>)>,
    length: u64,
}

impl<'a> Search<'a> {
    /// `has_starts` says whether genomes will be offered.
    pub(crate) fn new(instance: &'a Instance, course: Course, low: f64, has_starts: bool) -> Self {
        let ways = instance.tasks.len() * instance.nodes.len() * 4;
        // With a start at hand, and with many tasks, built plans deserve little time.
        let fewest = if has_starts { 0 } else { LEAST_RECIPES };
        let num_recipes = (EFFORT / ways.max(1)).clamp(fewest, MOST_RECIPES);
        let num_tasks = instance.tasks.len();
        let by_guide = instance.guide.iter().flat_map(|guide| guided(guide, num_tasks));
        let by_rule = recipes(instance.objective, low);
        let by_rule = by_rule.into_iter().map(|recipe| (recipe, ranks(instance, recipe.rule)));
        let recipes = by_guide.chain(by_rule).take(num_recipes).collect();
        Self {
            instance,
            course,
            player: Player::new(instance, Pace::Packed),
            low,
            least_tardiness: instance.least_tardiness(),
            recipes,
            num_built: 0,
            best: None,
            shifted: None,
            length: FIRST_ROUND,
        }
    }

    /// Goes on until a limit is reached or the objective meets its bound.
    pub(crate) fn advance(&mut self, limits: &Limits) {
        if !self.build(limits) {
            return;
        }
        while !self.is_optimal(limits) && !self.course.is_over(limits) {
            let Some(best) = &self.best else { return };
            if best.genome.order.is_empty() {
                return;
            }
            self.round(best.clone(), limits);
        }
    }

    /// Whether no plan is better.
    pub(crate) fn is_optimal(&self, limits: &Limits) -> bool {
        self.best.as_ref().is_some_and(|best| {
            let shifted = self.shifted.as_ref().map(|shifted| shifted.0);
            let tardiness = shifted.map_or(best.worth.tardiness, |(tardiness, _)| tardiness);
            let value = shifted.map_or(f64::INFINITY, |(_, cost)| cost);
            best.worth.is_valid()
                && compare_tardiness(tardiness, self.least_tardiness).is_le()
                && limits.are_met_by(best.worth.value.min(value))
        })
    }

    /// Takes a genome, in its order of starts, if it is better than the best.
    pub(crate) fn offer(&mut self, genome: Genome) {
        let genome = self.player.by_start(genome);
        let (worth, genome) = self.player.put_back(genome);
        self.take(Incumbent { worth, genome });
    }

    /// Takes a plan if it is better than the best.
    pub(crate) fn take(&mut self, found: Incumbent) {
        if self.best.as_ref().is_none_or(|best| found.worth.beats(&best.worth)) {
            self.best = Some(found);
        }
    }

    /// Lets the gangs of the best plan wait where that is cheaper.
    ///
    /// Only the best plans of whole rounds are treated so: a longer search finds each of these
    /// plans too.
    fn shift(&mut self) {
        let Some(best) = &self.best else { return };
        let num_tasks = self.instance.tasks.len() as u64;
        let takes = MOVES_OF_SHIFTS * num_tasks * num_tasks;
        if self.instance.objective != Objective::Cost
            || !best.worth.is_valid()
            || self.course.num_moves() < takes.saturating_sub(FREE_SHIFTS)
        {
            return;
        }
        let mut placed = self.player.placed(&best.genome);
        wait::shift_gangs(self.instance, &mut placed);
        let cost = wait::cost(self.instance, &placed);
        let tardiness = tardiness(self.instance, &placed);
        let is_better = |(least, before): (f64, f64)| match compare_tardiness(tardiness, least) {
            Ordering::Less => true,
            Ordering::Equal => cost < before,
            Ordering::Greater => false,
        };
        if self.shifted.as_ref().is_none_or(|(before, _)| is_better(*before)) {
            self.shifted = Some(((tardiness, cost), placed));
        }
    }

    /// Builds plans by the remaining recipes, until one is optimal; returns whether none remains.
    fn build(&mut self, limits: &Limits) -> bool {
        let deadline = limits.deadline;
        let may_stay = (0..self.instance.tasks.len()).any(|task| self.instance.may_stay(task));
        while let Some((recipe, rank)) = self.recipes.get(self.num_built) {
            let mut built = Vec::new();
            for stays in [true, false].into_iter().take(1 + usize::from(may_stay)) {
                let any = |_: usize, _: Choice| true;
                built.extend(construct(&mut self.player, *recipe, rank, deadline, &any, stays));
            }
            for genome in built {
                self.offer(genome);
            }
            if deadline.is_over() || self.is_optimal(limits) {
                return false;
            }
            self.num_built += 1;
            if self.num_built == self.recipes.len() {
                self.shift();
            }
        }
        true
    }

    /// One annealing on each stream.
    fn round(&mut self, start: Incumbent, limits: &Limits) {
        let Self { instance, course, recipes, low, length, .. } = self;
        let late_prices = instance.late_prices();
        let deadline = limits.deadline;
        let least_tardiness = self.least_tardiness;
        let inputs =
            Inputs { instance, recipes, low: *low, least_tardiness, late_prices, deadline };
        let length = *length;
        let items = vec![(); course.num_streams()];
        let round = course.round(limits, items, length, |(), random, most| {
            let mut player = Player::new(inputs.instance, Pace::Packed);
            inputs.anneal(&mut player, &start, (length, most), random)
        });
        let mut best = start;
        for found in round.results.into_iter().flatten() {
            let (worth, genome) = self.player.put_back(found.genome);
            let found = Incumbent { worth, genome };
            if found.worth.beats(&best.worth) {
                best = found;
            }
        }
        if round.is_whole {
            let genome = self.player.by_start(best.genome.clone());
            let (worth, genome) = self.player.put_back(genome);
            if !best.worth.beats(&worth) {
                best = Incumbent { worth, genome };
            }
            self.length = (length * 2).min(LONGEST_ROUND);
        }
        self.best = Some(best);
        if round.is_whole {
            self.shift();
        }
    }
}

/// What annealing makes small.
struct Energy {
    objective: Objective,
    /// Whether only missed deadlines count, hard and soft.
    is_late: bool,
    target: f64,
    /// The weight of a missed second, and of a unit of tardiness.
    penalty: f64,
    tardy: f64,
    /// The weight of a second of all devices.
    load: f64,
    /// The weight of a second of the makespan, if that is not the objective.
    makespan: f64,
}

impl Energy {
    fn of(&self, worth: &Worth) -> f64 {
        let late = self.penalty * worth.missed + self.tardy * worth.tardiness;
        if self.is_late {
            return late;
        }
        let value = match self.objective {
            Objective::Makespan => worth.late,
            _ => worth.value + self.makespan * worth.makespan,
        };
        value + self.load * worth.load + late
    }
}

/// The data that annealings share.
struct Inputs<'a> {
    instance: &'a Instance<'a>,
    recipes: &'a [(Recipe, Vec<f64>)],
    low: f64,
    least_tardiness: f64,
    /// The mean price of a late second, and the highest over the mean.
    late_prices: (f64, f64),
    deadline: Deadline<'a>,
}

impl Inputs<'_> {
    /// `most` moves of an annealing of `num_moves`. Returns the best genome met.
    fn anneal(
        &self,
        player: &mut Player,
        best: &Incumbent,
        (num_moves, most): (u64, u64),
        random: &mut Random,
    ) -> Option<Incumbent> {
        let Self { instance, recipes, low, deadline, .. } = *self;
        let num_nodes = instance.nodes.len() as f64;
        let mut genome = best.genome.clone();
        let one_in = if instance.tasks.len() > 40 { 8 } else { 3 };
        if !recipes.is_empty() && random.below(one_in) == 0 {
            let (recipe, rank) = &recipes[random.below(recipes.len())];
            let stays = random.below(2) == 0;
            let built = construct(player, *recipe, rank, deadline, &|_, _| true, stays);
            genome = built.unwrap_or(genome);
        }
        let is_makespan = instance.objective == Objective::Makespan;
        genome.backfills = is_makespan || random.below(2) == 0;
        let is_cost = instance.objective == Objective::Cost;
        let is_invalid = is_cost && !best.worth.is_valid();
        let is_tardy = compare_tardiness(best.worth.tardiness, self.least_tardiness).is_gt();
        let is_late = is_invalid || is_cost && is_tardy && random.below(2) == 0;
        // A second after a hard deadline weighs more than one after any soft deadline.
        let (mean_price, highest) = self.late_prices;
        let unit = match instance.objective {
            _ if is_late => best.worth.missed * highest + best.worth.tardiness / mean_price,
            Objective::Makespan => low.max(1e-9),
            _ => (best.worth.value / num_nodes).max(1e-9),
        };
        let a_second = unit / best.worth.makespan.max(1e-9);
        let least = low.min(best.worth.makespan);
        let penalty = match instance.objective {
            _ if is_late => 1.0,
            Objective::Makespan => PENALTY,
            _ => PENALTY * a_second * num_nodes,
        };
        let energy = Energy {
            objective: instance.objective,
            is_late,
            target: least + (best.worth.makespan - least) * (0.3 + 0.7 * random.unit()),
            penalty: penalty * highest,
            tardy: penalty / mean_price,
            load: if is_makespan { [0.0, 0.05, 0.2][random.below(3)] * num_nodes } else { 0.0 },
            makespan: if is_cost { 1e-4 * a_second } else { 0.0 },
        };
        // With many tasks a plan at hand is good: a hot start would only undo it.
        let warmest = 0.2 / (1.0 + instance.tasks.len() as f64 / 40.0);
        let mut temperature = unit * random.log_between(0.001, warmest);
        let num_looks = (num_moves / MOVES_PER_LOOK).max(1);
        let factor = (unit * 2e-4 / temperature).powf(1.0 / num_looks as f64);
        let mut found: Option<Incumbent> = None;
        let mut least = best.worth;
        let mut current = energy.of(&player.worth(&genome, energy.target));
        for _ in 0..num_looks.min(most / MOVES_PER_LOOK) {
            if deadline.is_over() {
                break;
            }
            for _ in 0..MOVES_PER_LOOK {
                let undo = change(instance, &mut genome, random);
                let worth = player.worth(&genome, energy.target);
                let next = energy.of(&worth);
                let is_accepted = next - current <= -temperature * (1.0 - random.unit()).ln();
                // A plan in time may cost so much more that the annealing refuses it.
                if (is_accepted || is_cost) && worth.beats(&least) {
                    least = worth;
                    found = Some(Incumbent { worth, genome: genome.clone() });
                    if is_invalid && worth.is_valid() {
                        return found;
                    }
                }
                if is_accepted {
                    current = next;
                } else {
                    undo.apply(&mut genome);
                }
            }
            temperature *= factor;
        }
        found
    }
}

/// How to take back a change.
enum Undo {
    Swap(usize, usize),
    /// Where a task is now in the order, and where it was.
    Shift(usize, usize),
    Choice(usize, Choice),
    Both(usize, Choice, usize, usize),
    Nothing,
}

impl Undo {
    fn apply(self, genome: &mut Genome) {
        match self {
            Self::Swap(left, right) => genome.order.swap(left, right),
            Self::Shift(from, to) => shift(&mut genome.order, from, to),
            Self::Choice(task, choice) => genome.choices[task] = choice,
            Self::Both(task, choice, from, to) => {
                genome.choices[task] = choice;
                shift(&mut genome.order, from, to);
            }
            Self::Nothing => {}
        }
    }
}

fn shift(order: &mut [usize], from: usize, to: usize) {
    if from < to {
        order[from..=to].rotate_left(1);
    } else {
        order[to..=from].rotate_right(1);
    }
}

/// A random change of the order, of a choice, or of both.
fn change(instance: &Instance, genome: &mut Genome, random: &mut Random) -> Undo {
    let num = genome.order.len();
    let at = random.below(num);
    // Near moves change less.
    let reach = if random.below(2) == 0 { num } else { num.min(6) };
    let other = (at + num + random.below(2 * reach) - reach) % num;
    match random.below(8) {
        0 | 1 => {
            genome.order.swap(at, other);
            Undo::Swap(at, other)
        }
        2 | 3 => {
            shift(&mut genome.order, at, other);
            Undo::Shift(other, at)
        }
        kind => {
            let task = genome.order[at];
            let old = genome.choices[task];
            let Some(new) = random_choice(instance, task, old, random) else {
                return Undo::Nothing;
            };
            genome.choices[task] = new;
            if kind == 4 {
                shift(&mut genome.order, at, other);
                return Undo::Both(task, old, other, at);
            }
            Undo::Choice(task, old)
        }
    }
}

/// Another way to run a task.
fn random_choice(
    instance: &Instance,
    task: usize,
    old: Choice,
    random: &mut Random,
) -> Option<Choice> {
    if old != Choice::Stay && instance.may_stay(task) && random.below(4) == 0 {
        return Some(Choice::Stay);
    }
    let wide = &instance.model.tasks[task].wide;
    if !wide.is_empty() && random.below(4) == 0 {
        let mode = random.below(wide.len());
        let lead = (random.below(2) == 0).then(|| random.below(instance.nodes.len()));
        return instance.has_nodes_for(task, &wide[mode]).then_some(Choice::Wide { mode, lead });
    }
    let node = match old {
        Choice::Narrow { node, .. } if random.below(2) == 0 => node,
        _ => match &instance.tasks[task].nodes {
            Some(nodes) if nodes.is_empty() => return None,
            Some(nodes) => nodes[random.below(nodes.len())],
            None => random.below(instance.nodes.len()),
        },
    };
    let modes = instance.model.modes_on(task, node);
    match old {
        _ if modes.is_empty() => None,
        Choice::Narrow { mode, .. } if mode < modes.len() && random.below(2) == 0 => {
            Some(Choice::Narrow { node, mode })
        }
        _ => Some(Choice::Narrow { node, mode: random.below(modes.len()) }),
    }
}
