//! Large problems: annealed once as a whole, then mended piecemeal.
//!
//! First all nodes are annealed in short epochs, each thread on its own share of them, dealt anew
//! every epoch, at one target: lowering the target on the way makes gangs too long, and what takes
//! their place can ruin a node beyond what a cold annealing mends. That leaves a few nodes late.
//! Then late nodes are annealed with a few others at a time, and the target is lowered a little
//! whenever no node is late (large neighbourhood search; the order of the two is what matters).

use crate::anneal::{Cooling, Region};
use crate::lists::{Entry, Lists, loads};
use crate::options::Aim;
use crate::random::Random;
use crate::search::{Incumbent, Search, in_threads};

/// Moves of each thread in an epoch.
const EPOCH: u64 = 60_000;
/// The share of the limits for annealing the whole.
const WHOLE: f64 = 0.6;
/// Moves that one thread makes in a second, roughly; sets the first target only.
const MOVES_PER_SECOND: f64 = 4e6;
/// Pieces that each thread mends before threads meet.
const PIECES: usize = 24;

/// Improves `best` until a limit is reached.
///
/// A warm start is mended only: annealing the whole would lose what it has.
pub(crate) fn search(search: &Search, best: &mut Incumbent, is_warm: bool) {
    let mut threads: Vec<Random> = (0..search.threads.min(search.model.nodes.len()) as u64)
        .map(|stream| Random::new(search.seed, stream))
        .collect();
    let mut dealer = Random::new(search.seed, u64::MAX - 1);
    let mut num_moves = 0;
    let is_makespan = search.objective == Aim::Makespan;
    let whole = Search {
        deadline: if is_makespan {
            search.deadline.within(search.deadline.left_s() * WHOLE)
        } else {
            search.deadline
        },
        max_moves: if is_makespan {
            search.max_moves.map(|moves| moves / 5 * 3)
        } else {
            search.max_moves
        },
        ..*search
    };
    let target = first_target(search, best);
    let mut current = best.lists.clone();
    if !(is_warm && is_makespan) {
        anneal(&whole, best, &mut current, target, &mut threads, &mut dealer, &mut num_moves);
    }
    if is_makespan {
        mend(search, best, current, target, &mut threads, &mut dealer, &mut num_moves);
    }
}

