//! Playing an order of tasks with a choice for each: when every gang starts, and what it comes to.
//!
//! Gangs that stay come first, as they are. Each of the others in turn starts as early as its devices,
//! its release, the tasks that it waits for and its nodes allow, and takes those of the free devices
//! that fell free last; a task that waits for others has them placed before it. So any order keeps
//! devices, releases, precedence and arrivals. What it may miss are the deadlines and the departures
//! of nodes: by how much is counted.
//!
//! Some best order loses nothing, for objectives that never gain by waiting: take a best plan's
//! gangs by start. By induction each starts no later than there, and at any later moment as many
//! devices are free; so it misses nothing either. For the cost, waiting can pay: see `wait`.

use saturn_core::Objective;

use super::instance::Instance;
use crate::schedule::Pace;

/// Under what a task runs, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// As it runs already.
    Stay,
    /// A narrow mode: index into the task's modes of the node's kind.
    Narrow { node: usize, mode: usize },
    /// A wide mode: index into the task's wide modes; its nodes follow from the order, but for the
    /// one that it takes first.
    Wide { mode: usize, lead: Option<usize> },
}

/// A state of the search.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Genome {
    /// Every task once.
    pub(crate) order: Vec<usize>,
    /// By task.
    pub(crate) choices: Vec<Choice>,
}

/// Where and when a gang is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placed {
    pub(crate) task: usize,
    pub(crate) strategy: usize,
    /// Nodes with the number of devices held.
    pub(crate) parts: Vec<(usize, u32)>,
    pub(crate) start: f64,
    /// Seconds for which it holds its devices.
    pub(crate) lasts: f64,
    pub(crate) stays: bool,
}

impl Placed {
    pub(crate) fn end(&self) -> f64 {
        self.start + self.lasts
    }
}

/// What a genome comes to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Worth {
    /// Seconds by which deadlines and departures are missed, summed.
    pub(crate) missed: f64,
    /// Under the objective.
    pub(crate) value: f64,
    pub(crate) makespan: f64,
    /// Seconds by which nodes end beyond the target, summed, weighted up for the latest.
    pub(crate) late: f64,
    /// Device-seconds held, over the devices there are.
    pub(crate) load: f64,
}

impl Worth {
    /// Whether it is better: misses less, or as much and is worth less.
    pub(crate) fn beats(&self, other: &Self) -> bool {
        let scale = 1e-9 * (1.0 + other.makespan);
        if self.missed > scale || other.missed > scale {
            return self.missed < other.missed - scale
                || (self.missed <= other.missed + scale
                    && self.value < other.value * (1.0 - 1e-12));
        }
        self.value < other.value * (1.0 - 1e-12)
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.missed <= 1e-10 * (1.0 + self.makespan)
    }
}

/// Excess beyond the target counts its square as well, this much.
const SQUARE: f64 = 20.0;

/// Plays genomes; keeps its buffers between plays.
pub(crate) struct Player<'a> {
    pub(crate) instance: &'a Instance<'a>,
    pub(crate) pace: Pace,
    /// For each node, when its devices fall free, ascending.
    pub(crate) free: Vec<Vec<f64>>,
    /// For each task, when it ends; NaN until it is placed.
    pub(crate) ends: Vec<f64>,
    /// For each node, the spans of its gangs; only where the cost is asked for.
    spans: Vec<Vec<(f64, f64)>>,
    missed: f64,
    completion: f64,
    area: f64,
    pub(crate) makespan: f64,
}

impl<'a> Player<'a> {
    pub(crate) fn new(instance: &'a Instance<'a>, pace: Pace) -> Self {
        let free = instance.model.nodes.iter().map(|node| vec![0.0; node.gpus as usize]).collect();
        Self {
            instance,
            pace,
            free,
            ends: vec![f64::NAN; instance.tasks.len()],
            spans: vec![Vec::new(); instance.nodes.len()],
            missed: 0.0,
            completion: 0.0,
            area: 0.0,
            makespan: 0.0,
        }
    }

    /// Empties the nodes and puts those tasks there that stay.
    pub(crate) fn begin(&mut self, choices: &[Choice], mut visit: impl FnMut(Placed)) {
        for (free, node) in self.free.iter_mut().zip(&self.instance.nodes) {
            free.fill(node.from);
        }
        self.spans.iter_mut().for_each(Vec::clear);
        self.ends.fill(f64::NAN);
        (self.missed, self.completion, self.area, self.makespan) = (0.0, 0.0, 0.0, 0.0);
        for (task, choice) in choices.iter().enumerate() {
            let stay = self.instance.stay(task).filter(|_| *choice == Choice::Stay);
            let Some(stay) = stay else { continue };
            for (node, gpus) in stay.parts() {
                let free = &mut self.free[node];
                free[..gpus as usize].fill(stay.runtime);
                free.sort_by(f64::total_cmp);
                self.hold(node, gpus, 0.0, stay.runtime);
            }
            self.finish(task, stay.runtime);
            visit(Placed {
                task,
                strategy: stay.strategy,
                parts: stay.parts().collect(),
                start: 0.0,
                lasts: stay.runtime,
                stays: true,
            });
        }
    }

    /// Counts that a node holds something.
    fn hold(&mut self, node: usize, gpus: u32, start: f64, end: f64) {
        self.missed += (end - self.instance.nodes[node].until).max(0.0);
        self.area += f64::from(gpus) * (end - start);
        if self.instance.objective == Objective::Cost {
            self.spans[node].push((start, end));
        }
    }

    fn finish(&mut self, task: usize, end: f64) {
        let facts = &self.instance.tasks[task];
        self.ends[task] = end;
        self.missed += (end - facts.due).max(0.0);
        self.completion += facts.weight * end;
        self.makespan = self.makespan.max(end);
    }

