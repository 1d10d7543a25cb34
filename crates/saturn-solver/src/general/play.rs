//! Playing an order of tasks with a choice for each: when every gang starts, and the plan's worth.
//!
//! Gangs that stay come first, as they are. Each other gang in turn starts as early as its devices,
//! its release, its predecessors and its nodes allow, mostly in a gap before other gangs too.
//! Predecessors are placed before the tasks that wait for them. So any order keeps devices,
//! releases, precedence and arrivals. It may miss deadlines and departures of nodes, and the missed
//! seconds are counted. Where host memory binds, each node has a second calendar, of bytes. Each
//! owner's cap that binds has a calendar too.
//!
//! Some best order loses nothing, for objectives that never gain by waiting: take a best plan's
//! gangs by start. Each gang in turn can start no later than in that plan. The gangs that start
//! before it there have been placed no later, so at any moment from its start there on as many
//! devices and bytes are free, and as many devices of its owner's cap. So it misses nothing either. For the cost, waiting can pay: see `wait`.

use std::cmp::Ordering;

use saturn_core::Objective;

use crate::general::caps::CapCalendars;
use crate::general::instance::Instance;
use crate::problem::baselines::Pace;
use crate::problem::calendar::{Calendar, earliest_on_all, earliest_with_memory};
use crate::problem::tardiness::compare_tardiness;
use crate::problem::timeline::lateness;

/// The mode of a task, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// As it runs already.
    Stay,
    /// A narrow mode: index into the task's modes of the node's kind.
    Narrow { node: usize, mode: usize },
    /// A wide mode: index into the task's wide modes. Its nodes follow from the order, but for the
    /// node that it takes first.
    Wide { mode: usize, lead: Option<usize> },
}

/// A state of the search.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Genome {
    /// Every task once.
    pub(crate) order: Vec<usize>,
    /// By task.
    pub(crate) choices: Vec<Choice>,
    /// Whether a gang may start before others that come before it. For an order by start neither
    /// setting loses anything. During the search either setting may be better, except for the
    /// makespan.
    pub(crate) backfills: bool,
}

/// Where and when a gang is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placed {
    pub(crate) task: usize,
    pub(crate) strategy: usize,
    /// Nodes with the number of devices held.
    pub(crate) parts: Vec<(usize, u32)>,
    /// Bytes of host memory on each of them, where that binds.
    pub(crate) host: u64,
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

/// The worth of a genome.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Worth {
    /// Seconds by which deadlines and departures are missed, summed.
    pub(crate) missed: f64,
    /// The price of missing soft deadlines.
    pub(crate) tardiness: f64,
    /// Under the objective.
    pub(crate) value: f64,
    pub(crate) makespan: f64,
    /// Seconds by which nodes end beyond the target, and their squares, summed at the worth of the
    /// nodes. Half counts by a node's last device, half by the mean of its devices.
    pub(crate) late: f64,
    /// Device-seconds held, each at its worth, over the existing devices.
    pub(crate) load: f64,
}

impl Worth {
    /// Whether it is better: valid where the other is not, otherwise misses less; or as much and is
    /// less tardy, or as tardy and worth less.
    pub(crate) fn beats(&self, other: &Self) -> bool {
        if self.is_valid() != other.is_valid() {
            return self.is_valid();
        }
        let scale = 1e-9 * (1.0 + other.makespan);
        if !self.is_valid() && (self.missed - other.missed).abs() > scale {
            return self.missed < other.missed;
        }
        match compare_tardiness(self.tardiness, other.tardiness) {
            Ordering::Less => true,
            Ordering::Equal => self.value < other.value * (1.0 - 1e-12),
            Ordering::Greater => false,
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.missed <= rounding(self.makespan)
    }
}

/// A plan of this makespan that misses its times by no more misses them by rounding.
pub(crate) fn rounding(makespan: f64) -> f64 {
    1e-10 * (1.0 + makespan)
}

/// Plays genomes; keeps its buffers between plays.
pub(crate) struct Player<'a> {
    pub(crate) instance: &'a Instance<'a>,
    pub(crate) pace: Pace,
    /// Whether gangs may start before earlier gangs of the order, as the genome says.
    backfills: bool,
    /// The calendar of each node.
    pub(crate) calendars: Vec<Calendar>,
    /// The calendar of each node's host memory; empty where that doesn't bind.
    memories: Vec<Calendar>,
    caps: CapCalendars<'a>,
    /// For each task, when it starts and ends; ends are NaN until it is placed.
    pub(crate) starts: Vec<f64>,
    pub(crate) ends: Vec<f64>,
    /// The placed gangs in that order, if they are asked for.
    record: Option<Vec<Placed>>,
    /// For each node, the spans of its gangs; only if the cost is asked for.
    spans: Vec<Vec<(f64, f64)>>,
    missed: f64,
    tardiness: f64,
    completion: f64,
    area: f64,
    pub(crate) makespan: f64,
}

