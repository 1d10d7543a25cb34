//! One node, its tasks, a limit: is there a plan?
//!
//! Gangs are placed in order of start. Some plan of least makespan is *settled*: decoding its gangs
//! by start gives the same starts again (decoding never moves a start later, so repeating it ends).
//! In a settled plan each gang starts when its g-th device falls free, or with the gang before it if
//! that is later; and a device that is idle at a start has been idle since it fell free, for no later
//! gang starts earlier. So when a gang starts at s, all devices free before s are raised to s: what
//! is lost is known at once. A state is given up when the least areas of the tasks left, by modes
//! that can still end by the limit, exceed the GPU-seconds left on devices that some task can still
//! use. Gangs of equal start are placed in one order only, and so are equal tasks; states met before
//! are not searched again. And as a plan turned back to front is a plan, one task (that has no equal)
//! may be taken to have its middle in the first half: settling only moves it forward.

use crate::clock::Deadline;
use crate::model::{Mode, Model};

use super::SLACK;

/// Slots of the table of states met; a power of two.
const TABLE: usize = 1 << 18;
const MAX_GPUS: usize = 16;
/// Placements between two looks at the clock.
const STEPS_PER_LOOK: u64 = 4096;

/// The answer for one node.
pub(super) enum Decision {
    /// (Task, mode) by order of placement; indices into the strip's tasks and their modes.
    Fits(Vec<(usize, usize)>),
    Impossible,
    Unknown,
}

/// A node with the tasks that must run on it.
pub(super) struct Strip<'a> {
    gpus: usize,
    limit: f64,
    modes: Vec<&'a [Mode]>,
    /// The modes of each task by area.
    by_area: Vec<Vec<Mode>>,
    /// The task whose middle is in the first half.
    early: Option<usize>,
    /// For each task, the equal task before it.
    same: Vec<Option<usize>>,
}

/// When devices fall free, ascending; only the first `gpus` count.
type Free = [f64; MAX_GPUS];

struct Walk<'a> {
    strip: &'a Strip<'a>,
    deadline: Deadline<'a>,
    steps_left: &'a mut u64,
    placed: Vec<(usize, usize)>,
    /// Fingerprints of states that lead nowhere.
    table: Vec<u128>,
    is_stopped: bool,
}

impl<'a> Strip<'a> {
    pub(super) fn new(model: &'a Model, node: usize, tasks: &[usize], limit: f64) -> Self {
        let modes: Vec<&[Mode]> = tasks.iter().map(|task| model.modes_on(*task, node)).collect();
        let by_area = modes
            .iter()
            .map(|modes| {
                let mut modes = modes.to_vec();
                modes.sort_by(|left, right| left.area().total_cmp(&right.area()));
                modes
            })
            .collect();
        let same: Vec<Option<usize>> = (0..tasks.len())
            .map(|task| (0..task).rev().find(|before| is_same(modes[*before], modes[task])))
            .collect();
        let has_equal = |task: usize| same[task].is_some() || same.contains(&Some(task));
        let early = (0..tasks.len()).find(|task| !has_equal(*task));
        Self { gpus: model.nodes[node].gpus as usize, limit, modes, by_area, early, same }
    }

    /// Whether a gang of the early task may run from `start` on.
    #[inline]
    fn is_early(&self, start: f64, runtime: f64) -> bool {
        2.0 * start + runtime <= self.limit * (1.0 + SLACK)
    }

    /// Searches all settled plans; takes its placements from `steps_left`.
    pub(super) fn decide(&self, deadline: Deadline, steps_left: &mut u64) -> Decision {
        let table = if self.modes.len() > 4 { vec![0; TABLE] } else { vec![0; 1] };
        let mut walk = Walk {
            strip: self,
            deadline,
            steps_left,
            placed: Vec::new(),
            table,
            is_stopped: false,
        };
        let all = (1u32 << self.modes.len()) - 1;
        if walk.place(all, &[0.0; MAX_GPUS], 0.0, 0) {
            return Decision::Fits(walk.placed);
        }
        if walk.is_stopped { Decision::Unknown } else { Decision::Impossible }
    }
}

fn is_same(left: &[Mode], right: &[Mode]) -> bool {
    let shape = |mode: &Mode| (mode.gpus, mode.runtime.to_bits());
    left.iter().map(shape).eq(right.iter().map(shape))
}

