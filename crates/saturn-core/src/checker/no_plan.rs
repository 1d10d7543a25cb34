//! Verifies proofs that a problem has no plan.
//!
//! The solver finds the proofs and states each as a [`Refutation`]. This module checks the statement
//! from the problem's definition, without the solver's code. It relaxes the problem: each task may run
//! on the devices that suit it best, as if these were always free. If a task is late even then, or the
//! work doesn't fit even then, no plan exists.
//!
//! A refutation is about exact times. [`check`](super::check) also accepts a plan that breaks a
//! deadline by less than its tolerance, so it may accept a plan of a refuted problem.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::TOLERANCE;
use crate::plan::{Reason, Refutation};
use crate::problem::{Candidate, Node, Problem, ProblemTask};

/// The work that is due must exceed the room by this part of the room, since sums of many terms are
/// rounded.
const TOO_MUCH: f64 = 1e-8;
/// The work that is due must also exceed the room by so many GPU-seconds at the highest price.
const LEAST_TOO_MUCH: f64 = 1e-9;

/// The reasons whose refutations hold. Each proves that `problem` has no plan without switches in
/// mid-run; [`Refutation::NoPlace`] proves that it has no plan at all.
pub fn verified(problem: &Problem, reasons: &[Reason]) -> Vec<Reason> {
    let verifier = Verifier { problem, nodes: Nodes::new(problem), alone: OnceCell::new() };
    reasons.iter().filter(|reason| verifier.is_proof(reason)).cloned().collect()
}

struct Verifier<'a> {
    problem: &'a Problem,
    nodes: Nodes<'a>,
    alone: OnceCell<Vec<Alone>>,
}

impl Verifier<'_> {
    fn is_proof(&self, reason: &Reason) -> bool {
        let task = reason.task.filter(|task| *task < self.problem.tasks.len());
        match (&reason.refutation, task) {
            (Some(Refutation::NoPlace), Some(task)) => {
                self.nodes.ways(&self.problem.tasks[task]).is_empty()
            }
            (Some(Refutation::TooLate), Some(task)) => {
                let Alone { earliest_end, latest_end, .. } = self.alone()[task];
                earliest_end.is_infinite() || is_after(earliest_end, latest_end)
            }
            (Some(Refutation::Work { until_s, prices }), _) => {
                until_s.is_finite() && self.has_too_much_work(*until_s, prices)
            }
            _ => false,
        }
    }

    fn alone(&self) -> &[Alone] {
        self.alone.get_or_init(|| alone(self.problem, &self.nodes))
    }

    /// Whether the tasks that must have ended by a time need more priced GPU-seconds than there are
    /// until then.
    fn has_too_much_work(&self, until_s: f64, prices: &BTreeMap<String, f64>) -> bool {
        let highest = prices.values().copied().fold(0.0, f64::max);
        let are_prices = prices.values().all(|price| price.is_finite() && *price >= 0.0);
        if !are_prices || highest <= 0.0 {
            return false;
        }
        let price = |gpu_type: &str| prices.get(gpu_type).map_or(0.0, |price| price / highest);
        let until_s = until_s + slack(until_s);
        let tasks = self.alone().iter().zip(&self.problem.tasks);
        let work = tasks.filter(|(alone, _)| alone.latest_end <= until_s).map(|(alone, task)| {
            let in_time = |way: &Way<'_>| {
                !is_after(way.earliest_end_s(alone.head), way.until_s.min(alone.latest_end))
            };
            let work = |way: Way<'_>| price(way.gpu_type) * f64::from(way.held) * way.runtime_s;
            let ways = self.nodes.ways(task).into_iter();
            ways.filter(in_time).map(work).fold(f64::INFINITY, f64::min)
        });
        let room = self.problem.cluster.nodes.iter().map(|node| {
            let to_s = until_s.min(node.until_s());
            let there_s = (to_s + slack(to_s) - node.available_from_s).max(0.0);
            price(&node.gpu_type) * f64::from(node.gpus) * there_s
        });
        work.sum::<f64>() > room.sum::<f64>() * (1.0 + TOO_MUCH) + LEAST_TOO_MUCH
    }
}

/// Seconds by which two times near `time_s` may differ and still count as equal.
fn slack(time_s: f64) -> f64 {
    TOLERANCE * time_s.max(1.0)
}

fn is_after(end_s: f64, latest_s: f64) -> bool {
    end_s > latest_s + slack(latest_s)
}

/// A manner to run a task: a strategy on one node, or on the nodes of one type.
#[derive(Debug, Clone, Copy)]
struct Way<'a> {
    gpu_type: &'a str,
    /// Devices that it holds at least.
    held: u32,
    runtime_s: f64,
    /// No gang of it starts earlier, or ends later.
    from_s: f64,
    until_s: f64,
}

