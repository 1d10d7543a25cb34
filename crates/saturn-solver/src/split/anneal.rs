//! Simulated annealing over the pieces on some nodes.
//!
//! The moves are those of the search without switches (another mode, another place in the order,
//! another node), and three more. A piece is cut in two, two pieces of a task become one, or work
//! passes from one piece of a task to another. The cost counts three things. The first is how late
//! the last device is beyond a target. The second is how late all devices are on average, so that
//! each late device counts. The third is the area, since a smaller area can end earlier. A change
//! whose area alone costs too much is dropped unplayed.

use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::problem::model::Model;
use crate::split::pieces::{Piece, Player, stays_first};
use crate::split::polish::LEAST_SHARE;

/// Weight of how far the last device is late, and of how far all devices are on average.
const LAST: f64 = 0.5;
const ALL: f64 = 2.0;
/// Moves between two looks at the clock.
const MOVES_PER_LOOK: u64 = 64;

/// One run: from a hot to a cold temperature, both in seconds of cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cooling<'a> {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) num_moves: u64,
    pub(crate) goal: Goal<'a>,
}

/// What a run makes small.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal<'a> {
    /// When the last device ends.
    Makespan {
        /// A device that ends by then is in time, seconds.
        target: f64,
        /// Weight of the area over all devices of the region.
        area: f64,
    },
    /// When the tasks end, by weight.
    Ends(Ends<'a>),
}

/// Early ends, within a makespan and with no more launches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends<'a> {
    /// No piece may end later, seconds.
    pub(crate) cap: f64,
    /// For each task.
    pub(crate) weights: &'a [f64],
    /// What a second beyond the cap costs.
    pub(crate) late: f64,
    /// The most pieces that don't stay, in the region, and what each of them costs.
    pub(crate) most_launches: usize,
    pub(crate) launch: f64,
}

/// Some nodes and all pieces on them.
pub(crate) struct Region<'a> {
    player: Player<'a>,
    nodes: Vec<usize>,
    /// The most pieces of a task.
    max_pieces: usize,
    /// Whether each task may switch.
    may_switch: &'a [bool],
    num_gpus: f64,
    has_running: bool,
    /// The tasks of the pieces.
    tasks: Vec<usize>,
    pieces: Vec<Piece>,
    scratch: Vec<Piece>,
}

impl<'a> Region<'a> {
    pub(crate) fn new(
        player: Player<'a>,
        nodes: Vec<usize>,
        max_pieces: usize,
        may_switch: &'a [bool],
        pieces: Vec<Piece>,
    ) -> Self {
        let num_gpus = nodes.iter().map(|node| f64::from(player.model.nodes[*node].gpus)).sum();
        let (has_running, scratch) = (player.model.has_running(), pieces.clone());
        let mut tasks: Vec<usize> = pieces.iter().map(|piece| piece.task).collect();
        tasks.sort_unstable();
        tasks.dedup();
        Self {
            player,
            nodes,
            max_pieces,
            may_switch,
            num_gpus,
            has_running,
            tasks,
            pieces,
            scratch,
        }
    }

