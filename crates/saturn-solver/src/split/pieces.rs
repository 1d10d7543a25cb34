//! The state of the search with switches: pieces of tasks in the order in which they are placed.
//!
//! A piece is a share of a task under one mode on one node. The pieces of a task follow each other
//! in the order of the state. Each piece starts when enough devices of its node are free and the
//! piece before it has ended. All pieces but the first hold their devices for the switch cost on
//! top. So any order of any pieces is a valid plan as long as each task's shares sum to 1, and
//! nothing ever has to be repaired. An order read off start times decodes to starts no later than
//! those.
//!
//! A task that runs already has begun, so each of its pieces costs a switch. The exception is a
//! piece that *stays*: it goes on where the task runs, and is at the head of the order with the
//! others that stay. The model's runtimes are those without switch costs.

use saturn_core::{Assignment, Placement, WHOLE};

use crate::problem::model::{Model, Stay};
use crate::problem::modes::Mode;
use crate::problem::timeline::place_after;

/// The mode of a task that stays as it runs.
const STAY: usize = usize::MAX;

/// A share of a task on one node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Piece {
    pub(crate) task: usize,
    pub(crate) node: usize,
    /// Index into the task's modes on the node's kind, or `STAY`.
    pub(crate) mode: usize,
    pub(crate) gpus: usize,
    /// Runtime of the whole task in this mode, seconds.
    pub(crate) runtime: f64,
    pub(crate) share: f64,
}

impl Piece {
    pub(crate) fn new(task: usize, node: usize, index: usize, mode: &Mode, share: f64) -> Self {
        let gpus = mode.gpus as usize;
        Self { task, node, mode: index, gpus, runtime: mode.runtime, share }
    }

    /// A piece of a running task, where and as it runs; `None` if it runs on several nodes.
    pub(crate) fn staying(task: usize, stay: &Stay, share: f64) -> Option<Self> {
        let (node, gpus) = (stay.home()?, stay.held() as usize);
        Some(Self { task, node, mode: STAY, gpus, runtime: stay.runtime, share })
    }

    #[inline]
    pub(crate) fn stays(&self) -> bool {
        self.mode == STAY
    }

    /// Whether it is not all of its task.
    pub(crate) fn is_part(&self) -> bool {
        self.share < WHOLE
    }

    /// Seconds of work.
    #[inline]
    pub(crate) fn work(&self) -> f64 {
        self.share * self.runtime
    }
}

/// When a piece runs, on which devices, and behind which pieces it had to wait.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) devices: Vec<u32>,
    /// Seconds lost to a switch.
    pub(crate) lost: f64,
    /// Indices of the pieces that held its devices last, and of its task's piece before.
    pub(crate) after: Vec<usize>,
}

/// Plays pieces; keeps its buffers between plays.
pub(crate) struct Player<'a> {
    pub(crate) model: &'a Model,
    /// Of each task, seconds; not read for tasks in one piece.
    pub(crate) switch_costs: &'a [f64],
    /// For each node, when its devices fall free, ascending.
    pub(crate) free: Vec<Vec<f64>>,
    /// When the last piece of each task ended; negative before the first.
    pub(crate) ended: Vec<f64>,
}

/// The end of a piece that has not begun.
const NOT_BEGUN: f64 = -1.0;

impl<'a> Player<'a> {
    pub(crate) fn new(model: &'a Model, switch_costs: &'a [f64]) -> Self {
        let ended = vec![NOT_BEGUN; model.tasks.len()];
        Self { model, switch_costs, free: model.ready.clone(), ended }
    }

