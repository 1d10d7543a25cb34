//! The last part of a large problem's cycle: late nodes are mended with a few others at a time.
//!
//! A late node and some nodes with room are filled anew (`fill`), or annealed by themselves; the
//! result is kept if it costs no more. The target falls a little whenever no node is late (large
//! neighbourhood search).

use crate::bounds::area::AreaBound;
use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::course::rounds::Limits;
use crate::lists::anneal::{Cooling, Region};
use crate::lists::fill::{Recipe, fill};
use crate::lists::list::{Entry, Lists, loads};
use crate::lists::progress::Progress;
use crate::lists::shares::{Share, collect, deal};
use crate::problem::model::Model;

/// Pieces that are mended in a round, and the least number of pieces of each of its items.
const PIECES: usize = 24;
const LEAST_PIECES: usize = 3;
/// Moves that a piece counts as, and how many more for each step of patience, by its time.
const PIECE: u64 = 2_500;
const PIECE_PER_PATIENCE: u64 = 450;
const MOST_PATIENCE: usize = 40;
/// Fillings drawn for a node, at most.
const MOST_DRAWS: f64 = 200.0;

/// How far mending has come.
pub(crate) struct Mend {
    target: f64,
    patience: usize,
    least_late: usize,
}

impl Mend {
    pub(crate) fn new(model: &Model, current: &Lists, target: f64) -> Self {
        let target = target.max(end_of_most(model, current));
        Self { target, patience: 1, least_late: usize::MAX }
    }

    /// Mends late nodes together with a few others, and lowers the target when none is late.
    pub(crate) fn round(&mut self, progress: &mut Progress, limits: &Limits, current: &mut Lists) {
        let Progress { model, bound, course, .. } = progress;
        let (model, bound) = (*model, *bound);
        let shares = deal(course, current);
        let num_pieces = (PIECES / shares.len()).max(LEAST_PIECES);
        let length = num_pieces as u64 * (PIECE + PIECE_PER_PATIENCE * self.patience as u64);
        let (target, patience) = (self.target, self.patience);
        let round = course.round(limits, shares, length, |mut share, random, most| {
            let inputs = Inputs { model, bound, target, patience, deadline: limits.deadline };
            // A part of a round is worth nothing.
            if most == length {
                for _ in 0..num_pieces {
                    if limits.deadline.is_over() {
                        break;
                    }
                    inputs.mend_piece(&mut share, random);
                }
            }
            share
        });
        if !round.is_whole {
            return;
        }
        collect(round.results, current);
        progress.offer(current);
        let ends = loads(model, current);
        let value = ends.iter().map(|load| load.end).fold(0.0, f64::max);
        let num_late = ends.iter().filter(|load| load.end > self.target).count();
        if num_late < self.least_late {
            self.least_late = num_late;
            self.patience = 1;
        } else {
            self.patience = (self.patience + 1).min(MOST_PATIENCE);
        }
        if num_late == 0 {
            let least = bound.makespan;
            self.target = least + (value.min(self.target) - least) * 0.95;
            self.least_late = usize::MAX;
        }
    }
}

/// When all but a twentieth of the nodes have ended, seconds: a target that few nodes miss.
fn end_of_most(model: &Model, current: &Lists) -> f64 {
    let mut ends: Vec<f64> = loads(model, current).iter().map(|load| load.end).collect();
    ends.sort_by(f64::total_cmp);
    ends[(ends.len() - 1) * 19 / 20]
}

/// The target and the limits of mending.
struct Inputs<'a> {
    model: &'a Model,
    bound: &'a AreaBound,
    target: f64,
    patience: usize,
    deadline: Deadline<'a>,
}

impl Inputs<'_> {
    /// Anneals or fills one late node of the share with a few others; keeps the result if it costs
    /// no more.
    fn mend_piece(&self, share: &mut Share, random: &mut Random) {
        let Self { model, bound, target, patience, deadline } = *self;
        let mut free = Vec::new();
        let ends: Vec<f64> = share
            .nodes
            .iter()
            .zip(&share.lists)
            .map(|(node, list)| {
                let ready = &model.ready[*node];
                free.resize(ready.len(), 0.0);
                crate::lists::list::play(&mut free, ready, list).end
            })
            .collect();
        let late: Vec<usize> = (0..ends.len()).filter(|local| ends[*local] > target).collect();
        if late.is_empty() {
            return;
        }
        let refills = random.below(10) > 0;
        let mut piece = vec![late[random.below(late.len())]];
        let size = (2 + random.below(if refills { 6 } else { 3 })).min(ends.len());
        while piece.len() < size {
            // Of two nodes, the node with more room.
            let (one, other) = (random.below(ends.len()), random.below(ends.len()));
            let chosen = if ends[other] < ends[one] { other } else { one };
            if !piece.contains(&chosen) {
                piece.push(chosen);
            } else if piece.len() + late.len() >= ends.len() {
                break;
            }
        }
        let nodes: Vec<usize> = piece.iter().map(|local| share.nodes[*local]).collect();
        let lists: Vec<Vec<Entry>> =
            piece.iter().map(|local| share.lists[*local].clone()).collect();
        let tasks = lists.iter().flatten().map(|entry| entry.task as usize).collect();
        let mut region = Region::new(model, &bound.prices, nodes.clone(), lists, target);
        let before = region.total_cost();
        if refills {
            let recipe = Recipe::random(target, MOST_DRAWS, random);
            let filled = fill(model, &bound.prices, &nodes, tasks, recipe, deadline, random);
            let Some((lists, _)) = filled else { return };
            region = Region::new(model, &bound.prices, nodes, lists, target);
        } else {
            let num_moves = 3_000 * piece.len() as u64 * (1 + random.below(patience) as u64);
            let cooling = Cooling {
                from: bound.makespan * random.log_between(0.001, 0.03),
                to: bound.makespan * 0.0001,
                num_moves,
            };
            region.run(cooling, num_moves, None, deadline, random);
        }
        if region.total_cost() <= before {
            for (local, list) in piece.into_iter().zip(region.lists) {
                share.lists[local] = list;
            }
        }
    }
}
