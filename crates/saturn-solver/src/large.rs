//! Large problems: filled by the hundred, the best annealed once as a whole, then mended.
//!
//! Fillings (`fill`) come within a percent or two of the bound, each in milliseconds. Then all
//! nodes are annealed, cold, in short epochs, each thread on its own share of them, dealt anew
//! every epoch, at one target: lowering the target on the way makes gangs too long, and what takes
//! their place can ruin a node beyond what a cold annealing mends. That leaves a few nodes late,
//! which `mend` sees to.

use crate::anneal::{Cooling, Region};
use crate::fill::{Recipe, fill};
use crate::lists::{Entry, Lists};
use crate::mend::mend;
use crate::random::Random;
use crate::search::{Incumbent, Search, in_threads};

/// Percent of the limits for fillings.
const FILL: u32 = 40;
/// Gangs tried out for one plan, at most, roughly: what bounds the drawings where tasks are many.
const LONGEST_FILL: f64 = 2e6;
/// Drawings of a node, at most.
const MOST_DRAWS: f64 = 200.0;
/// How far a price is from that of the best plan so far, at most, as a factor.
const DRIFT: f64 = 1.03;
/// Moves of each thread in an epoch.
const EPOCH: u64 = 60_000;
/// Percent of the limits at which annealing the whole is over.
const WHOLE: u32 = 52;
/// Moves that one thread makes in a second, roughly; sets the first target only.
const MOVES_PER_SECOND: f64 = 4e6;

/// Improves `best` until a limit is reached.
///
/// A warm start that no filling beats is mended only: annealing the whole would lose what it has.
pub(crate) fn search(search: &Search, best: &mut Incumbent, is_warm: bool) {
    let mut threads: Vec<Random> = (0..search.threads.min(search.model.nodes.len()) as u64)
        .map(|stream| Random::new(search.seed, stream))
        .collect();
    let mut dealer = Random::new(search.seed, u64::MAX - 1);
    let mut num_moves = 0;
    let before = best.value;
    num_moves += fill_often(search, best);
    let share = f64::from(WHOLE - FILL) / f64::from(100 - FILL);
    let whole = Search {
        deadline: search.deadline.within(search.deadline.left_s() * share),
        max_moves: search.max_moves.map(|moves| moves / 100 * u64::from(WHOLE)),
        ..*search
    };
    let target = first_target(search, best);
    let mut current = best.lists.clone();
    if !is_warm || best.value < before {
        anneal(&whole, best, &mut current, target, &mut threads, &mut dealer, &mut num_moves);
    }
    mend(search, best, current, target, &mut threads, &mut dealer, &mut num_moves);
}

/// Draws fillings, each thread its own, and returns the steps that took.
fn fill_often(search: &Search, best: &mut Incumbent) -> u64 {
    let Search { model, bound, .. } = *search;
    let until = search.deadline.within(search.deadline.left_s() * f64::from(FILL) / 100.0);
    let max_steps = search
        .max_moves
        .map_or(u64::MAX, |moves| moves / 100 * u64::from(FILL) / search.threads as u64);
    let least = bound.makespan;
    let nodes: Vec<usize> = (0..model.nodes.len()).collect();
    let placed = best.lists.iter().flatten().map(|entry| entry.task as usize);
    let tasks: Vec<usize> = placed.collect();
    let mut randoms: Vec<Random> = (0..search.threads as u64)
        .map(|stream| Random::new(search.seed, u64::MAX - 2 - stream))
        .collect();
    let results = in_threads(&mut randoms, |random, num_steps| {
        let mut found: Option<Incumbent> = None;
        let mut value = best.value;
        // Other prices send other tasks to a kind: those of the best plan so far, and a little off.
        let mut prices = bound.prices.clone();
        // How near to the bound to aim: nearer after a hit, farther after a miss.
        let mut aim: f64 = 0.7;
        let most_draws = (LONGEST_FILL / 10.0 / model.tasks.len() as f64).clamp(10.0, MOST_DRAWS);
        while *num_steps < max_steps && !until.is_over() && value > least * (1.0 + 1e-9) {
            let reach = (value - least).min(least * 0.03) * aim * (0.8 + 0.2 * random.unit());
            let mut recipe = Recipe::random(least + reach, most_draws, random);
            if *num_steps == 0 {
                // Where nothing has to be moved, nothing should be.
                recipe.moved = 0.0;
            }
            let mut tried = prices.clone();
            if random.below(2) == 0 {
                for price in &mut tried {
                    *price *= random.log_between(1.0 / DRIFT, DRIFT);
                }
            }
            let (lists, steps) = fill(model, &tried, &nodes, tasks.clone(), recipe, random);
            // Nothing may fit the target: that too counts, or this would not end.
            *num_steps += steps.max(1);
            let reached = search.value(&lists);
            if reached < value {
                value = reached;
                found = Some(Incumbent { value, lists });
                prices = tried;
                aim = (aim * 0.85).max(0.3);
            } else {
                aim = (aim * 1.05).min(1.0);
            }
        }
        found
    });
    let mut num_steps = 0;
    for (found, steps) in results {
        num_steps += steps;
        if let Some(found) = found.filter(|found| found.value < best.value) {
            *best = found;
        }
    }
    num_steps
}