impl Way<'_> {
    /// Its earliest end if the task starts no earlier than `head_s`.
    fn earliest_end_s(&self, head_s: f64) -> f64 {
        self.from_s.max(head_s) + self.runtime_s
    }
}

/// When a task can run if no other task takes its devices, seconds.
struct Alone {
    /// No plan starts it earlier.
    head: f64,
    /// No plan ends it earlier; infinite if it has no way that its nodes are there for.
    earliest_end: f64,
    /// Its shortest runtime.
    shortest: f64,
    /// Every plan ends it by then; may be infinite.
    latest_end: f64,
}

fn alone(problem: &Problem, nodes: &Nodes<'_>) -> Vec<Alone> {
    let (order, after) = by_precedence(problem);
    let at_first = |task: &ProblemTask| Alone {
        head: task.release_s,
        earliest_end: f64::INFINITY,
        shortest: f64::INFINITY,
        latest_end: problem.due_s(task),
    };
    let mut tasks: Vec<Alone> = problem.tasks.iter().map(at_first).collect();
    for index in order.iter().copied() {
        let ready = after[index].iter().map(|first| tasks[*first].earliest_end);
        let head = ready.fold(tasks[index].head, f64::max);
        let task = &mut tasks[index];
        task.head = head;
        for way in nodes.ways(&problem.tasks[index]) {
            let end = way.earliest_end_s(head);
            if !is_after(end, way.until_s) {
                task.earliest_end = task.earliest_end.min(end);
                task.shortest = task.shortest.min(way.runtime_s);
            }
        }
    }
    for index in order.into_iter().rev() {
        // If both times are large and nearly equal, the rounding error of their difference is large
        // beside the difference. So the slack is a part of the large time.
        let Alone { latest_end, shortest, .. } = tasks[index];
        let latest_start = latest_end + slack(latest_end) - shortest;
        for first in &after[index] {
            tasks[*first].latest_end = tasks[*first].latest_end.min(latest_start);
        }
    }
    tasks
}

/// All tasks in an order of precedence, and for each task the tasks that it comes after.
fn by_precedence(problem: &Problem) -> (Vec<usize>, Vec<Vec<usize>>) {
    let index: BTreeMap<&str, usize> =
        problem.tasks.iter().enumerate().map(|(index, task)| (&*task.name, index)).collect();
    let before = |task: &ProblemTask| -> Vec<usize> {
        task.after.iter().filter_map(|name| index.get(&**name).copied()).collect()
    };
    let after: Vec<Vec<usize>> = problem.tasks.iter().map(before).collect();
    let mut followers = vec![Vec::new(); after.len()];
    let mut num_open: Vec<usize> = after.iter().map(Vec::len).collect();
    for (task, firsts) in after.iter().enumerate() {
        for first in firsts {
            followers[*first].push(task);
        }
    }
    let mut order: Vec<usize> = (0..after.len()).filter(|task| num_open[*task] == 0).collect();
    let mut next = 0;
    while let Some(task) = order.get(next).copied() {
        next += 1;
        for follower in &followers[task] {
            num_open[*follower] -= 1;
            if num_open[*follower] == 0 {
                order.push(*follower);
            }
        }
    }
    (order, after)
}

/// The nodes of a problem, prepared so that the ways of each task are found quickly.
struct Nodes<'a> {
    problem: &'a Problem,
    indices: BTreeMap<&'a str, usize>,
    /// The most devices of a node of each type.
    widest: BTreeMap<&'a str, u32>,
    /// For each node, the first node that equals it. A large cluster has few different nodes.
    alike: Vec<usize>,
    /// The nodes of a task that may use all.
    all: Usable,
}

/// The nodes that a task may use. `different` has one node of each set of equal nodes.
struct Usable {
    each: Vec<usize>,
    different: BTreeSet<usize>,
}

impl Usable {
    fn new(each: Vec<usize>, alike: &[usize]) -> Self {
        let different = each.iter().map(|index| alike[*index]).collect();
        Self { each, different }
    }
}

