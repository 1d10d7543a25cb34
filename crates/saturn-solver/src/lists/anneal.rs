//! Simulated annealing over the lists of some nodes.
//!
//! A move takes a gang to another node, swaps two gangs of two nodes, changes a mode, or changes
//! the order on one node. On the node where a task runs, staying is another mode of the task.
//!
//! The cost of a node is its lateness plus a share of its area, at the price of the node's devices.
//! Half of the lateness is that of the last device, half is the mean over the devices: the last
//! device alone shows no progress while two are late. A smaller area makes room on other nodes. A
//! device that ends e beyond the target T is late by e + 20·e²/T, so that one bad node is worse
//! than two half bad nodes.
//!
//! Two things make the search fast. The acceptance threshold is drawn before a move is made. A move
//! whose area alone already exceeds the threshold is dropped without playing a list. (That is
//! exact: lateness is convex. So a node costs no less than if all its devices ended at its area
//! over its width.)

use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::lists::list::{Entry, Load, play, stays_first};
use crate::lists::nearby::Nearby;
use crate::lists::settle::{Incumbent, settled};
use crate::problem::model::Model;
use crate::problem::timeline::lateness;

/// Weight of a node's priced area, spread over its width.
const AREA: f64 = 0.05;
/// Moves between two looks at the clock.
const MOVES_PER_LOOK: u64 = 256;

/// One run: from a hot to a cold temperature, both in seconds of cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cooling {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) num_moves: u64,
}

/// The nodes that a run works on, with their lists and the values of these.
pub(crate) struct Region<'a> {
    pub(crate) model: &'a Model,
    /// The worth of a second of each node of the region: its devices at the prices of their kind,
    /// relative to the mean node. Otherwise work would flow from slow nodes, where it is many
    /// seconds, to fast nodes, where it is few.
    weights: Vec<f64>,
    /// Indices into the model's nodes.
    pub(crate) nodes: Vec<usize>,
    /// One list for each node of the region.
    pub(crate) lists: Vec<Vec<Entry>>,
    pub(crate) loads: Vec<Load>,
    pub(crate) costs: Vec<f64>,
    pub(crate) target: f64,
    /// Nodes of the region that end beyond the target, and where each stands in that list.
    pub(crate) late: Vec<usize>,
    late_at: Vec<usize>,
    pub(crate) nearby: Nearby,
    /// For each task of the region its node in the region; meaningless for other tasks.
    pub(crate) node_of: Vec<u32>,
    pub(crate) has_running: bool,
    pub(crate) scratch: Scratch,
}

/// Candidate lists of the one or two nodes of a move.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) first: Vec<Entry>,
    pub(crate) second: Vec<Entry>,
    free: Vec<f64>,
}

/// A move worked out in the scratch lists: its nodes, within the region.
#[derive(Clone, Copy)]
pub(crate) struct Move {
    pub(crate) first: usize,
    pub(crate) second: Option<usize>,
}

const NOT_LATE: usize = usize::MAX;

/// Whether a value is less than another by more than rounding.
#[inline]
fn beats(value: f64, other: f64) -> bool {
    value < other * (1.0 - 1e-12)
}

impl<'a> Region<'a> {
    pub(crate) fn new(
        model: &'a Model,
        prices: &[f64],
        nodes: Vec<usize>,
        lists: Vec<Vec<Entry>>,
        target: f64,
    ) -> Self {
        let widest = nodes.iter().map(|node| model.nodes[*node].gpus as usize).max().unwrap_or(0);
        let scratch = Scratch { free: vec![0.0; widest], ..Scratch::default() };
        let worth = |node: &crate::problem::model::Node| prices[node.kind] * f64::from(node.gpus);
        let mean = model.nodes.iter().map(worth).sum::<f64>() / model.nodes.len() as f64;
        let tasks: Vec<u32> = lists.iter().flatten().map(|entry| entry.task).collect();
        let mut region = Self {
            nearby: Nearby::new(model, &tasks),
            node_of: vec![0; model.tasks.len()],
            has_running: model.has_running(),
            model,
            weights: nodes.iter().map(|node| worth(&model.nodes[*node]) / mean).collect(),
            loads: vec![Load::default(); nodes.len()],
            costs: vec![0.0; nodes.len()],
            late: Vec::new(),
            late_at: vec![NOT_LATE; nodes.len()],
            nodes,
            lists,
            target,
            scratch,
        };
        region.shorten();
        for local in 0..region.nodes.len() {
            let ready = &model.ready[region.nodes[local]];
            let load = play(&mut region.scratch.free, ready, &region.lists[local]);
            let cost = region.cost_as_played(local, &load);
            region.set(local, load, cost);
            region.note_places(local);
        }
        region
    }

    /// Gives every gang that is longer than the target its smallest mode within the target.
    fn shorten(&mut self) {
        for (local, list) in self.lists.iter_mut().enumerate() {
            for entry in list.iter_mut().filter(|entry| entry.runtime > self.target) {
                let task = entry.task as usize;
                let modes = self.model.modes_on(task, self.nodes[local]).iter().enumerate();
                let least = modes
                    .filter(|(_, mode)| mode.runtime <= self.target)
                    .min_by(|left, right| left.1.area().total_cmp(&right.1.area()));
                if let Some((index, mode)) = least {
                    *entry = Entry::new(task, index, mode);
                }
            }
            stays_first(list);
        }
    }

