//! The anytime search over orders and choices.
//!
//! Every round each thread anneals once, from the best plan or from one that was built anew, with a
//! random target and a random first temperature; rounds get longer. What deadlines and departures are
//! missed by costs more than anything that could be gained by it, and a plan that misses less is
//! better whatever it is worth: so the search first looks for a plan that is valid, then for a good
//! one. Threads meet after a fixed number of moves: results depend on the seed and on the number of
//! moves, not on timing.

use saturn_core::Objective;

use super::construct::{Recipe, construct, ranks, recipes};
use super::instance::Instance;
use super::play::{Choice, Genome, Player, Worth};
use crate::baselines::Pace;
use crate::clock::Deadline;
use crate::random::Random;
use crate::search::in_threads;

/// Moves of the first rounds.
const FIRST_ROUND: u64 = 4_000;
const LONGEST_ROUND: u64 = 400_000;
const MOVES_PER_LOOK: u64 = 16;
/// What a second that is missed counts, in seconds of the objective.
const PENALTY: f64 = 6.0;
/// Tasks times choices looked at by recipes before the annealing begins, roughly.
const EFFORT: usize = 4_000_000;

/// What a search works within.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    pub(crate) deadline: Deadline<'a>,
    pub(crate) max_moves: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// No plan is worth less under the objective.
    pub(crate) bound: f64,
    /// No plan ends earlier.
    pub(crate) low: f64,
}

/// The best genome so far.
#[derive(Debug, Clone)]
pub(crate) struct Incumbent {
    pub(crate) worth: Worth,
    pub(crate) genome: Genome,
}

/// Searches until a limit is reached or the objective meets its bound. `None` without time for
/// even one plan.
pub(crate) fn search(instance: &Instance, warm: Vec<Genome>, limits: Limits) -> Option<Incumbent> {
    let mut player = Player::new(instance, Pace::Packed);
    let mut best: Option<Incumbent> = None;
    for genome in warm {
        offer(&mut player, &mut best, genome);
    }
    let ways = instance.tasks.len() * instance.nodes.len() * 4;
    // With a start at hand, plans built in one go are worth little time where tasks are many.
    let fewest = if best.is_some() { 0 } else { 3 };
    let num_recipes = (EFFORT / ways.max(1)).clamp(fewest, 64);
    let may_stay = (0..instance.tasks.len()).any(|task| instance.may_stay(task));
    let all: Vec<(Recipe, Vec<f64>)> = recipes(instance.objective, limits.low)
        .into_iter()
        .take(num_recipes)
        .map(|recipe| (recipe, ranks(instance, recipe.rule)))
        .collect();
    for (recipe, rank) in &all {
        for stays in [true, false].into_iter().take(1 + usize::from(may_stay)) {
            let genome =
                construct(&mut player, *recipe, rank, limits.deadline, &|_, _| true, stays);
            if let Some(genome) = genome {
                offer(&mut player, &mut best, genome);
            }
        }
        if limits.deadline.is_over() {
            break;
        }
    }
    let mut best = best?;
    if best.genome.order.is_empty() {
        return Some(best);
    }
    let mut streams: Vec<(Random, Player)> = (0..limits.threads as u64)
        .map(|stream| (Random::new(limits.seed, stream), Player::new(instance, Pace::Packed)))
        .collect();
    let (mut num_moves, mut length) = (0, FIRST_ROUND);
    while !is_done(&best, &limits, num_moves) {
        let left = limits.max_moves.map_or(u64::MAX, |limit| limit - num_moves);
        let share = left.div_ceil(limits.threads as u64).min(length);
        let results = in_threads(&mut streams, |(random, player), moves| {
            anneal(player, &best, &limits, &all, share, random, moves)
        });
        for (found, moves) in results {
            num_moves += moves.max(1);
            if let Some(found) = found
                && found.worth.beats(&best.worth)
            {
                best = found;
            }
        }
        let genome = by_start(&mut player, best.genome.clone());
        let worth = player.worth(&genome, f64::INFINITY);
        if !best.worth.beats(&worth) {
            best = Incumbent { worth, genome };
        }
        length = (length * 5 / 4).min(LONGEST_ROUND);
    }
    Some(best)
}