/// The makespan that annealing the whole can be expected to reach with the moves at hand.
fn first_target(search: &Search, best: &Incumbent) -> f64 {
    let moves = search
        .max_moves
        .map_or(search.deadline.left_s() * MOVES_PER_SECOND * search.threads as f64, |moves| {
            moves as f64
        });
    let per_task = moves / search.model.tasks.len() as f64;
    let least = search.bound.makespan;
    // Measured: 1.4% above the bound with 20,000 moves a task on 128 nodes of 8.
    let reach = 0.014 * (2e4 / per_task.max(1.0)).powf(0.3);
    (least * (1.0 + reach.max(0.002))).min(least + (best.value - least) * 0.7)
}

/// Anneals the whole once, in epochs.
fn anneal(
    search: &Search,
    best: &mut Incumbent,
    current: &mut Lists,
    target: f64,
    threads: &mut [Random],
    dealer: &mut Random,
    num_moves: &mut u64,
) {
    let Search { model, bound, deadline, .. } = *search;
    let begun_s = deadline.elapsed_s();
    // Filling has found what heat would only spoil.
    let (hot, cold) = (bound.makespan * 0.0007, bound.makespan * 0.0003);
    while !search.is_done(best, *num_moves) {
        let done = search.share_done(*num_moves, begun_s);
        let temperature = hot * (cold / hot).powf(done);
        let cooling = Cooling { from: temperature, to: temperature, num_moves: EPOCH };
        let mut shares = deal(search, current, threads, dealer);
        let results = in_threads(&mut shares, |share, moves| {
            let lists = std::mem::take(&mut share.lists);
            let nodes = share.nodes.clone();
            let mut region = Region::new(model, &bound.prices, nodes, lists, target);
            region.run(cooling, None, deadline, share.random, moves);
            share.lists = region.lists;
        });
        *num_moves += results.iter().map(|((), moves)| moves).sum::<u64>();
        collect(shares, current);
        let value = search.value(current);
        if value < best.value {
            *best = Incumbent { value, lists: current.clone() };
        }
    }
}

/// The nodes that one thread works on, with their lists.
pub(crate) struct Share<'a> {
    pub(crate) nodes: Vec<usize>,
    pub(crate) lists: Vec<Vec<Entry>>,
    pub(crate) random: &'a mut Random,
}

/// Deals the nodes and their lists to the threads at random.
pub(crate) fn deal<'a>(
    search: &Search,
    current: &mut Lists,
    threads: &'a mut [Random],
    dealer: &mut Random,
) -> Vec<Share<'a>> {
    let mut nodes: Vec<usize> = (0..search.model.nodes.len()).collect();
    dealer.shuffle(&mut nodes);
    let size = nodes.len().div_ceil(threads.len());
    nodes
        .chunks(size)
        .zip(threads)
        .map(|(nodes, random)| Share {
            nodes: nodes.to_vec(),
            lists: nodes.iter().map(|node| std::mem::take(&mut current[*node])).collect(),
            random,
        })
        .collect()
}

/// Takes the lists back.
pub(crate) fn collect(shares: Vec<Share>, current: &mut Lists) {
    for share in shares {
        for (node, list) in share.nodes.into_iter().zip(share.lists) {
            current[node] = list;
        }
    }
}