    fn gpus(&self, local: usize) -> usize {
        self.model.nodes[self.nodes[local]].gpus as usize
    }

    /// Latest end in the region, seconds.
    fn end(&self) -> f64 {
        self.loads.iter().map(|load| load.end).fold(0.0, f64::max)
    }

    /// What annealing makes small.
    pub(crate) fn total_cost(&self) -> f64 {
        self.costs.iter().sum()
    }

    /// How late a device is that ends at `end`.
    #[inline]
    fn lateness(&self, end: f64) -> f64 {
        lateness(end, self.target)
    }

    /// The cost of a node whose list has just been played in the scratch space.
    #[inline]
    fn cost_as_played(&self, local: usize, load: &Load) -> f64 {
        let gpus = self.gpus(local);
        let mut late = 0.0;
        if load.end > self.target {
            let ends = &self.scratch.free[..gpus];
            let mean = ends.iter().map(|end| self.lateness(*end)).sum::<f64>() / gpus as f64;
            late = 0.5 * (mean + self.lateness(load.end));
        }
        self.weights[local] * (late + AREA * load.area / gpus as f64)
    }

    /// The least that a node with this area can cost.
    #[inline]
    pub(crate) fn least_cost(&self, local: usize, area: f64) -> f64 {
        let even = area / self.gpus(local) as f64;
        self.weights[local] * (self.lateness(even) + AREA * even)
    }

    #[expect(clippy::cast_possible_truncation, reason = "nodes are fewer than devices")]
    fn note_places(&mut self, local: usize) {
        for entry in &self.lists[local] {
            self.node_of[entry.task as usize] = local as u32;
        }
    }

    fn set(&mut self, local: usize, load: Load, cost: f64) {
        self.costs[local] = cost;
        self.loads[local] = load;
        let is_late = load.end > self.target;
        let at = self.late_at[local];
        if is_late && at == NOT_LATE {
            self.late_at[local] = self.late.len();
            self.late.push(local);
        } else if !is_late && at != NOT_LATE {
            self.late.swap_remove(at);
            if let Some(&moved) = self.late.get(at) {
                self.late_at[moved] = at;
            }
            self.late_at[local] = NOT_LATE;
        }
    }

    /// Does `most` moves of a cooling. Returns the best lists met if they beat `bar`, for a region
    /// of all nodes. The lists at the start count too: the search may leave them at once and never
    /// meet better lists.
    ///
    /// Stops early at the deadline.
    pub(crate) fn run(
        &mut self,
        cooling: Cooling,
        most: u64,
        bar: Option<f64>,
        deadline: Deadline,
        random: &mut Random,
    ) -> Option<Incumbent> {
        let mut least = bar.unwrap_or(0.0);
        let mut best = None;
        let looks = (cooling.num_moves / MOVES_PER_LOOK).max(1);
        let factor = (cooling.to / cooling.from).powf(1.0 / looks as f64);
        let mut temperature = cooling.from;
        let mut note = |region: &Self| {
            if beats(region.end(), least) {
                let found = settled(region.model, region.lists.clone());
                least = found.value;
                best = Some(found);
            }
            least
        };
        let mut bar = note(self);
        for _ in 0..looks.min(most / MOVES_PER_LOOK) {
            if deadline.is_over() {
                break;
            }
            for _ in 0..MOVES_PER_LOOK {
                let threshold = -temperature * (1.0 - random.unit()).ln();
                let Some(proposal) = self.propose(threshold, random) else { continue };
                if self.settle(proposal, threshold) && self.ends_by(proposal, bar) {
                    bar = note(self);
                }
            }
            temperature *= factor;
        }
        best
    }

    /// Whether the nodes of a move end before `bar`.
    #[inline]
    fn ends_by(&self, proposal: Move, bar: f64) -> bool {
        self.loads[proposal.first].end < bar
            && proposal.second.is_none_or(|second| self.loads[second].end < bar)
    }

    /// Plays the scratch lists and accepts them if they cost at most `threshold` more.
    #[inline]
    fn settle(&mut self, proposal: Move, threshold: f64) -> bool {
        let Move { first, second } = proposal;
        if self.has_running {
            stays_first(&mut self.scratch.first);
            if second.is_some() {
                stays_first(&mut self.scratch.second);
            }
        }
        let ready = &self.model.ready[self.nodes[first]];
        let load = play(&mut self.scratch.free, ready, &self.scratch.first);
        let cost = self.cost_as_played(first, &load);
        let mut change = cost - self.costs[first];
        let mut other = (Load::default(), 0.0);
        if let Some(second) = second {
            if change - self.costs[second] > threshold {
                return false;
            }
            let ready = &self.model.ready[self.nodes[second]];
            let load = play(&mut self.scratch.free, ready, &self.scratch.second);
            other = (load, self.cost_as_played(second, &load));
            change += other.1 - self.costs[second];
        }
        if change > threshold {
            return false;
        }
        std::mem::swap(&mut self.lists[first], &mut self.scratch.first);
        self.set(first, load, cost);
        if let Some(second) = second {
            std::mem::swap(&mut self.lists[second], &mut self.scratch.second);
            self.set(second, other.0, other.1);
            self.note_places(first);
            self.note_places(second);
        }
        true
    }
}