/// Takes a genome, in its order of starts, if it is better than the best.
fn offer(player: &mut Player, best: &mut Option<Incumbent>, genome: Genome) {
    let genome = by_start(player, genome);
    let worth = player.worth(&genome, f64::INFINITY);
    if best.as_ref().is_none_or(|best| worth.beats(&best.worth)) {
        *best = Some(Incumbent { worth, genome });
    }
}

fn is_done(best: &Incumbent, limits: &Limits, num_moves: u64) -> bool {
    let is_optimal = best.worth.is_valid() && best.worth.value <= limits.bound * (1.0 + 1e-9);
    is_optimal
        || limits.deadline.is_over()
        || limits.max_moves.is_some_and(|limit| num_moves >= limit)
}

/// The same choices with the gangs in order of start: no gang starts later for it.
pub(crate) fn by_start(player: &mut Player, mut genome: Genome) -> Genome {
    player.play(&genome);
    genome.order.sort_by(|left, right| player.starts[*left].total_cmp(&player.starts[*right]));
    genome
}

/// What annealing makes small.
struct Energy {
    objective: Objective,
    target: f64,
    /// What a missed second counts.
    penalty: f64,
    /// What a second of all devices counts.
    load: f64,
    /// What a second of the makespan counts, where it is not the objective.
    makespan: f64,
}

impl Energy {
    fn of(&self, worth: &Worth) -> f64 {
        let value = match self.objective {
            Objective::Makespan => worth.late,
            _ => worth.value + self.makespan * worth.makespan,
        };
        value + self.load * worth.load + self.penalty * worth.missed
    }
}

/// One annealing; the best genome met.
fn anneal(
    player: &mut Player,
    best: &Incumbent,
    limits: &Limits,
    recipes: &[(Recipe, Vec<f64>)],
    num_moves: u64,
    random: &mut Random,
    moves: &mut u64,
) -> Option<Incumbent> {
    let instance = player.instance;
    let num_nodes = instance.nodes.len() as f64;
    let mut genome = best.genome.clone();
    let one_in = if instance.tasks.len() > 40 { 8 } else { 3 };
    if !recipes.is_empty() && random.below(one_in) == 0 {
        let (recipe, rank) = &recipes[random.below(recipes.len())];
        let stays = random.below(2) == 0;
        let built = construct(player, *recipe, rank, limits.deadline, &|_, _| true, stays);
        genome = built.unwrap_or(genome);
    }
    let is_makespan = instance.objective == Objective::Makespan;
    genome.backfills = is_makespan || random.below(2) == 0;
    let unit = match instance.objective {
        Objective::Makespan => limits.low.max(1e-9),
        _ => (best.worth.value / num_nodes).max(1e-9),
    };
    let a_second = unit / best.worth.makespan.max(1e-9);
    let least = limits.low.min(best.worth.makespan);
    let energy = Energy {
        objective: instance.objective,
        target: least + (best.worth.makespan - least) * (0.3 + 0.7 * random.unit()),
        penalty: PENALTY * if is_makespan { 1.0 } else { a_second * num_nodes },
        load: if is_makespan { [0.0, 0.05, 0.2][random.below(3)] * num_nodes } else { 0.0 },
        makespan: if instance.objective == Objective::Cost { 1e-4 * a_second } else { 0.0 },
    };
    // Where there are many tasks a plan at hand is good: warmth would only undo it.
    let warmest = 0.2 / (1.0 + instance.tasks.len() as f64 / 40.0);
    let mut temperature = unit * random.log_between(0.001, warmest);
    let num_looks = (num_moves / MOVES_PER_LOOK).max(1);
    let factor = (unit * 2e-4 / temperature).powf(1.0 / num_looks as f64);
    let mut found: Option<Incumbent> = None;
    let mut least = best.worth;
    let mut current = energy.of(&player.worth(&genome, energy.target));
    for _ in 0..num_looks {
        if limits.deadline.is_over() {
            break;
        }
        for _ in 0..MOVES_PER_LOOK {
            *moves += 1;
            let undo = change(instance, &mut genome, random);
            let worth = player.worth(&genome, energy.target);
            let next = energy.of(&worth);
            if next - current <= -temperature * (1.0 - random.unit()).ln() {
                current = next;
                if worth.beats(&least) {
                    least = worth;
                    found = Some(Incumbent { worth, genome: genome.clone() });
                }
            } else {
                undo.apply(&mut genome);
            }
        }
        temperature *= factor;
    }
    found
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