impl Walk<'_> {
    /// Places the tasks of `left` at or after `last`; those at `last` from `next_task` on.
    fn place(&mut self, left: u32, free: &Free, last: f64, next_task: usize) -> bool {
        if left == 0 {
            return true;
        }
        *self.steps_left = self.steps_left.saturating_sub(1);
        if *self.steps_left == 0
            || self.steps_left.is_multiple_of(STEPS_PER_LOOK) && self.deadline.is_over()
        {
            self.is_stopped = true;
        }
        if self.is_stopped {
            return false;
        }
        let strip = self.strip;
        let is_tied = free[0] <= last;
        let print = fingerprint(left, &free[..strip.gpus], if is_tied { next_task } else { 0 });
        let slot = usize::try_from(print >> 64 & (self.table.len() as u128 - 1)).unwrap_or(0);
        if self.table[slot] == print {
            return false;
        }
        let limit = strip.limit * (1.0 + SLACK);
        let mut tasks = left;
        while tasks != 0 {
            let task = tasks.trailing_zeros() as usize;
            tasks &= tasks - 1;
            if strip.same[task].is_some_and(|before| left >> before & 1 == 1) {
                continue;
            }
            let rest = left & !(1 << task);
            for (index, mode) in strip.modes[task].iter().enumerate() {
                let width = mode.gpus as usize;
                let start = free[width - 1].max(last);
                if start + mode.runtime > limit || start <= last && task < next_task {
                    continue;
                }
                if strip.early == Some(task) && !strip.is_early(start, mode.runtime) {
                    continue;
                }
                let next = after(free, strip.gpus, width, start, start + mode.runtime);
                if !self.may_fit(rest, &next, start) {
                    continue;
                }
                self.placed.push((task, index));
                if self.place(rest, &next, start, task + 1) {
                    return true;
                }
                self.placed.pop();
                if self.is_stopped {
                    return false;
                }
            }
        }
        self.table[slot] = print;
        false
    }

    /// Whether the areas of `left` may fit what is free until the limit, none starting before
    /// `start`; no device is free before that either.
    #[inline]
    fn may_fit(&self, left: u32, free: &Free, start: f64) -> bool {
        let strip = self.strip;
        let limit = strip.limit * (1.0 + SLACK);
        let slack = SLACK * limit;
        let mut room: f64 = free[..strip.gpus].iter().map(|time| limit - time).sum();
        let mut shortest = f64::INFINITY;
        let mut tasks = left;
        while tasks != 0 {
            let task = tasks.trailing_zeros() as usize;
            tasks &= tasks - 1;
            let ends = |mode: &&Mode| free[mode.gpus as usize - 1] + mode.runtime <= limit;
            let Some(mode) = strip.by_area[task].iter().find(ends) else { return false };
            room -= mode.area();
            if room < -slack {
                return false;
            }
            if let Some(mode) = strip.modes[task].iter().rfind(ends) {
                shortest = shortest.min(mode.runtime);
            }
            if strip.early == Some(task) {
                let runtime = strip.modes[task].last().map_or(0.0, |mode| mode.runtime);
                if !strip.is_early(start.max(free[0]), runtime) {
                    return false;
                }
            }
        }
        // Devices that fall free too late for any gang are lost.
        for time in free[..strip.gpus].iter().rev() {
            if limit - time >= shortest {
                break;
            }
            room -= limit - time;
        }
        room >= -slack
    }
}

/// `free` after a gang of `width` runs from `start` to `end`; what was idle before `start` is lost.
#[inline]
fn after(free: &Free, gpus: usize, width: usize, start: f64, end: f64) -> Free {
    let mut next = *free;
    let mut read = width;
    let mut write = 0;
    // The gang takes the first devices; the others keep their order, raised to the start.
    while read < gpus && free[read] < end {
        next[write] = free[read].max(start);
        read += 1;
        write += 1;
    }
    next[write..write + width].fill(end);
    next
}

/// A number that tells states apart; of 2^128 values, so that two states share one practically never.
fn fingerprint(left: u32, free: &[f64], next_task: usize) -> u128 {
    let mut print = u128::from(left) << 64 | next_task as u128 | 1 << 60;
    for time in free {
        print ^= u128::from(time.to_bits());
        print = print.wrapping_mul(0x2d99_787e_926d_5a37_9e37_79b9_7f4a_7c15_u128 | 1);
        print ^= print >> 61;
    }
    print
}
