//! One node, its tasks, a limit: is there a plan?
//!
//! Gangs are placed in order of start. Some plan of least makespan is *settled*: decoding its gangs
//! by start gives the same starts again. (Decoding never moves a start later, so repeating it
//! ends.) In a settled plan each gang starts when its g-th device becomes free, or with the gang
//! before it if that is later. A device that is idle at a start has been idle since it became free,
//! for no later gang starts earlier. So when a gang starts at s, all devices free before s are
//! raised to s, and the lost GPU-seconds are known at once.
//!
//! The remaining tasks have least areas, by modes that can still end by the limit. A state is given
//! up when these exceed the remaining GPU-seconds on devices that some task can still use. Gangs of
//! equal start are placed in one order only, and so are equal tasks. States met before are not
//! searched again. A plan turned back to front is a plan, unless tasks run already. So one task
//! (without an equal) may be taken to have its middle in the first half: settling only moves it
//! forward.
//!
//! Running tasks that stay hold devices from 0 on. Since all other gangs may take any devices, only
//! the seconds after which those devices fall free count.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::course::clock::Deadline;
use crate::problem::model::Model;
use crate::problem::modes::Mode;

use crate::proof::decide::SLACK;

/// Slots of the table of states met; a power of two.
const TABLE: usize = 1 << 18;
const MAX_GPUS: usize = 16;
/// Placements between two looks at the clock.
const STEPS_PER_LOOK: u64 = 4096;

/// The answer for one node.
pub(crate) enum Decision {
    /// (Task, mode) by order of placement; indices into the strip's tasks and their modes.
    Fits(Vec<(usize, usize)>),
    Impossible,
    Unknown,
}

/// A node with the tasks that must run on it.
pub(crate) struct Strip<'a> {
    gpus: usize,
    /// When its devices fall free of the tasks that stay.
    free: Free,
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