impl<'a> Player<'a> {
    pub(crate) fn new(instance: &'a Instance<'a>, pace: Pace) -> Self {
        let (calendars, memories) = calendars(instance);
        Self {
            instance,
            pace,
            backfills: true,
            calendars,
            memories,
            caps: CapCalendars::new(instance),
            starts: vec![0.0; instance.tasks.len()],
            ends: vec![f64::NAN; instance.tasks.len()],
            record: None,
            spans: vec![Vec::new(); instance.nodes.len()],
            missed: 0.0,
            tardiness: 0.0,
            completion: 0.0,
            area: 0.0,
            makespan: 0.0,
        }
    }

    /// Empties the nodes and places the tasks that stay.
    pub(crate) fn begin(&mut self, choices: &[Choice]) {
        for (calendar, node) in self.calendars.iter_mut().zip(&self.instance.nodes) {
            calendar.clear(node.from);
        }
        for (memory, node) in self.memories.iter_mut().zip(&self.instance.nodes) {
            memory.clear(node.from);
        }
        self.caps.clear();
        self.spans.iter_mut().for_each(Vec::clear);
        self.ends.fill(f64::NAN);
        (self.missed, self.tardiness, self.completion) = (0.0, 0.0, 0.0);
        (self.area, self.makespan) = (0.0, 0.0);
        for (task, choice) in choices.iter().enumerate() {
            let stay = self.instance.stay(task).filter(|_| *choice == Choice::Stay);
            let Some(stay) = stay else { continue };
            for (node, gpus) in stay.parts() {
                self.hold(node, (gpus, stay.host), 0.0, stay.runtime);
            }
            self.caps.hold(task, stay.held(), 0.0, stay.runtime);
            self.finish(task, 0.0, stay.runtime);
            if let Some(record) = &mut self.record {
                let (strategy, lasts, host) = (stay.strategy, stay.runtime, stay.host);
                let parts = stay.parts().collect();
                record.push(Placed { task, strategy, parts, host, start: 0.0, lasts, stays: true });
            }
        }
    }

    /// Takes devices and bytes of host memory of a node for a while.
    fn hold(&mut self, node: usize, (gpus, host): (u32, u64), start: f64, end: f64) {
        self.calendars[node].hold(u64::from(gpus), start, end);
        if let Some(memory) = self.memories.get_mut(node) {
            memory.hold(host, start, end);
        }
        self.missed += (end - self.instance.nodes[node].until).max(0.0);
        self.area += self.instance.worth[node] * f64::from(gpus) * (end - start);
        if self.instance.objective == Objective::Cost {
            self.spans[node].push((start, end));
        }
    }

    fn finish(&mut self, task: usize, start: f64, end: f64) {
        let facts = &self.instance.tasks[task];
        self.starts[task] = start;
        self.ends[task] = end;
        self.missed += (end - facts.due).max(0.0);
        self.tardiness += facts.tardiness(end);
        self.completion += facts.weight * end;
        self.makespan = self.makespan.max(end);
    }