/// The makespan that annealing the whole can be expected to reach with the moves at hand.
fn first_target(search: &Search, best: &Incumbent) -> f64 {
    if search.objective == Aim::Completion {
        return f64::INFINITY;
    }
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
    let Search { model, objective, bound, deadline, .. } = *search;
    let begun_s = deadline.elapsed_s();
    // Few nodes have fewer ways around a bad one, and need more heat.
    let warmest = match model.nodes.len() {
        0..=16 if model.num_kinds > 1 => 0.02,
        0..=16 => 0.006,
        _ => 0.003,
    };
    let (hot, cold) = match objective {
        Aim::Makespan => (bound.makespan * warmest, bound.makespan * 0.0003),
        Aim::Completion => {
            let mean = best.value / model.tasks.len() as f64;
            (mean * 0.02, mean * 0.0002)
        }
    };
    while !search.is_done(best, *num_moves) {
        let done = search.share_done(*num_moves, begun_s);
        let temperature = hot * (cold / hot).powf(done);
        let cooling = Cooling { from: temperature, to: temperature, num_moves: EPOCH };
        let mut shares = deal(search, current, threads, dealer);
        let results = in_threads(&mut shares, |share, moves| {
            let lists = std::mem::take(&mut share.lists);
            let nodes = share.nodes.clone();
            let mut region = Region::new(model, objective, &bound.prices, nodes, lists, target);
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

/// Mends late nodes together with a few others, lowering the target when none is late.
fn mend(
    search: &Search,
    best: &mut Incumbent,
    mut current: Lists,
    mut target: f64,
    threads: &mut [Random],
    dealer: &mut Random,
    num_moves: &mut u64,
) {
    let least = search.bound.makespan;
    target = target.max(end_of_most(search, &current));
    let mut patience = 1;
    let mut least_late = usize::MAX;
    while !search.is_done(best, *num_moves) {
        let mut shares = deal(search, &mut current, threads, dealer);
        let results = in_threads(&mut shares, |share, moves| {
            for _ in 0..PIECES {
                if search.deadline.is_over() {
                    break;
                }
                mend_piece(search, share, target, patience, moves);
            }
        });
        *num_moves += results.iter().map(|((), moves)| moves).sum::<u64>();
        collect(shares, &mut current);
        let ends = loads(search.model, &current);
        let value = ends.iter().map(|load| load.end).fold(0.0, f64::max);
        let num_late = ends.iter().filter(|load| load.end > target).count();
        if num_late < least_late {
            least_late = num_late;
            patience = 1;
        } else {
            patience = (patience + 1).min(40);
        }
        if value < best.value {
            *best = Incumbent { value, lists: current.clone() };
        }
        if num_late == 0 {
            target = least + (value.min(target) - least) * 0.95;
            least_late = usize::MAX;
        }
    }
}

/// When all but a twentieth of the nodes have ended, seconds: a target that few nodes miss.
fn end_of_most(search: &Search, current: &Lists) -> f64 {
    let mut ends: Vec<f64> = loads(search.model, current).iter().map(|load| load.end).collect();
    ends.sort_by(f64::total_cmp);
    ends[(ends.len() - 1) * 19 / 20]
}

/// The nodes that one thread works on, with their lists.
struct Share<'a> {
    nodes: Vec<usize>,
    lists: Vec<Vec<Entry>>,
    random: &'a mut Random,
}

/// Deals the nodes and their lists to the threads at random.
fn deal<'a>(
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
fn collect(shares: Vec<Share>, current: &mut Lists) {
    for share in shares {
        for (node, list) in share.nodes.into_iter().zip(share.lists) {
            current[node] = list;
        }
    }
}

/// Anneals one late node of the share with a few others; keeps the result if it costs no more.
fn mend_piece(search: &Search, share: &mut Share, target: f64, patience: usize, moves: &mut u64) {
    let Search { model, objective, bound, deadline, .. } = *search;
    let mut free = Vec::new();
    let ends: Vec<f64> = share
        .nodes
        .iter()
        .zip(&share.lists)
        .map(|(node, list)| {
            let ready = &model.ready[*node];
            free.resize(ready.len(), 0.0);
            crate::lists::play(&mut free, ready, list).end
        })
        .collect();
    let late: Vec<usize> = (0..ends.len()).filter(|local| ends[*local] > target).collect();
    if late.is_empty() {
        return;
    }
    let random = &mut *share.random;
    let mut piece = vec![late[random.below(late.len())]];
    let size = (2 + random.below(3)).min(ends.len());
    while piece.len() < size {
        // Of two, the one with more room.
        let (one, other) = (random.below(ends.len()), random.below(ends.len()));
        let chosen = if ends[other] < ends[one] { other } else { one };
        if !piece.contains(&chosen) {
            piece.push(chosen);
        } else if piece.len() + late.len() >= ends.len() {
            break;
        }
    }
    let nodes: Vec<usize> = piece.iter().map(|local| share.nodes[*local]).collect();
    let lists: Vec<Vec<Entry>> = piece.iter().map(|local| share.lists[*local].clone()).collect();
    let mut region = Region::new(model, objective, &bound.prices, nodes, lists, target);
    let before = region.total_cost();
    let num_moves = 3_000 * piece.len() as u64 * (1 + random.below(patience) as u64);
    let cooling = Cooling {
        from: bound.makespan * random.log_between(0.001, 0.03),
        to: bound.makespan * 0.0001,
        num_moves,
    };
    region.run(cooling, None, deadline, random, moves);
    if region.total_cost() <= before {
        for (local, list) in piece.into_iter().zip(region.lists) {
            share.lists[local] = list;
        }
    }
}