    fn model(&self) -> &'a Model {
        self.player.model
    }

    /// Value and cost of the scratch pieces; `None` where their area alone costs more than `limit`.
    /// The value is what the run makes small, the cost is what leads there.
    #[inline]
    fn worth(&mut self, goal: &Goal, limit: f64) -> Option<(f64, f64)> {
        let even = self.player.area(&self.scratch) / self.num_gpus;
        let least = match goal {
            Goal::Makespan { target, area } => {
                (LAST + ALL) * (even - target).max(0.0) + area * even
            }
            Goal::Ends(ends) => ends.late * (even - ends.cap).max(0.0),
        };
        if least > limit {
            return None;
        }
        self.player.play(&self.nodes, &self.scratch);
        let target = match goal {
            Goal::Makespan { target, .. } => *target,
            Goal::Ends(ends) => ends.cap,
        };
        let (mut end, mut late) = (0.0f64, 0.0);
        for node in &self.nodes {
            let free = &self.player.free[*node];
            end = end.max(free.last().copied().unwrap_or(0.0));
            let beyond = free.iter().rev().take_while(|time| **time > target);
            late += beyond.map(|time| time - target).sum::<f64>();
        }
        let late = late / self.num_gpus;
        Some(match goal {
            Goal::Makespan { target, area } => {
                (end, LAST * (end - target).max(0.0) + ALL * late + area * even)
            }
            Goal::Ends(ends) => self.worth_of_ends(ends, end, late),
        })
    }

    /// Value and cost of the pieces that were just played. They end at `end`, and the devices are
    /// late by `late` on average.
    #[inline]
    fn worth_of_ends(&self, ends: &Ends, end: f64, late: f64) -> (f64, f64) {
        let sum: f64 =
            self.tasks.iter().map(|task| ends.weights[*task] * self.player.ended[*task]).sum();
        let launches = self.scratch.iter().filter(|piece| !piece.stays()).count();
        let value = sum + ends.launch * launches as f64;
        let beyond = (end - ends.cap).max(0.0);
        let is_allowed = beyond == 0.0 && launches <= ends.most_launches;
        (if is_allowed { value } else { f64::INFINITY }, value + ends.late * (beyond + late))
    }

    /// Does `most` moves of a cooling and returns the pieces met of least value, if it is less than
    /// `bar`.
    ///
    /// Stops early at the deadline.
    pub(crate) fn run(
        &mut self,
        cooling: Cooling<'_>,
        most: u64,
        bar: f64,
        deadline: Deadline,
        random: &mut Random,
    ) -> Option<Vec<Piece>> {
        let mut best: Option<Vec<Piece>> = None;
        let mut bar = bar;
        self.scratch.clone_from(&self.pieces);
        let mut cost =
            self.worth(&cooling.goal, f64::INFINITY).map_or(f64::INFINITY, |(_, cost)| cost);
        let looks = (cooling.num_moves / MOVES_PER_LOOK).max(1);
        let factor = (cooling.to / cooling.from).powf(1.0 / looks as f64);
        let mut temperature = cooling.from;
        for _ in 0..looks.min(most / MOVES_PER_LOOK) {
            if deadline.is_over() {
                break;
            }
            for _ in 0..MOVES_PER_LOOK {
                self.scratch.clone_from(&self.pieces);
                if !self.change(random) {
                    continue;
                }
                if self.has_running {
                    stays_first(&mut self.scratch);
                }
                let threshold = -temperature * (1.0 - random.unit()).ln();
                let Some((value, new)) = self.worth(&cooling.goal, cost + threshold) else {
                    continue;
                };
                if new > cost + threshold {
                    continue;
                }
                cost = new;
                std::mem::swap(&mut self.pieces, &mut self.scratch);
                if value < bar * (1.0 - 1e-12) {
                    bar = value;
                    match &mut best {
                        Some(pieces) => pieces.clone_from(&self.pieces),
                        None => best = Some(self.pieces.clone()),
                    }
                }
            }
            temperature *= factor;
        }
        best
    }

    /// Makes a random change to the scratch pieces; returns whether there was a change.
    #[inline]
    fn change(&mut self, random: &mut Random) -> bool {
        let length = self.scratch.len();
        let at = random.below(length);
        match random.below(100) {
            0..25 => {
                let other = (random.below(2) == 0).then(|| random.below(length));
                self.change_mode(at, other, random)
            }
            25..45 => {
                self.scratch.swap(at, random.below(length));
                true
            }
            45..60 => {
                let piece = self.scratch.remove(at);
                self.scratch.insert(random.below(length), piece);
                true
            }
            60..75 if self.nodes.len() > 1 => self.change_node(at, random),
            75..83 => self.cut(at, random),
            83..88 => self.join(at, random),
            _ => self.shift_work(at, random),
        }
    }

    /// Another mode on the same node, and perhaps another place in the order.
    fn change_mode(&mut self, at: usize, other: Option<usize>, random: &mut Random) -> bool {
        let Piece { task, node, mode, share, .. } = self.scratch[at];
        let modes = self.model().modes_on(task, node);
        let stay = self.stay_on(at, node);
        let num_ways = modes.len() + usize::from(stay.is_some());
        if num_ways == 0 {
            return false;
        }
        let index = random.below(num_ways);
        if index == mode {
            return false;
        }
        let found = modes.get(index).map(|mode| Piece::new(task, node, index, mode, share));
        let Some(changed) = found.or(stay) else { return false };
        self.scratch[at] = changed;
        if let Some(other) = other {
            self.scratch.swap(at, other);
        }
        true
    }

    /// A piece as its task runs, if it runs on this node and no other piece of it stays.
    fn stay_on(&self, at: usize, node: usize) -> Option<Piece> {
        let Piece { task, share, .. } = self.scratch[at];
        let stay = self.model().tasks[task].stay.as_ref()?;
        let mut pieces = self.scratch.iter();
        let is_free =
            stay.home() == Some(node) && !pieces.any(|piece| piece.task == task && piece.stays());
        if is_free { Piece::staying(task, stay, share) } else { None }
    }

    /// To another node of the region, alone or in exchange for a piece from there.
    fn change_node(&mut self, at: usize, random: &mut Random) -> bool {
        let from = self.scratch[at].node;
        if random.below(2) == 0 {
            let to = self.nodes[random.below(self.nodes.len())];
            return to != from && self.send(at, to, random);
        }
        let other = random.below(self.scratch.len());
        let to = self.scratch[other].node;
        to != from && self.send(at, to, random) && self.send(other, from, random)
    }

    /// Puts a piece on another node, mostly in the same mode where kinds are equal.
    fn send(&mut self, at: usize, to: usize, random: &mut Random) -> bool {
        let Piece { task, node, mode, share, .. } = self.scratch[at];
        let modes = self.model().modes_on(task, to);
        if modes.is_empty() {
            return false;
        }
        if self.has_running
            && random.below(4) > 0
            && let Some(stay) = self.stay_on(at, to)
        {
            self.scratch[at] = stay;
            return true;
        }
        let is_same_kind = self.model().nodes[node].kind == self.model().nodes[to].kind;
        let keeps = is_same_kind && mode < modes.len() && random.below(2) == 0;
        let index = if keeps { mode } else { random.below(modes.len()) };
        self.scratch[at] = Piece::new(task, to, index, &modes[index], share);
        true
    }

    /// Cuts a piece in two: a random share goes to another mode, node and place in the order.
    fn cut(&mut self, at: usize, random: &mut Random) -> bool {
        let Piece { task, node, share, .. } = self.scratch[at];
        let num_pieces = self.scratch.iter().filter(|piece| piece.task == task).count();
        if !self.may_switch[task] || num_pieces >= self.max_pieces {
            return false;
        }
        let gone = share * random.unit();
        if gone < LEAST_SHARE || share - gone < LEAST_SHARE {
            return false;
        }
        let stays = random.below(2) == 0;
        let to = if stays { node } else { self.nodes[random.below(self.nodes.len())] };
        let modes = self.model().modes_on(task, to);
        if modes.is_empty() {
            return false;
        }
        let index = random.below(modes.len());
        self.scratch[at].share = share - gone;
        let piece = Piece::new(task, to, index, &modes[index], gone);
        self.scratch.insert(random.below(self.scratch.len() + 1), piece);
        true
    }

    /// A random other piece of the same task, if any.
    fn sibling(&self, at: usize, random: &mut Random) -> Option<usize> {
        let task = self.scratch[at].task;
        let is_sibling = |index: &usize| *index != at && self.scratch[*index].task == task;
        let count = (0..self.scratch.len()).filter(is_sibling).count();
        if count == 0 {
            return None;
        }
        (0..self.scratch.len()).filter(is_sibling).nth(random.below(count))
    }

    /// Gives a piece's work to another piece of its task.
    fn join(&mut self, at: usize, random: &mut Random) -> bool {
        let Some(other) = self.sibling(at, random) else { return false };
        self.scratch[other].share += self.scratch[at].share;
        self.scratch.remove(at);
        true
    }

    /// Passes some work from a piece to another piece of its task: often little of it.
    fn shift_work(&mut self, at: usize, random: &mut Random) -> bool {
        let Some(other) = self.sibling(at, random) else { return false };
        let most = self.scratch[at].share - LEAST_SHARE;
        let scale = [1.0, 0.1, 0.01][random.below(3)];
        let gone = (scale * random.unit()).min(most);
        if gone <= 0.0 {
            return false;
        }
        self.scratch[at].share -= gone;
        self.scratch[other].share += gone;
        true
    }
}
