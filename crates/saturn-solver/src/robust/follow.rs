//! Following a plan under other runtimes than those that it was made with.
//!
//! As in a run, the order binds and the times don't. Each device has a queue. A gang starts as soon
//! as it is first in all of its queues, its task is released, the tasks before it have ended, its nodes
//! are there and have room in host memory, and its owner's cap is kept.

use std::ops::Range;

use saturn_core::{Assignment, Objective, Outcome, Problem, WHOLE, seconds_late};

use crate::general::play::{covered, rounding};

/// A gang of a plan, and what it waits for.
#[derive(Debug)]
struct Gang {
    task: usize,
    /// It starts no earlier, seconds.
    floor: f64,
    /// The seconds of its work, whose error is `error`, and the seconds for which it holds its devices
    /// besides.
    work: f64,
    error: f64,
    besides: f64,
    /// Bytes of host memory on each of its nodes.
    host: u64,
    /// All of its devices, and the owner on whose cap they count.
    gpus: u64,
    owner: Option<usize>,
    /// Whether it starts at once, whatever runtimes are: then there is room for it, or it runs already.
    is_at_once: bool,
    /// Its nodes, and the gangs before it, as ranges of `Followed::nodes` and `Followed::waits`.
    nodes: Range<usize>,
    waits: Range<usize>,
}

/// A plan that can be followed again and again.
pub(super) struct Followed<'a> {
    problem: &'a Problem,
    objective: Objective,
    /// In an order in which every gang comes after all that it waits for.
    gangs: Vec<Gang>,
    nodes: Vec<usize>,
    waits: Vec<usize>,
    /// Whether host memory limits any start.
    counts_memory: bool,
}

/// The state of following a plan; its buffers are kept from draw to draw.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// When each gang and each task ends.
    gang_ends: Vec<f64>,
    task_ends: Vec<f64>,
    /// For each node, the spans of its gangs, and the bytes that gangs hold until their ends.
    spans: Vec<Vec<(f64, f64)>>,
    memory: Vec<Vec<(f64, u64)>>,
    /// For each owner, the devices that gangs hold until their ends.
    owned: Vec<Vec<(f64, u64)>>,
}

impl<'a> Followed<'a> {
    pub(super) fn new(
        problem: &'a Problem,
        objective: Objective,
        assignments: &[Assignment],
    ) -> Self {
        let mut sorted: Vec<&Assignment> = assignments.iter().collect();
        sorted.sort_by(|left, right| left.start_s.total_cmp(&right.start_s));
        let names = problem.tasks.iter().enumerate();
        let index: std::collections::BTreeMap<&str, usize> =
            names.map(|(index, task)| (task.name.as_str(), index)).collect();
        let devices = problem.cluster.nodes.iter().map(|node| vec![None; node.gpus as usize]);
        let mut last_on: Vec<Vec<Option<usize>>> = devices.collect();
        let mut last_of: Vec<Option<usize>> = vec![None; problem.tasks.len()];
        let mut followed = Self {
            problem,
            objective,
            gangs: Vec::with_capacity(sorted.len()),
            nodes: Vec::new(),
            waits: Vec::new(),
            counts_memory: false,
        };
        for (number, one) in sorted.into_iter().enumerate() {
            let task = &problem.tasks[one.task];
            let strategy = &task.strategies[one.strategy];
            let (first_wait, first_node) = (followed.waits.len(), followed.nodes.len());
            let mut floor = task.release_s;
            for part in &one.gang {
                let node = &problem.cluster.nodes[part.node];
                floor = floor.max(node.available_from_s);
                followed.counts_memory |=
                    strategy.host_bytes > 0 && node.host_memory_bytes.is_some();
                followed.nodes.push(part.node);
                for device in &part.devices {
                    let last = last_on[part.node].get_mut(*device as usize);
                    followed.waits.extend(last.and_then(|last| last.replace(number)));
                }
            }
            let owner = task
                .owner
                .as_ref()
                .and_then(|name| problem.owners.iter().position(|owner| owner.name == *name));
            let before = task.after.iter().filter_map(|name| last_of[*index.get(name.as_str())?]);
            let before: Vec<usize> = before.chain(last_of[one.task]).collect();
            followed.waits.extend(before);
            last_of[one.task] = Some(number);
            followed.waits[first_wait..].sort_unstable();
            let mut kept = first_wait;
            for at in first_wait..followed.waits.len() {
                if kept == first_wait || followed.waits[kept - 1] != followed.waits[at] {
                    followed.waits[kept] = followed.waits[at];
                    kept += 1;
                }
            }
            followed.waits.truncate(kept);
            let share = if one.is_segment() { one.share } else { WHOLE };
            let work = share * strategy.runtime_s;
            followed.gangs.push(Gang {
                task: one.task,
                floor,
                work,
                error: strategy.relative_error,
                besides: (one.end_s - one.start_s - work).max(0.0),
                host: strategy.host_bytes,
                gpus: one.gang.iter().map(|part| part.devices.len() as u64).sum(),
                owner,
                is_at_once: one.start_s == 0.0,
                nodes: first_node..followed.nodes.len(),
                waits: first_wait..followed.waits.len(),
            });
        }
        followed
    }