    /// When a task may start for all but devices; those that it waits for must be placed.
    pub(crate) fn ready(&self, task: usize) -> f64 {
        let facts = &self.instance.tasks[task];
        facts.after.iter().map(|other| self.ends[*other]).fold(facts.release, f64::max)
    }

    /// When a gang of so many devices could start on a node.
    pub(crate) fn start_on(&self, node: usize, gpus: u32, ready: f64) -> f64 {
        let free = &self.free[node];
        let first = match self.pace {
            Pace::Packed => free[gpus as usize - 1],
            Pace::OneAtATime => free[free.len() - 1],
        };
        first.max(ready)
    }

    /// Places one task whose predecessors are placed.
    pub(crate) fn place(&mut self, task: usize, choice: Choice, visit: &mut impl FnMut(Placed)) {
        let instance = self.instance;
        let ready = self.ready(task);
        match choice {
            Choice::Stay => {}
            Choice::Narrow { node, mode } => {
                let mode = instance.model.tasks[task].modes[instance.model.nodes[node].kind][mode];
                let start = self.start_on(node, mode.gpus, ready);
                let lasts = mode.runtime;
                let end = start + lasts;
                take(&mut self.free[node], mode.gpus as usize, start, end);
                self.hold(node, mode.gpus, start, end);
                self.finish(task, end);
                let strategy = mode.strategy as usize;
                let parts = vec![(node, mode.gpus)];
                visit(Placed { task, strategy, parts, start, lasts, stays: false });
            }
            Choice::Wide { mode, lead: first } => {
                let mode = instance.model.tasks[task].wide[mode];
                let lasts = mode.runtime;
                let parts = self.nodes_for(task, &mode, first, ready, lasts);
                let starts = parts.iter().map(|(node, gpus)| self.start_on(*node, *gpus, ready));
                let start = starts.fold(ready, f64::max);
                let end = start + lasts;
                for (node, gpus) in &parts {
                    take(&mut self.free[*node], *gpus as usize, start, end);
                    self.hold(*node, *gpus, start, end);
                }
                self.finish(task, end);
                let strategy = mode.strategy as usize;
                visit(Placed { task, strategy, parts, start, lasts, stays: false });
            }
        }
    }

    /// Places a task, and before it whatever it waits for that isn't placed.
    fn place_in_turn(&mut self, task: usize, choices: &[Choice], visit: &mut impl FnMut(Placed)) {
        let mut open = vec![task];
        while let Some(&task) = open.last() {
            if !self.ends[task].is_nan() {
                open.pop();
                continue;
            }
            let after = &self.instance.tasks[task].after;
            if let Some(other) = after.iter().find(|other| self.ends[**other].is_nan()) {
                open.push(*other);
            } else {
                self.place(task, choices[task], visit);
                open.pop();
            }
        }
    }

    /// Plays a genome, and tells `visit` each gang.
    pub(crate) fn play(&mut self, genome: &Genome, mut visit: impl FnMut(Placed)) {
        self.begin(&genome.choices, &mut visit);
        for &task in &genome.order {
            if self.ends[task].is_nan() {
                self.place_in_turn(task, &genome.choices, &mut visit);
            }
        }
    }

    /// What a genome comes to; nodes should end by `target`.
    pub(crate) fn worth(&mut self, genome: &Genome, target: f64) -> Worth {
        self.play(genome, |_| {});
        self.tally(target)
    }

    /// What has been placed comes to.
    pub(crate) fn tally(&mut self, target: f64) -> Worth {
        let value = match self.instance.objective {
            Objective::Makespan => self.makespan,
            Objective::Completion => self.completion,
            Objective::Cost => self.cost(),
        };
        let mut late = 0.0;
        if self.instance.objective == Objective::Makespan {
            for free in &self.free {
                let excess = (free.last().copied().unwrap_or(0.0) - target).max(0.0);
                late += excess + SQUARE * excess * excess / target.max(1e-9);
            }
        }
        let load = self.area / self.instance.model.num_gpus();
        Worth { missed: self.missed, value, makespan: self.makespan, late, load }
    }

    fn cost(&mut self) -> f64 {
        let mut cost = 0.0;
        for (spans, node) in self.spans.iter_mut().zip(&self.instance.nodes) {
            if node.price > 0.0 {
                cost += node.price * covered(spans);
            }
        }
        cost
    }

    /// The gangs of a genome, in the order in which they are placed.
    pub(crate) fn placed(&mut self, genome: &Genome) -> Vec<Placed> {
        let mut all = Vec::with_capacity(genome.order.len());
        self.play(genome, |placed| all.push(placed));
        all
    }
}

/// The time that spans cover; sorts them.
pub(crate) fn covered(spans: &mut [(f64, f64)]) -> f64 {
    if !spans.is_sorted_by(|left, right| left.0 <= right.0) {
        spans.sort_by(|left, right| left.0.total_cmp(&right.0));
    }
    let mut covered = 0.0;
    let mut until = f64::NEG_INFINITY;
    for &(from, to) in spans.iter() {
        covered += (to - from.max(until)).max(0.0);
        until = until.max(to);
    }
    covered
}

/// Takes the `gpus` devices that fell free last by `start`; `free` is ascending and stays so.
pub(super) fn take(free: &mut [f64], gpus: usize, start: f64, end: f64) {
    let beyond = free.partition_point(|time| *time <= start);
    let mut write = beyond - gpus;
    let mut read = beyond;
    while read < free.len() && free[read] < end {
        free[write] = free[read];
        write += 1;
        read += 1;
    }
    free[write..write + gpus].fill(end);
}
