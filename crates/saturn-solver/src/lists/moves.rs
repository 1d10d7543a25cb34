//! The moves of an annealing over lists: each is worked out in the scratch lists of the region.

use crate::course::random::Random;
use crate::lists::anneal::{Move, Region};
use crate::lists::list::Entry;

impl Region<'_> {
    /// Works out a random move in the scratch lists; `None` where it is void or hopeless.
    #[inline]
    pub(crate) fn propose(&mut self, threshold: f64, random: &mut Random) -> Option<Move> {
        let num_nodes = self.nodes.len();
        let first = if !self.late.is_empty() && random.below(2) == 0 {
            self.late[random.below(self.late.len())]
        } else {
            random.below(num_nodes)
        };
        let length = self.lists[first].len();
        if length == 0 {
            return None;
        }
        let at = random.below(length);
        let dice = random.below(100);
        if num_nodes > 1 && dice < 30 {
            self.propose_near_swap(first, at, threshold, random)
        } else if num_nodes > 1 && dice < 60 {
            let second = random.below(num_nodes);
            if second == first {
                return None;
            }
            if dice < 42 || self.lists[second].is_empty() {
                self.propose_transfer(first, at, second, threshold, random)
            } else {
                self.propose_swap(first, at, second, dice < 48, threshold, random)
            }
        } else if dice < 80 && num_nodes > 1 || dice < 50 {
            self.propose_mode(first, at, dice & 1 == 0, threshold, random)
        } else {
            self.propose_order(first, at, dice & 1 == 0, random)
        }
    }

    /// Takes a gang to another node.
    fn propose_transfer(
        &mut self,
        first: usize,
        at: usize,
        second: usize,
        threshold: f64,
        random: &mut Random,
    ) -> Option<Move> {
        let entry = self.lists[first][at];
        let moved = self.moved(entry, first, second, random)?;
        let left = self.least_cost(first, self.loads[first].area - entry.area());
        let right = self.least_cost(second, self.loads[second].area + moved.area());
        if left + right - self.costs[first] - self.costs[second] > threshold {
            return None;
        }
        let from = &self.lists[first];
        let to = &self.lists[second];
        let into = random.below(to.len() + 1);
        self.scratch.first.clear();
        self.scratch.first.extend_from_slice(&from[..at]);
        self.scratch.first.extend_from_slice(&from[at + 1..]);
        self.scratch.second.clear();
        self.scratch.second.extend_from_slice(&to[..into]);
        self.scratch.second.push(moved);
        self.scratch.second.extend_from_slice(&to[into..]);
        Some(Move { first, second: Some(second) })
    }

    /// Swaps two gangs of two nodes.
    fn propose_swap(
        &mut self,
        first: usize,
        at: usize,
        second: usize,
        reorders: bool,
        threshold: f64,
        random: &mut Random,
    ) -> Option<Move> {
        let entry = self.lists[first][at];
        let other_at = random.below(self.lists[second].len());
        let other = self.lists[second][other_at];
        let moved = self.moved(entry, first, second, random)?;
        let back = self.moved(other, second, first, random)?;
        let found = self.swapped((first, at, back), (second, other_at, moved), threshold)?;
        if reorders {
            let with = random.below(self.scratch.second.len());
            self.scratch.second.swap(other_at, with);
        }
        Some(found)
    }

    /// Swaps a gang with a gang of another node that would take about as long in its place.
    fn propose_near_swap(
        &mut self,
        first: usize,
        at: usize,
        threshold: f64,
        random: &mut Random,
    ) -> Option<Move> {
        let entry = self.lists[first][at];
        let kind = self.model.nodes[self.nodes[first]].kind;
        let (task, index) = self.nearby.pick(kind, entry.gpus, entry.runtime, random)?;
        let second = self.node_of[task] as usize;
        if second == first {
            return None;
        }
        let other_at = self.lists[second].iter().position(|other| other.task as usize == task)?;
        let other = self.lists[second][other_at];
        let mode = *self.model.modes_on(task, self.nodes[first]).get(index)?;
        let back = Entry::new(task, index, &mode);
        let modes = self.model.modes_on(entry.task as usize, self.nodes[second]);
        let width = u32::from(other.gpus);
        let index = modes.partition_point(|one| one.gpus <= width).checked_sub(1)?;
        let moved = Entry::new(entry.task as usize, index, &modes[index]);
        let (one, two) = (mode.runtime, modes[index].runtime);
        if self.is_too_long(one, entry.runtime) || self.is_too_long(two, other.runtime) {
            return None;
        }
        self.swapped((first, at, back), (second, other_at, moved), threshold)
    }

    /// The move that puts one entry in another's place on each of two nodes.
    #[inline]
    fn swapped(
        &mut self,
        (first, at, back): (usize, usize, Entry),
        (second, other_at, moved): (usize, usize, Entry),
        threshold: f64,
    ) -> Option<Move> {
        let left = self.loads[first].area - self.lists[first][at].area() + back.area();
        let right = self.loads[second].area - self.lists[second][other_at].area() + moved.area();
        let least = self.least_cost(first, left) + self.least_cost(second, right);
        if least - self.costs[first] - self.costs[second] > threshold {
            return None;
        }
        self.scratch.first.clone_from(&self.lists[first]);
        self.scratch.first[at] = back;
        self.scratch.second.clone_from(&self.lists[second]);
        self.scratch.second[other_at] = moved;
        Some(Move { first, second: Some(second) })
    }

    /// Changes a gang's mode, and perhaps its place in the order.
    fn propose_mode(
        &mut self,
        first: usize,
        at: usize,
        reorders: bool,
        threshold: f64,
        random: &mut Random,
    ) -> Option<Move> {
        let entry = self.lists[first][at];
        let changed = self.other_mode(entry, self.nodes[first], random)?;
        if self.is_too_long(changed.runtime, entry.runtime) {
            return None;
        }
        let area = self.loads[first].area - entry.area() + changed.area();
        if self.least_cost(first, area) - self.costs[first] > threshold {
            return None;
        }
        self.scratch.first.clone_from(&self.lists[first]);
        self.scratch.first[at] = changed;
        if reorders {
            let with = random.below(self.scratch.first.len());
            self.scratch.first.swap(at, with);
        }
        Some(Move { first, second: None })
    }

    /// `entry` in another mode, or staying where it runs.
    fn other_mode(&self, entry: Entry, node: usize, random: &mut Random) -> Option<Entry> {
        let task = entry.task as usize;
        let modes = self.model.modes_on(task, node);
        let stay = self.stay_on(task, node).filter(|_| !entry.stays());
        let num_ways = modes.len() + usize::from(stay.is_some());
        if num_ways == 0 {
            return None;
        }
        let index = random.below(num_ways);
        match modes.get(index) {
            None => stay,
            Some(_) if entry.mode() == Some(index) => None,
            Some(mode) => Some(Entry::new(task, index, mode)),
        }
    }

    /// A task as it runs already, if that is on this node.
    #[inline]
    fn stay_on(&self, task: usize, node: usize) -> Option<Entry> {
        if !self.has_running {
            return None;
        }
        let stay = self.model.tasks[task].stay.as_ref();
        stay.filter(|stay| stay.home() == Some(node)).map(|stay| Entry::staying(task, stay))
    }

    /// Swaps two gangs of a node, or takes one elsewhere in the order.
    fn propose_order(
        &mut self,
        first: usize,
        at: usize,
        swaps: bool,
        random: &mut Random,
    ) -> Option<Move> {
        let length = self.lists[first].len();
        let to = random.below(length);
        if to == at {
            return None;
        }
        let list = &mut self.scratch.first;
        list.clone_from(&self.lists[first]);
        if swaps {
            list.swap(at, to);
        } else if at < to {
            list[at..=to].rotate_left(1);
        } else {
            list[to..=at].rotate_right(1);
        }
        Some(Move { first, second: None })
    }

    /// `entry` as it would be on another node: mostly in the same mode where kinds are equal.
    #[inline]
    fn moved(&self, entry: Entry, from: usize, to: usize, random: &mut Random) -> Option<Entry> {
        let (from, to) = (self.nodes[from], self.nodes[to]);
        let task = entry.task as usize;
        if let Some(stay) = self.stay_on(task, to)
            && random.below(4) > 0
        {
            return Some(stay);
        }
        let modes = self.model.modes_on(task, to);
        if modes.is_empty() {
            return None;
        }
        let keeps = self.model.nodes[from].kind == self.model.nodes[to].kind && random.below(4) > 0;
        let kept = if entry.stays() {
            modes.partition_point(|mode| mode.gpus <= u32::from(entry.gpus)).checked_sub(1)
        } else {
            entry.mode()
        };
        let index = kept.filter(|_| keeps).unwrap_or_else(|| random.below(modes.len()));
        let mode = modes.get(index)?;
        if self.is_too_long(mode.runtime, entry.runtime) {
            return None;
        }
        Some(Entry::new(task, index, mode))
    }

    /// Whether a mode exceeds the target without being an improvement.
    #[inline]
    fn is_too_long(&self, runtime: f64, current: f64) -> bool {
        runtime > self.target && runtime >= current
    }
}