    /// When the tasks of the pieces have ended before any piece: running tasks have begun.
    #[inline]
    fn rewind(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            let runs = self.model.tasks[piece.task].stay.is_some();
            self.ended[piece.task] = if runs { 0.0 } else { NOT_BEGUN };
        }
    }

    /// GPU-seconds that the pieces hold.
    #[inline]
    pub(crate) fn area(&mut self, pieces: &[Piece]) -> f64 {
        self.rewind(pieces);
        let mut area = 0.0;
        for piece in pieces {
            let is_free = self.ended[piece.task] < 0.0 || piece.stays();
            let lost = if is_free { 0.0 } else { self.switch_costs[piece.task] };
            self.ended[piece.task] = 0.0;
            area += piece.gpus as f64 * (piece.work() + lost);
        }
        area
    }

    /// Plays the pieces, all of which are on `nodes`. Leaves in `free` when the devices of each
    /// node become free.
    #[inline]
    pub(crate) fn play(&mut self, nodes: &[usize], pieces: &[Piece]) {
        for node in nodes {
            self.free[*node].copy_from_slice(&self.model.ready[*node]);
        }
        self.rewind(pieces);
        for piece in pieces {
            let before = self.ended[piece.task];
            let mut length = piece.work();
            if before >= 0.0 && !piece.stays() {
                length += self.switch_costs[piece.task];
            }
            let end = length + place_after(&mut self.free[piece.node], piece.gpus, before, length);
            self.ended[piece.task] = end;
        }
    }

    /// When each of the nodes, which must hold all pieces, is wholly free.
    pub(crate) fn ends(&mut self, nodes: &[usize], pieces: &[Piece]) -> Vec<f64> {
        self.play(nodes, pieces);
        nodes.iter().map(|node| self.free[*node].last().copied().unwrap_or(0.0)).collect()
    }

    /// Plays all pieces with their devices.
    pub(crate) fn trace(&self, pieces: &[Piece]) -> Vec<Placed> {
        // When each device becomes free, its id, and the piece that then leaves it; ascending.
        let mut free: Vec<Vec<(f64, u32, Option<usize>)>> = self
            .model
            .ready
            .iter()
            .map(|ready| (0u32..).zip(ready).map(|(device, time)| (*time, device, None)).collect())
            .collect();
        let mut last: Vec<Option<usize>> = vec![None; self.model.tasks.len()];
        let mut placed: Vec<Placed> = Vec::with_capacity(pieces.len());
        for (index, piece) in pieces.iter().enumerate() {
            let free = &mut free[piece.node];
            let before = last[piece.task].replace(index);
            let ended = before.map_or(0.0, |before| placed[before].end);
            let stay = self.model.tasks[piece.task].stay.as_ref();
            let own = |stay: &Stay| stay.gang.first().map(|part| part.devices.clone());
            let start = free[piece.gpus - 1].0.max(ended);
            let taken: Vec<_> = if let Some(own) = stay.filter(|_| piece.stays()).and_then(own) {
                free.extract_if(.., |(_, id, _)| own.contains(id)).collect()
            } else {
                let beyond = free.partition_point(|(time, ..)| *time <= start);
                free.drain(beyond - piece.gpus..beyond).collect()
            };
            let is_there = stay.is_some_and(|stay| {
                before.is_none() && start == 0.0 && self.is_there(piece, stay, &taken)
            });
            let has_begun = before.is_some() || stay.is_some();
            let lost = if has_begun && !is_there { self.switch_costs[piece.task] } else { 0.0 };
            let end = start + (piece.work() + lost);
            let at = free.partition_point(|(time, ..)| *time <= end);
            let back = taken.iter().map(|(_, device, _)| (end, *device, Some(index)));
            free.splice(at..at, back.collect::<Vec<_>>());
            let mut devices: Vec<u32> = taken.iter().map(|(_, device, _)| *device).collect();
            devices.sort_unstable();
            let mut after: Vec<usize> = taken.iter().filter_map(|(.., holder)| *holder).collect();
            after.extend(before);
            after.sort_unstable();
            after.dedup();
            placed.push(Placed { start, end, devices, lost, after });
        }
        placed
    }

    /// Whether a piece that takes these devices goes on as its task runs, perhaps by chance.
    fn is_there(&self, piece: &Piece, stay: &Stay, taken: &[(f64, u32, Option<usize>)]) -> bool {
        let own = stay.gang.first().map_or(&[][..], |part| &part.devices);
        let is_own = taken.iter().all(|(_, device, _)| own.contains(device));
        stay.home() == Some(piece.node)
            && stay.strategy == self.strategy(piece)
            && own.len() == taken.len()
            && is_own
    }

    fn strategy(&self, piece: &Piece) -> usize {
        let task = &self.model.tasks[piece.task];
        let stay = task.stay.as_ref().filter(|_| piece.stays());
        stay.map_or_else(
            || {
                let kind = self.model.nodes[piece.node].kind;
                task.modes[kind][piece.mode].strategy as usize
            },
            |stay| stay.strategy,
        )
    }

    /// The assignments of all pieces, by start.
    pub(crate) fn assignments(&self, pieces: &[Piece]) -> Vec<Assignment> {
        let mut assignments: Vec<Assignment> = pieces
            .iter()
            .zip(self.trace(pieces))
            .map(|(piece, placed)| Assignment {
                task: piece.task,
                strategy: self.strategy(piece),
                gang: vec![Placement { node: piece.node, devices: placed.devices }],
                share: piece.share,
                start_s: placed.start,
                end_s: placed.end,
            })
            .collect();
        assignments.sort_by(|left, right| {
            left.start_s.total_cmp(&right.start_s).then(left.task.cmp(&right.task))
        });
        assignments
    }
}

/// Brings pieces that stay to the front, everything else in its order.
#[inline]
pub(crate) fn stays_first(pieces: &mut [Piece]) {
    let mut first = 0;
    for at in 0..pieces.len() {
        if pieces[at].stays() {
            pieces[first..=at].rotate_right(1);
            first += 1;
        }
    }
}

/// Makes each task's shares sum to 1 up to rounding: its last piece takes the remaining share.
pub(crate) fn settle_shares(pieces: &mut [Piece], num_tasks: usize) {
    let mut others = vec![0.0; num_tasks];
    let mut last: Vec<Option<usize>> = vec![None; num_tasks];
    for (index, piece) in pieces.iter().enumerate() {
        if let Some(before) = last[piece.task].replace(index) {
            others[piece.task] += pieces[before].share;
        }
    }
    for index in last.into_iter().flatten() {
        pieces[index].share = WHOLE - others[pieces[index].task];
    }
}