    /// The earliest start of a task apart from devices. Its predecessors must be placed.
    pub(crate) fn ready(&self, task: usize) -> f64 {
        let facts = &self.instance.tasks[task];
        facts.after.iter().map(|other| self.ends[*other]).fold(facts.release, f64::max)
    }

    /// When a gang of that many devices and bytes of host memory, and of that length, could start on a
    /// node that has so many of both, as far as the node goes.
    #[inline]
    pub(crate) fn free_on(
        &self,
        node: usize,
        (gpus, host): (u32, u64),
        ready: f64,
        lasts: f64,
    ) -> f64 {
        let (calendar, gpus) = (&self.calendars[node], u64::from(gpus));
        let memory = self.memories.get(node);
        match self.pace {
            Pace::Packed if self.backfills => match memory {
                None => calendar.earliest(gpus, ready, lasts),
                Some(memory) => {
                    earliest_with_memory((calendar, gpus), (memory, host), ready, lasts)
                }
            },
            Pace::Packed => {
                let free = memory.map_or(0.0, |memory| memory.free_for_good(host));
                calendar.free_for_good(gpus).max(free).max(ready)
            }
            Pace::OneAtATime => calendar.end().max(ready),
        }
    }

    /// From when on a gang of one device could have a node, behind all that is placed there.
    pub(crate) fn free_for_good(&self, node: usize) -> f64 {
        let calendar = &self.calendars[node];
        match self.pace {
            Pace::Packed => calendar.free_for_good(1),
            Pace::OneAtATime => calendar.end(),
        }
    }

    /// When a task's gang on these nodes, with so many devices on each and bytes of host memory, could
    /// start.
    #[inline]
    pub(crate) fn start(
        &self,
        task: usize,
        (parts, host): (&[(usize, u32)], u64),
        ready: f64,
        lasts: f64,
    ) -> f64 {
        let free_on =
            |node: usize, gpus: u32, from: f64| self.free_on(node, (gpus, host), from, lasts);
        let on_nodes = |from: f64| match parts {
            [(node, gpus)] => free_on(*node, *gpus, from),
            _ => earliest_on_all(parts, from, free_on),
        };
        let gpus = parts.iter().map(|(_, gpus)| gpus).sum();
        let from =
            if self.backfills { ready } else { self.caps.free_for_good(task, gpus).max(ready) };
        self.caps.earliest((task, gpus), from, lasts, on_nodes)
    }

    /// Places one task whose predecessors are placed.
    pub(crate) fn place(&mut self, task: usize, choice: Choice) {
        let instance = self.instance;
        let ready = self.ready(task);
        match choice {
            Choice::Stay => {}
            Choice::Narrow { node, mode } => {
                let mode = instance.model.mode_on(task, node, mode);
                let (lasts, host) = (mode.runtime, mode.host);
                let start = self.start(task, (&[(node, mode.gpus)], host), ready, lasts);
                let end = start + lasts;
                self.hold(node, (mode.gpus, host), start, end);
                self.caps.hold(task, mode.gpus, start, end);
                self.finish(task, start, end);
                if let Some(record) = &mut self.record {
                    let strategy = mode.strategy as usize;
                    let parts = vec![(node, mode.gpus)];
                    record.push(Placed { task, strategy, parts, host, start, lasts, stays: false });
                }
            }
            Choice::Wide { mode, lead: first } => {
                let mode = instance.model.tasks[task].wide[mode];
                let (lasts, host) = (mode.runtime, mode.host);
                let parts = self.nodes_for(task, &mode, first, ready, lasts);
                let start = self.start(task, (&parts, host), ready, lasts);
                let end = start + lasts;
                for (node, gpus) in &parts {
                    self.hold(*node, (*gpus, host), start, end);
                }
                self.caps.hold(task, parts.iter().map(|(_, gpus)| gpus).sum(), start, end);
                self.finish(task, start, end);
                if let Some(record) = &mut self.record {
                    let strategy = mode.strategy as usize;
                    record.push(Placed { task, strategy, parts, host, start, lasts, stays: false });
                }
            }
        }
    }