impl<'a> Nodes<'a> {
    fn new(problem: &'a Problem) -> Self {
        let nodes = &problem.cluster.nodes;
        let mut widest: BTreeMap<&str, u32> = BTreeMap::new();
        for node in nodes {
            let most = widest.entry(&node.gpu_type).or_default();
            *most = node.gpus.max(*most);
        }
        let mut firsts = BTreeMap::new();
        let like = |(index, node): (usize, &'a Node)| {
            let times = (node.available_from_s.to_bits(), node.until_s().to_bits());
            let size = (&*node.gpu_type, node.gpus, node.host_memory());
            *firsts.entry((size, times)).or_insert(index)
        };
        let alike: Vec<usize> = nodes.iter().enumerate().map(like).collect();
        let all = Usable::new((0..nodes.len()).collect(), &alike);
        Self { problem, indices: problem.cluster.node_indices(), widest, alike, all }
    }

    /// All ways of a task.
    fn ways(&self, task: &ProblemTask) -> Vec<Way<'a>> {
        let mut ways: Vec<Way<'a>> = self.staying(task).into_iter().collect();
        let moves_s = match &task.running {
            Some(running) if !running.movable => return ways,
            Some(_) => task.switch_cost_s.unwrap_or(0.0),
            None => 0.0,
        };
        let nodes = &self.problem.cluster.nodes;
        let own = task.places(&self.indices, nodes.len()).map(|places| {
            Usable::new((0..nodes.len()).filter(|index| places[*index]).collect(), &self.alike)
        });
        let usable = own.as_ref().unwrap_or(&self.all);
        for strategy in &task.strategies {
            let suits = |node: &&Node, gpu_type: &str| {
                node.gpu_type == gpu_type
                    && strategy.gpu_type.as_deref().is_none_or(|one| one == gpu_type)
                    && strategy.host_bytes <= node.host_memory()
            };
            let runtime_s = strategy.runtime_s + moves_s;
            for (gpu_type, widest) in &self.widest {
                if strategy.gpus > *widest {
                    let of_type = usable.each.iter().map(|index| &nodes[*index]);
                    let of_type: Vec<&Node> = of_type.filter(|one| suits(one, gpu_type)).collect();
                    ways.extend(wide_ways(gpu_type, strategy, &of_type, runtime_s));
                    continue;
                }
                let of_type = usable.different.iter().map(|index| &nodes[*index]);
                let holds =
                    of_type.filter(|node| suits(node, gpu_type) && node.gpus >= strategy.gpus);
                ways.extend(holds.map(|node| Way {
                    gpu_type,
                    held: strategy.gpus,
                    runtime_s,
                    from_s: node.available_from_s,
                    until_s: node.until_s(),
                }));
            }
        }
        ways
    }

    /// A running task that goes on as it is.
    fn staying(&self, task: &ProblemTask) -> Option<Way<'a>> {
        let gang = self.problem.running_gang(task)?;
        let nodes = || gang.iter().map(|part| &self.problem.cluster.nodes[part.node]);
        let strategy = &task.strategies[task.running_strategy()?];
        let may = nodes().all(|node| task.may_use(&node.name));
        let held: usize = gang.iter().map(|part| part.devices.len()).sum();
        let first = nodes().next()?;
        may.then(|| Way {
            gpu_type: &first.gpu_type,
            held: u32::try_from(held).unwrap_or(u32::MAX),
            runtime_s: strategy.runtime_s,
            from_s: 0.0,
            until_s: nodes().map(Node::until_s).fold(f64::INFINITY, f64::min),
        })
    }
}

/// A strategy that is wider than every node of a type, on these nodes of that type: a way for each
/// time at which nodes arrive.
fn wide_ways<'a>(
    gpu_type: &'a str,
    strategy: &Candidate,
    nodes: &[&Node],
    runtime_s: f64,
) -> Vec<Way<'a>> {
    let Some(first) = nodes.first() else { return Vec::new() };
    let is_even = nodes.iter().all(|node| node.gpus == first.gpus);
    // A gang takes whole nodes, unless it may share its last node.
    let held = if is_even && !strategy.pack {
        strategy.gpus.div_ceil(first.gpus).saturating_mul(first.gpus)
    } else {
        strategy.gpus
    };
    let mut arrivals: Vec<f64> = nodes.iter().map(|node| node.available_from_s).collect();
    arrivals.sort_by(f64::total_cmp);
    arrivals.dedup();
    let mut last_to_leave = nodes.to_vec();
    last_to_leave.sort_by(|one, other| other.until_s().total_cmp(&one.until_s()));
    let way = |from_s: f64| {
        let mut devices = 0;
        let until_s = last_to_leave.iter().find_map(|node| {
            devices += if node.available_from_s <= from_s { u64::from(node.gpus) } else { 0 };
            (devices >= u64::from(strategy.gpus)).then(|| node.until_s())
        });
        until_s.map(|until_s| Way { gpu_type, held, runtime_s, from_s, until_s })
    };
    arrivals.into_iter().filter_map(way).collect()
}