/// The state after the gangs placed so far.
#[derive(Clone, Copy)]
struct State {
    /// Tasks to place, as bits.
    left: u32,
    free: Free,
    /// The last start.
    last: f64,
    /// Of gangs that start at `last` too, only tasks from this task on.
    next_task: usize,
}

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
    /// `tasks` are to be placed, and `staying` hold devices from 0 on.
    pub(crate) fn new(
        model: &'a Model,
        node: usize,
        tasks: &[usize],
        staying: &[usize],
        limit: f64,
    ) -> Self {
        let gpus = model.nodes[node].gpus as usize;
        let stays = staying.iter().filter_map(|task| model.tasks[*task].stay.as_ref());
        let held = stays.flat_map(|stay| std::iter::repeat_n(stay.runtime, stay.held() as usize));
        let mut free = [0.0; MAX_GPUS];
        for (time, held) in free[..gpus].iter_mut().zip(held) {
            *time = held;
        }
        free[..gpus].sort_unstable_by(f64::total_cmp);
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
        let early = (0..tasks.len()).find(|task| staying.is_empty() && !has_equal(*task));
        Self { gpus, free, limit, modes, by_area, early, same }
    }

    /// Whether a gang of the early task may run from `start` on.
    #[inline]
    fn is_early(&self, start: f64, runtime: f64) -> bool {
        2.0 * start + runtime <= self.limit * (1.0 + SLACK)
    }

    /// Hands every placement that may follow a state to `visit`, until it says to stop. A placement
    /// is a task, a mode, the devices after it, and its start.
    #[inline]
    fn follow(
        &self,
        state: &State,
        mut visit: impl FnMut(usize, usize, &Free, f64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let State { left, free, last, next_task } = state;
        let limit = self.limit * (1.0 + SLACK);
        let mut tasks = *left;
        while tasks != 0 {
            let task = tasks.trailing_zeros() as usize;
            tasks &= tasks - 1;
            if self.same[task].is_some_and(|before| left >> before & 1 == 1) {
                continue;
            }
            for (index, mode) in self.modes[task].iter().enumerate() {
                let width = mode.gpus as usize;
                let start = free[width - 1].max(*last);
                if start + mode.runtime > limit || start <= *last && task < *next_task {
                    continue;
                }
                if self.early == Some(task) && !self.is_early(start, mode.runtime) {
                    continue;
                }
                let next = after(free, self.gpus, width, start, start + mode.runtime);
                if self.may_fit(left & !(1 << task), &next, start) {
                    visit(task, index, &next, start)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether the areas of `left` may fit the free time until the limit. No gang starts before
    /// `start`, and no device is free before it either.
    #[inline]
    fn may_fit(&self, left: u32, free: &Free, start: f64) -> bool {
        let limit = self.limit * (1.0 + SLACK);
        let slack = SLACK * limit;
        let mut room: f64 = free[..self.gpus].iter().map(|time| limit - time).sum();
        let mut shortest = f64::INFINITY;
        let mut tasks = left;
        while tasks != 0 {
            let task = tasks.trailing_zeros() as usize;
            tasks &= tasks - 1;
            let ends = |mode: &&Mode| free[mode.gpus as usize - 1] + mode.runtime <= limit;
            let Some(mode) = self.by_area[task].iter().find(ends) else { return false };
            room -= mode.area();
            if room < -slack {
                return false;
            }
            if let Some(mode) = self.modes[task].iter().rfind(ends) {
                shortest = shortest.min(mode.runtime);
            }
            if self.early == Some(task) {
                let runtime = self.modes[task].last().map_or(0.0, |mode| mode.runtime);
                if !self.is_early(start.max(free[0]), runtime) {
                    return false;
                }
            }
        }
        // Devices that fall free too late for any gang are lost.
        for time in free[..self.gpus].iter().rev() {
            if limit - time >= shortest {
                break;
            }
            room -= limit - time;
        }
        room >= -slack
    }

    /// The state before anything is placed.
    fn first(&self) -> State {
        let left = (1u32 << self.modes.len()) - 1;
        State { left, free: self.free, last: 0.0, next_task: 0 }
    }

    /// Searches all settled plans on this thread; takes its placements from `steps_left`.
    pub(crate) fn decide(&self, deadline: Deadline, steps_left: &mut u64) -> Decision {
        let mut walk = Walk::new(self, deadline, steps_left);
        if walk.place(&self.first()) {
            return Decision::Fits(walk.placed);
        }
        if walk.is_stopped { Decision::Unknown } else { Decision::Impossible }
    }

    /// Searches all settled plans on several threads, which take beginnings of plans in turn.
    pub(crate) fn decide_in_threads(&self, deadline: Deadline, threads: usize) -> Decision {
        let beginnings = self.beginnings(64 * threads);
        let next = AtomicUsize::new(0);
        let is_found = AtomicBool::new(false);
        let clock = deadline.stopped_by(&is_found);
        let work = || {
            let mut steps_left = u64::MAX;
            let mut walk = Walk::new(self, deadline.on(&clock), &mut steps_left);
            while let Some((state, placed)) = beginnings.get(next.fetch_add(1, Ordering::Relaxed)) {
                walk.placed.clone_from(placed);
                if walk.place(state) {
                    is_found.store(true, Ordering::Relaxed);
                    return Decision::Fits(walk.placed);
                }
                if walk.is_stopped {
                    return Decision::Unknown;
                }
            }
            Decision::Impossible
        };
        let mut answers: Vec<Decision> = thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut answers = vec![work()];
            for other in others {
                match other.join() {
                    Ok(answer) => answers.push(answer),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            answers
        });
        if let Some(at) = answers.iter().position(|one| matches!(one, Decision::Fits(_))) {
            return answers.swap_remove(at);
        }
        let is_unknown = answers.iter().any(|one| matches!(one, Decision::Unknown));
        if is_unknown { Decision::Unknown } else { Decision::Impossible }
    }

    /// At least `num` beginnings of plans that together begin all, unless there are fewer.
    fn beginnings(&self, num: usize) -> Vec<(State, Vec<(usize, usize)>)> {
        let mut level = vec![(self.first(), Vec::new())];
        for _ in 1..self.modes.len() {
            if level.len() >= num {
                break;
            }
            let mut deeper = Vec::new();
            for (state, placed) in &level {
                let _ends = self.follow(state, |task, mode, free, start| {
                    let mut placed: Vec<(usize, usize)> = placed.clone();
                    placed.push((task, mode));
                    deeper.push((state.then(task, free, start), placed));
                    ControlFlow::Continue(())
                });
            }
            level = deeper;
        }
        level
    }
}

fn is_same(left: &[Mode], right: &[Mode]) -> bool {
    let shape = |mode: &Mode| (mode.gpus, mode.runtime.to_bits());
    left.iter().map(shape).eq(right.iter().map(shape))
}

impl State {
    /// The state after a placement.
    #[inline]
    fn then(&self, task: usize, free: &Free, start: f64) -> Self {
        Self { left: self.left & !(1 << task), free: *free, last: start, next_task: task + 1 }
    }
}

impl<'a> Walk<'a> {
    fn new(strip: &'a Strip<'a>, deadline: Deadline<'a>, steps_left: &'a mut u64) -> Self {
        let table = vec![0; if strip.modes.len() > 4 { TABLE } else { 1 }];
        Self { strip, deadline, steps_left, placed: Vec::new(), table, is_stopped: false }
    }

    /// Places the remaining tasks; returns whether they fit.
    fn place(&mut self, state: &State) -> bool {
        if state.left == 0 {
            return true;
        }
        *self.steps_left = self.steps_left.saturating_sub(1);
        let looks = self.steps_left.is_multiple_of(STEPS_PER_LOOK);
        if *self.steps_left == 0 || looks && self.deadline.is_over() {
            self.is_stopped = true;
        }
        if self.is_stopped {
            return false;
        }
        let strip = self.strip;
        let print = state.fingerprint(strip.gpus);
        let slot = usize::try_from(print >> 64 & (self.table.len() as u128 - 1)).unwrap_or(0);
        if self.table[slot] == print {
            return false;
        }
        let ended = strip.follow(state, |task, mode, free, start| {
            self.placed.push((task, mode));
            if self.place(&state.then(task, free, start)) {
                return ControlFlow::Break(());
            }
            self.placed.pop();
            if self.is_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if ended.is_break() {
            return !self.is_stopped;
        }
        self.table[slot] = print;
        false
    }
}

/// `free` after a gang of `width` runs from `start` to `end`; the idle time before `start` is lost.
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

impl State {
    /// A number that tells states apart; of 2^128, so that two states share one practically never.
    fn fingerprint(&self, gpus: usize) -> u128 {
        // Which tasks may start now matters only while a device is idle.
        let next_task = if self.free[0] <= self.last { self.next_task } else { 0 };
        let mut print = u128::from(self.left) << 64 | next_task as u128 | 1 << 60;
        for time in &self.free[..gpus] {
            print ^= u128::from(time.to_bits());
            print = print.wrapping_mul(0x2d99_787e_926d_5a37_9e37_79b9_7f4a_7c15_u128 | 1);
            print ^= print >> 61;
        }
        print
    }
}
