//! The moves of the annealing. A gang goes elsewhere on its line, to another line, or to another
//! mode. It swaps with a gang that starts at about the same time. It stays as it runs.
//!
//! A move writes the lines' new entries from the change on into the region's scratch lists and lets
//! the region settle them. Gangs that stay are in front of their line and no other gang goes there.

use crate::completion::region::Region;
use crate::course::random::Random;
use crate::lists::list::Entry;
use crate::problem::modes::Mode;

/// A gang is shifted by at most this many positions.
const REACH: usize = 4;

impl Region<'_> {
    /// Tries one random move, which may cost `most` more.
    #[inline]
    pub(super) fn step(&mut self, most: f64, random: &mut Random) {
        let task = self.tasks[random.below(self.tasks.len())] as usize;
        let spot = self.spots[task];
        let (line, at) = (spot.line as usize, spot.at as usize);
        let entry = self.lines[line].list()[at];
        if self.has_running
            && (entry.stays() || random.below(6) == 0)
            && self.stay(task, most, random)
        {
            return;
        }
        let num_lines = self.lines.len();
        let dice = random.below(100);
        if num_lines == 1 || dice < 50 {
            return self.within(line, at, entry, most, random);
        }
        let mut other = random.below(num_lines - 1);
        other += usize::from(other >= line);
        let start = self.lines[line].start(at);
        let target = &self.lines[other];
        let jittered = (target.near(start) + random.below(5)).saturating_sub(2);
        let into = jittered.clamp(target.num_stays(), target.list().len());
        match target.list().get(into) {
            Some(opposite) if dice >= 75 => {
                let opposite = *opposite;
                self.swap((line, at, entry), (other, into, opposite), most, random);
            }
            _ => self.transfer((line, at, entry), (other, into), most, random),
        }
    }

    /// Another mode, another position on its line, or both; or two gangs of a line swapped.
    #[inline]
    fn within(&mut self, line: usize, at: usize, entry: Entry, most: f64, random: &mut Random) {
        let list = self.lines[line].list();
        let shift = 1 + random.below(REACH);
        let to = if random.below(2) == 0 { at.saturating_sub(shift) } else { at + shift };
        let to = to.clamp(self.lines[line].num_stays(), list.len() - 1);
        let dice = random.below(100);
        let modes = self.queue.model.modes_on(entry.task as usize, self.lines[line].node);
        let mut moved = entry;
        if dice < 55 && !modes.is_empty() {
            moved = entry_of(entry, random.below(modes.len()), modes);
        }
        let is_shifted = dice >= 25 && to != at;
        if !is_shifted && moved == entry {
            return;
        }
        let from = if is_shifted { at.min(to) } else { at };
        let suffix = &mut self.first;
        suffix.clear();
        suffix.extend_from_slice(&list[from..]);
        if !is_shifted {
            suffix[0] = moved;
        } else if dice >= 80 {
            suffix.swap(at - from, to - from);
        } else {
            suffix.remove(at - from);
            suffix.insert(to - from, moved);
        }
        self.settle_one(line, from, most);
    }

    /// A gang to another line.
    #[inline]
    fn transfer(
        &mut self,
        (line, at, entry): (usize, usize, Entry),
        (other, into): (usize, usize),
        most: f64,
        random: &mut Random,
    ) {
        let Some(moved) = self.moved(entry, line, other, random) else { return };
        self.first.clear();
        self.first.extend_from_slice(&self.lines[line].list()[at + 1..]);
        self.second.clear();
        self.second.push(moved);
        self.second.extend_from_slice(&self.lines[other].list()[into..]);
        self.settle_two((line, at), (other, into), most);
    }

    /// Two gangs of two lines in each other's place.
    #[inline]
    fn swap(
        &mut self,
        (line, at, entry): (usize, usize, Entry),
        (other, into, opposite): (usize, usize, Entry),
        most: f64,
        random: &mut Random,
    ) {
        let takes_width = random.below(4) == 0;
        let (there, here) = if takes_width {
            let there = self.as_wide(entry, other, opposite.gpus);
            (there, self.as_wide(opposite, line, entry.gpus))
        } else {
            (self.moved(entry, line, other, random), self.moved(opposite, other, line, random))
        };
        let (Some(there), Some(here)) = (there, here) else { return };
        self.first.clear();
        self.first.push(here);
        self.first.extend_from_slice(&self.lines[line].list()[at + 1..]);
        self.second.clear();
        self.second.push(there);
        self.second.extend_from_slice(&self.lines[other].list()[into + 1..]);
        self.settle_two((line, at), (other, into), most);
    }

    /// Lets a moved running task stay, or moves a task that stays; returns whether it could.
    fn stay(&mut self, task: usize, most: f64, random: &mut Random) -> bool {
        let spec = &self.queue.model.tasks[task];
        let Some(stay) = &spec.stay else { return false };
        let (line, at) = (self.spots[task].line as usize, self.spots[task].at as usize);
        let entry = self.lines[line].list()[at];
        let (other, into, moved) = if entry.stays() {
            let other = random.below(self.lines.len());
            let Some(moved) = self.moved(entry, line, other, random) else { return true };
            let target = &self.lines[other];
            // Behind all gangs that stay, without this gang if it was here.
            let first = target.num_stays();
            (other, first + random.below(target.list().len() - first + 1), moved)
        } else {
            let home = self.lines.iter().position(|line| Some(line.node) == stay.home());
            let Some(home) = home else { return false };
            (home, self.lines[home].num_stays(), Entry::staying(task, stay))
        };
        if other != line {
            self.first.clear();
            self.first.extend_from_slice(&self.lines[line].list()[at + 1..]);
            self.second.clear();
            self.second.push(moved);
            self.second.extend_from_slice(&self.lines[other].list()[into..]);
            self.settle_two((line, at), (other, into), most);
            return true;
        }
        let from = at.min(into);
        self.first.clear();
        self.first.extend_from_slice(&self.lines[line].list()[from..]);
        self.first.remove(at - from);
        let into = if into > at { into - 1 } else { into };
        self.first.insert(into - from, moved);
        self.settle_one(line, from, most);
        true
    }

    /// A gang as it would be on another line: mostly in the same mode where kinds are equal.
    #[inline]
    fn moved(&self, entry: Entry, from: usize, to: usize, random: &mut Random) -> Option<Entry> {
        let (from, to) = (self.lines[from].node, self.lines[to].node);
        let model = self.queue.model;
        let modes = model.modes_on(entry.task as usize, to);
        if modes.is_empty() {
            return None;
        }
        let is_like = model.nodes[from].kind == model.nodes[to].kind;
        let kept = entry.mode().filter(|mode| is_like && *mode < modes.len());
        let index = match kept {
            Some(mode) if random.below(2) == 0 => mode,
            _ => random.below(modes.len()),
        };
        Some(entry_of(entry, index, modes))
    }

    /// A gang on another line, on the same number of devices or the next lower number for which it
    /// has a mode.
    #[inline]
    fn as_wide(&self, entry: Entry, to: usize, gpus: u16) -> Option<Entry> {
        let modes = self.queue.model.modes_on(entry.task as usize, self.lines[to].node);
        let behind = modes.partition_point(|mode| mode.gpus <= u32::from(gpus));
        (!modes.is_empty()).then(|| entry_of(entry, behind.saturating_sub(1), modes))
    }
}

/// A gang in another mode.
#[inline]
fn entry_of(entry: Entry, index: usize, modes: &[Mode]) -> Entry {
    Entry::new(entry.task as usize, index, &modes[index])
}
