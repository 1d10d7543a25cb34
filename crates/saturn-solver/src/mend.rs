//! The second half of a large problem's search: late nodes are mended with a few others at a time.
//!
//! A late node and some with room are filled anew (`fill`), or annealed by themselves; what costs
//! no more is kept. The target falls a little whenever no node is late (large neighbourhood
//! search).

use crate::anneal::{Cooling, Region};
use crate::fill::{Recipe, fill};
use crate::large::{Share, collect, deal};
use crate::lists::{Entry, Lists, loads};
use crate::random::Random;
use crate::search::{Incumbent, Search, in_threads};

/// Pieces that each thread mends before threads meet.
const PIECES: usize = 24;
/// Fillings drawn for a node, at most.
const MOST_DRAWS: f64 = 200.0;

/// Mends late nodes together with a few others, lowering the target when none is late.
pub(crate) fn mend(
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

/// Anneals one late node of the share with a few others; keeps the result if it costs no more.
fn mend_piece(search: &Search, share: &mut Share, target: f64, patience: usize, moves: &mut u64) {
    let Search { model, bound, deadline, .. } = *search;
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
    let refills = random.below(10) > 0;
    let mut piece = vec![late[random.below(late.len())]];
    let size = (2 + random.below(if refills { 6 } else { 3 })).min(ends.len());
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
    let tasks = lists.iter().flatten().map(|entry| entry.task as usize).collect();
    let mut region = Region::new(model, &bound.prices, nodes.clone(), lists, target);
    let before = region.total_cost();
    if refills {
        let recipe = Recipe::random(target, MOST_DRAWS, random);
        let (lists, steps) = fill(model, &bound.prices, &nodes, tasks, recipe, random);
        region = Region::new(model, &bound.prices, nodes, lists, target);
        *moves += steps.max(1);
    } else {
        let num_moves = 3_000 * piece.len() as u64 * (1 + random.below(patience) as u64);
        let cooling = Cooling {
            from: bound.makespan * random.log_between(0.001, 0.03),
            to: bound.makespan * 0.0001,
            num_moves,
        };
        region.run(cooling, None, deadline, random, moves);
    }
    if region.total_cost() <= before {
        for (local, list) in piece.into_iter().zip(region.lists) {
            share.lists[local] = list;
        }
    }
}