    /// Places a task, and before it all of its predecessors that are not placed.
    fn place_in_turn(&mut self, task: usize, choices: &[Choice]) {
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
                self.place(task, choices[task]);
                open.pop();
            }
        }
    }

    /// Plays a genome.
    pub(crate) fn play(&mut self, genome: &Genome) {
        self.backfills = genome.backfills;
        self.begin(&genome.choices);
        for &task in &genome.order {
            if self.ends[task].is_nan() {
                self.place_in_turn(task, &genome.choices);
            }
        }
    }

    /// The same choices with the gangs in order of start: no gang starts later for it.
    pub(crate) fn by_start(&mut self, mut genome: Genome) -> Genome {
        self.play(&genome);
        genome.order.sort_by(|left, right| self.starts[*left].total_cmp(&self.starts[*right]));
        genome
    }

    /// The genome with every running task that was moved to its old place and starts at once left as it
    /// runs, and its worth. Nothing starts later for it. The plan of a genome leaves such tasks too, and
    /// must be worth what the search counts.
    pub(crate) fn put_back(&mut self, mut genome: Genome) -> (Worth, Genome) {
        let placed = self.placed(&genome);
        let worth = self.tally(f64::INFINITY);
        let is_moved = |one: &&Placed| {
            let stay = self.instance.stay(one.task).filter(|_| !one.stays && one.start <= 0.0);
            stay.is_some_and(|stay| {
                stay.strategy == one.strategy
                    && stay.parts().count() == one.parts.len()
                    && stay.parts().all(|part| one.parts.contains(&part))
            })
        };
        let moved: Vec<usize> = placed.iter().filter(is_moved).map(|one| one.task).collect();
        if moved.is_empty() {
            return (worth, genome);
        }
        for task in moved {
            genome.choices[task] = Choice::Stay;
        }
        (self.worth(&genome, f64::INFINITY), genome)
    }

    /// The worth of a genome; nodes should end by `target`.
    pub(crate) fn worth(&mut self, genome: &Genome, target: f64) -> Worth {
        self.play(genome);
        self.tally(target)
    }

    /// The worth of the placed gangs.
    pub(crate) fn tally(&mut self, target: f64) -> Worth {
        let value = match self.instance.objective {
            Objective::Makespan => self.makespan,
            Objective::Completion => self.completion,
            Objective::Cost => self.cost(),
        };
        let mut late = 0.0;
        if self.instance.objective == Objective::Makespan {
            let worths = self.instance.worth.iter();
            let nodes = self.calendars.iter().zip(&self.instance.model.nodes).zip(worths);
            for ((calendar, node), worth) in nodes {
                let (mut last, mut all) = (0.0f64, 0.0);
                calendar.ends_after(target, |end, gpus| {
                    let lateness = lateness(end, target);
                    last = last.max(lateness);
                    all += lateness * gpus as f64;
                });
                late += worth * 0.5 * (last * f64::from(node.gpus) + all);
            }
            late *= self.calendars.len() as f64 / self.instance.model.num_gpus();
        }
        let load = self.area / self.instance.model.num_gpus();
        let (missed, tardiness) = (self.missed, self.tardiness);
        Worth { missed, tardiness, value, makespan: self.makespan, late, load }
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
        self.record = Some(Vec::with_capacity(self.ends.len()));
        self.play(genome);
        self.record.take().unwrap_or_default()
    }
}

/// An idle calendar for each node, and one of its host memory where that binds.
pub(crate) fn calendars(instance: &Instance) -> (Vec<Calendar>, Vec<Calendar>) {
    let nodes = || instance.model.nodes.iter().zip(&instance.nodes);
    let devices = nodes().map(|(node, facts)| Calendar::new(u64::from(node.gpus), facts.from));
    let memory = nodes().map(|(node, facts)| Calendar::new(node.host, facts.from));
    (devices.collect(), memory.filter(|_| instance.model.host_binds).collect())
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
