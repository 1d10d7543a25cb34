//! The list of one node, with its value up to every position.

use crate::completion::queue::{Fine, Merit, Queue};
use crate::lists::list::Entry;
use crate::problem::timeline::place_after;

/// With at most this many devices their free times are kept before every gang. With more devices
/// they are kept at wider spacing, so that little memory is needed.
const FEW_GPUS: usize = 16;

/// The value of a list before some position.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    /// With fines; annealing makes this small.
    cost: f64,
    merit: Merit,
}

/// A list and its prefixes. Gangs that stay are in front.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    /// Index into the model's nodes.
    pub(crate) node: usize,
    list: Vec<Entry>,
    starts: Vec<f64>,
    /// The marks before each gang, and a mark at the end.
    marks: Vec<Mark>,
    /// The number of gangs between two positions at which the free times of all devices are kept.
    spacing: usize,
    /// Those times, ascending, one node's worth after the other.
    free: Vec<f64>,
    num_stays: usize,
}

impl Line {
    pub(crate) fn new(queue: &Queue, fine: Fine, node: usize, list: Vec<Entry>) -> Self {
        let spacing = queue.model.ready[node].len().div_ceil(FEW_GPUS);
        let mut line = Self { node, list, spacing, ..Self::default() };
        line.play(queue, fine, 0);
        line
    }

    pub(crate) fn list(&self) -> &[Entry] {
        &self.list
    }

    pub(crate) fn into_list(self) -> Vec<Entry> {
        self.list
    }

    /// When the gang at a position starts, seconds.
    #[inline]
    pub(crate) fn start(&self, at: usize) -> f64 {
        self.starts[at]
    }

    /// How many gangs at the front stay as they run.
    #[inline]
    pub(crate) fn num_stays(&self) -> usize {
        self.num_stays
    }

    /// The cost of the whole list.
    #[inline]
    pub(crate) fn cost(&self) -> f64 {
        self.marks[self.list.len()].cost
    }

    pub(crate) fn merit(&self) -> Merit {
        self.marks[self.list.len()].merit
    }

    /// About the position of a gang that starts at `start`: starts mostly ascend.
    #[inline]
    pub(crate) fn near(&self, start: f64) -> usize {
        self.starts.partition_point(|other| *other < start)
    }

    /// Replaces the list from a position on.
    pub(crate) fn replace(&mut self, queue: &Queue, fine: Fine, from: usize, suffix: &[Entry]) {
        self.list.truncate(from);
        self.list.extend_from_slice(suffix);
        self.play(queue, fine, from);
    }

    /// Plays the list from a position on.
    fn play(&mut self, queue: &Queue, fine: Fine, from: usize) {
        let ready = &queue.model.ready[self.node];
        let gpus = ready.len();
        let kept = from / self.spacing;
        let first = kept * self.spacing;
        if first == 0 {
            self.free.clear();
            self.free.extend_from_slice(ready);
            self.marks.clear();
            self.marks.push(Mark::default());
        }
        self.free.truncate((kept + 1) * gpus);
        self.marks.truncate(first + 1);
        self.starts.truncate(first);
        let mut free = self.free[kept * gpus..].to_vec();
        let mut mark = self.marks[first];
        for (at, entry) in self.list.iter().enumerate().skip(first) {
            let task = entry.task as usize;
            let duty = queue.duties[task];
            let start =
                place_after(&mut free, usize::from(entry.gpus), duty.release, entry.runtime);
            let end = start + entry.runtime;
            let (merit, fined) = queue.judged(fine, self.node, entry, end);
            mark.cost += merit.value + fined;
            mark.merit += merit;
            self.marks.push(mark);
            self.starts.push(start);
            if (at + 1).is_multiple_of(self.spacing) {
                self.free.extend_from_slice(&free);
            }
        }
        self.num_stays = self.list.iter().take_while(|entry| entry.stays()).count();
    }

    /// The cost of the line with other gangs from a position on; `None` as soon as it exceeds
    /// `most`. `free` is scratch space.
    #[inline]
    pub(crate) fn cost_with(
        &self,
        queue: &Queue,
        fine: Fine,
        from: usize,
        suffix: &[Entry],
        most: f64,
        free: &mut Vec<f64>,
    ) -> Option<f64> {
        let gpus = queue.model.ready[self.node].len();
        let kept = from / self.spacing;
        free.clear();
        free.extend_from_slice(&self.free[kept * gpus..(kept + 1) * gpus]);
        for entry in &self.list[kept * self.spacing..from] {
            let release = queue.duties[entry.task as usize].release;
            place_after(free, usize::from(entry.gpus), release, entry.runtime);
        }
        let mut cost = self.marks[from].cost;
        for entry in suffix {
            let task = entry.task as usize;
            let duty = queue.duties[task];
            let start = place_after(free, usize::from(entry.gpus), duty.release, entry.runtime);
            let end = start + entry.runtime;
            let (merit, fined) = queue.judged(fine, self.node, entry, end);
            cost += merit.value + fined;
            if cost > most {
                return None;
            }
        }
        Some(cost)
    }
}