    /// The outcome if each task's runtimes have this error, in standard deviations of their
    /// logarithms.
    pub(super) fn outcome(&self, errors: &[f64], scratch: &mut Scratch) -> Outcome {
        let num_nodes = self.problem.cluster.nodes.len();
        scratch.gang_ends.clear();
        scratch.task_ends.clear();
        scratch.task_ends.resize(self.problem.tasks.len(), 0.0);
        scratch.spans.resize(num_nodes, Vec::new());
        scratch.spans.iter_mut().for_each(Vec::clear);
        scratch.memory.resize(num_nodes, Vec::new());
        scratch.memory.iter_mut().for_each(Vec::clear);
        scratch.owned.resize(self.problem.owners.len(), Vec::new());
        scratch.owned.iter_mut().for_each(Vec::clear);
        let mut missed_s = 0.0;
        for gang in &self.gangs {
            let waits = self.waits[gang.waits.clone()].iter();
            let mut start = waits.map(|wait| scratch.gang_ends[*wait]).fold(gang.floor, f64::max);
            let nodes = &self.nodes[gang.nodes.clone()];
            if !gang.is_at_once {
                start = self.with_room(gang, nodes, start, scratch);
            }
            let is_sure = gang.error == 0.0;
            let factor = if is_sure { 1.0 } else { (gang.error * errors[gang.task]).exp() };
            let end = start + gang.work * factor + gang.besides;
            for node in nodes {
                missed_s += (end - self.problem.cluster.nodes[*node].until_s()).max(0.0);
                if self.objective == Objective::Cost {
                    scratch.spans[*node].push((start, end));
                }
                if self.counts_memory && gang.host > 0 {
                    scratch.memory[*node].push((end, gang.host));
                }
            }
            if let Some(owner) = gang.owner {
                scratch.owned[owner].push((end, gang.gpus));
            }
            scratch.gang_ends.push(end);
            scratch.task_ends[gang.task] = end;
        }
        self.sum_up(missed_s, scratch)
    }

    fn sum_up(&self, mut missed_s: f64, scratch: &mut Scratch) -> Outcome {
        let (mut tardiness, mut makespan, mut completion) = (0.0, 0.0f64, 0.0);
        for (task, end) in self.problem.tasks.iter().zip(&scratch.task_ends) {
            missed_s += (end - self.problem.due_s(task)).max(0.0);
            if let Some((due_s, price)) = task.soft_deadline() {
                tardiness += price * seconds_late(due_s, *end);
            }
            makespan = makespan.max(*end);
            completion += task.weight * end;
        }
        let value = match self.objective {
            Objective::Makespan => makespan,
            Objective::Completion => completion,
            Objective::Cost => {
                let nodes = self.problem.cluster.nodes.iter().zip(&mut scratch.spans);
                nodes.map(|(node, spans)| node.price_per_hour / 3600.0 * covered(spans)).sum()
            }
        };
        // What is missed by rounding is not missed.
        let missed_s = if missed_s <= rounding(makespan) { 0.0 } else { missed_s };
        Outcome { missed_s, tardiness, value }
    }

    /// The first time from `start` on at which all nodes have a gang's bytes free and its owner may hold its
    /// devices, as far as gangs hold them that are placed already.
    fn with_room(&self, gang: &Gang, nodes: &[usize], mut start: f64, scratch: &Scratch) -> f64 {
        let owned = gang
            .owner
            .map(|owner| (&scratch.owned[owner], u64::from(self.problem.owners[owner].max_gpus)));
        loop {
            let before = start;
            if self.counts_memory && gang.host > 0 {
                for node in nodes {
                    let has = self.problem.cluster.nodes[*node].host_memory();
                    start =
                        first_free(&scratch.memory[*node], has.saturating_sub(gang.host), start);
                }
            }
            if let Some((held, most)) = owned {
                start = first_free(held, most.saturating_sub(gang.gpus), start);
            }
            if start <= before {
                return start;
            }
        }
    }
}

/// The first time from `start` on at which gangs hold at most `most`. `held` has, for each gang, the time
/// at which it ends and the amount that it holds. Running tasks may hold more than there is.
fn first_free(held: &[(f64, u64)], most: u64, mut start: f64) -> f64 {
    loop {
        let left = held.iter().filter(|held| held.0 > start);
        let taken = |(_, taken): &(f64, u64)| u128::from(*taken);
        if left.clone().map(taken).sum::<u128>() <= u128::from(most) {
            return start;
        }
        start = left.map(|held| held.0).fold(f64::INFINITY, f64::min);
    }
}
