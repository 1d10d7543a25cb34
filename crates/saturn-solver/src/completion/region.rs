//! Simulated annealing over the lists of some nodes, for weighted completion.

use crate::completion::line::Line;
use crate::completion::queue::{Fine, Merit, Queue};
use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::lists::list::{Entry, Lists};

/// Moves between two looks at the clock and at what the lists are worth.
pub(crate) const MOVES_PER_LOOK: u64 = 64;

/// Temperatures of one annealing, in the units of the objective, over a number of moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cooling {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) num_moves: u64,
}

impl Cooling {
    /// The share of an annealing at its end in which nothing is accepted that costs more.
    const FROZEN: f64 = 0.03;

    /// The temperature after some moves.
    pub(crate) fn after(&self, num_moves: u64) -> f64 {
        let share = num_moves as f64 / self.num_moves.max(1) as f64;
        if share > 1.0 - Self::FROZEN { 0.0 } else { self.from * (self.to / self.from).powf(share) }
    }
}

/// Where a task is: line of the region and position in its list.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spot {
    pub(super) line: u32,
    pub(super) at: u32,
}

/// The lines that a run works on.
pub(crate) struct Region<'a> {
    pub(super) queue: &'a Queue<'a>,
    pub(super) fine: Fine,
    pub(super) lines: Vec<Line>,
    /// The tasks on these lines.
    pub(super) tasks: Vec<u32>,
    /// By task; of no meaning for tasks that are on no line of the region.
    pub(super) spots: Vec<Spot>,
    pub(super) has_running: bool,
    /// The entries of the one or two lines of a move from the change on.
    pub(super) first: Vec<Entry>,
    pub(super) second: Vec<Entry>,
    free: Vec<f64>,
}

impl<'a> Region<'a> {
    /// `lists` are those of `nodes`, in that order.
    pub(crate) fn new(
        queue: &'a Queue<'a>,
        fine: Fine,
        nodes: &[usize],
        lists: Vec<Vec<Entry>>,
    ) -> Self {
        let tasks = lists.iter().flatten().map(|entry| entry.task).collect();
        let lines: Vec<Line> = nodes
            .iter()
            .zip(lists)
            .map(|(node, list)| Line::new(queue, fine, *node, list))
            .collect();
        let mut region = Self {
            queue,
            fine,
            lines,
            tasks,
            spots: vec![Spot::default(); queue.duties.len()],
            has_running: queue.model.has_running(),
            first: Vec::new(),
            second: Vec::new(),
            free: Vec::new(),
        };
        for line in 0..region.lines.len() {
            region.note_spots(line, 0);
        }
        region
    }

    /// The lists, in the order of the nodes.
    pub(crate) fn into_lists(self) -> Vec<Vec<Entry>> {
        self.lines.into_iter().map(Line::into_list).collect()
    }

    pub(crate) fn merit(&self) -> Merit {
        let mut merit = Merit::default();
        for line in &self.lines {
            merit += line.merit();
        }
        merit
    }

    /// Anneals for `span` of the moves of a cooling. If a bar is set and lists of all nodes beat
    /// it, returns the best lists met, settled, with their merit. Stops early at the deadline.
    pub(crate) fn run(
        &mut self,
        cooling: Cooling,
        span: std::ops::Range<u64>,
        bar: Option<Merit>,
        deadline: Deadline,
        random: &mut Random,
    ) -> Option<(Merit, Lists)> {
        let mut best: Option<(Merit, Lists)> = None;
        let mut done = span.start;
        while done < span.end && !deadline.is_over() && !self.tasks.is_empty() {
            let temperature = cooling.after(done);
            let moves = MOVES_PER_LOOK.min(span.end - done);
            for _ in 0..moves {
                let most = -temperature * (1.0 - random.unit()).ln();
                self.step(most, random);
            }
            done += moves;
            let Some(bar) = bar else { continue };
            let merit = self.merit();
            if merit.beats(best.as_ref().map_or(bar, |(best, _)| *best)) {
                let lists = self.lines.iter().map(|line| line.list().to_vec()).collect();
                best = Some(self.queue.settled(lists));
            }
        }
        best
    }

    /// Puts the gangs of `first` on a line from a position on if that costs at most `most` more.
    #[inline]
    pub(super) fn settle_one(&mut self, line: usize, from: usize, most: f64) {
        let Self { queue, fine, lines, first, free, .. } = self;
        let limit = lines[line].cost() + most;
        if lines[line].cost_with(queue, *fine, from, first, limit, free).is_some() {
            lines[line].replace(queue, *fine, from, first);
            self.note_spots(line, from);
        }
    }

    /// Puts the gangs of `first` on one line and those of `second` on another, each from its
    /// position on. Does so only if both together cost at most `most` more.
    #[inline]
    pub(super) fn settle_two(&mut self, one: (usize, usize), other: (usize, usize), most: f64) {
        let Self { queue, fine, lines, first, second, free, .. } = self;
        let limit = lines[one.0].cost() + lines[other.0].cost() + most;
        let Some(cost) = lines[one.0].cost_with(queue, *fine, one.1, first, limit, free) else {
            return;
        };
        let left = limit - cost;
        if lines[other.0].cost_with(queue, *fine, other.1, second, left, free).is_some() {
            lines[one.0].replace(queue, *fine, one.1, first);
            lines[other.0].replace(queue, *fine, other.1, second);
            self.note_spots(one.0, one.1);
            self.note_spots(other.0, other.1);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "nodes and tasks are fewer than 2^32")]
    fn note_spots(&mut self, line: usize, from: usize) {
        for (at, entry) in self.lines[line].list().iter().enumerate().skip(from) {
            self.spots[entry.task as usize] = Spot { line: line as u32, at: at as u32 };
        }
    }
}
