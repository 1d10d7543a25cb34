//! Proofs for small problems: whether any plan has a makespan of at most T.
//!
//! In a tight plan hardly any GPU-seconds may be lost, which makes exhaustion possible. Let a_in(T)
//! be the least area of task i's modes of runtime ≤ T on node n. First the tasks are dealt to the
//! nodes in every way that keeps Σ a_in(T) ≤ T·G_n on each node. With the prices of the area bound,
//! the sum over all nodes must fit too. Near the bound few ways are left. Then each node with its
//! tasks is decided alone (`strip`), once for each set of tasks. Ways that differ only by equal
//! nodes or equal tasks are tried once.
//!
//! Numbers are compared with a slack of 1e-9, always in favour of "may fit". So rounding can waste
//! time but can't prove a false statement.

use std::collections::BTreeMap;

use crate::course::clock::Deadline;
use crate::problem::model::{Model, Stay, Task};
use crate::problem::schedule::{Schedule, Step};
use crate::proof::strip::{Decision, Strip};

/// More tasks than this are beyond exhaustion.
pub(crate) const MAX_TASKS: usize = 24;
/// Nodes with more devices, or more of them, are beyond it too.
const MAX_GPUS: u32 = 16;
const MAX_NODES: usize = 4;
/// Relative slack of comparisons.
pub(crate) const SLACK: f64 = 1e-9;

/// The result of exhaustion.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// No plan has a makespan of at most the limit.
    Impossible,
    /// This plan has.
    Possible(Schedule),
    /// The deadline, or the number of steps, came first.
    Unknown,
}

/// Whether `decide` takes on this problem.
pub(crate) fn is_in_reach(model: &Model) -> bool {
    are_nodes_decidable(model) && model.tasks.len() <= MAX_TASKS && model.nodes.len() <= MAX_NODES
}

/// Whether each node can be decided alone, with any tasks.
pub(crate) fn are_nodes_decidable(model: &Model) -> bool {
    model.is_separable()
        && !model.has_places()
        && model.widest.iter().all(|widest| *widest <= MAX_GPUS)
        && model.ready.iter().flatten().all(|time| *time <= 0.0)
}

/// Decides whether a plan of makespan ≤ `limit` exists, within `max_steps` placements.
///
/// A single node is decided on `threads` threads; with more than one, steps aren't counted there.
/// `prices` are GPU-second prices by kind: any prices are right, good ones are fast.
pub(crate) fn decide(
    model: &Model,
    prices: &[f64],
    limit: f64,
    deadline: Deadline,
    max_steps: u64,
    threads: usize,
) -> Verdict {
    let mut order: Vec<usize> = (0..model.tasks.len()).collect();
    let areas: Vec<Vec<f64>> = (0..model.tasks.len())
        .map(|task| {
            (0..model.nodes.len()).map(|node| least_area(model, task, node, limit)).collect()
        })
        .collect();
    let stays: Vec<f64> = model.tasks.iter().map(|task| area_of_staying(task, limit)).collect();
    let priced = |task: usize| {
        let staying = model.tasks[task].stay.as_ref().map(|stay| prices[stay.kind] * stays[task]);
        (0..model.nodes.len())
            .map(|node| prices[model.nodes[node].kind] * areas[task][node])
            .chain(staying)
            .fold(f64::INFINITY, f64::min)
    };
    order.sort_by(|left, right| priced(*right).total_cmp(&priced(*left)).then(left.cmp(right)));
    // Priced area that the tasks from each position on need at least.
    let mut later = vec![0.0; order.len() + 1];
    for (position, task) in order.iter().enumerate().rev() {
        later[position] = later[position + 1] + priced(*task);
    }
    let room = model.nodes.iter().map(|node| f64::from(node.gpus) * limit).collect();
    let mut dealing = Dealing {
        model,
        prices,
        limit,
        deadline,
        steps_left: max_steps,
        threads: if model.nodes.len() == 1 { threads } else { 1 },
        same: same_before(model, &order),
        order,
        areas,
        stays,
        later,
        room,
        nodes: vec![0; model.tasks.len()],
        masks: vec![0; model.nodes.len()],
        staying: 0,
        decided: BTreeMap::new(),
    };
    dealing.deal(0)
}

/// The least area of a task's modes of runtime ≤ `limit` on a node, or infinity.
pub(crate) fn least_area(model: &Model, task: usize, node: usize, limit: f64) -> f64 {
    model
        .modes_on(task, node)
        .iter()
        .filter(|mode| mode.runtime <= limit * (1.0 + SLACK))
        .map(crate::problem::modes::Mode::area)
        .fold(f64::INFINITY, f64::min)
}

/// The area of a running task that stays, or infinity.
pub(crate) fn area_of_staying(task: &Task, limit: f64) -> f64 {
    let stay = task.stay.as_ref().filter(|stay| stay.runtime <= limit * (1.0 + SLACK));
    stay.map_or(f64::INFINITY, |stay| f64::from(stay.held()) * stay.runtime)
}

/// For each position of `order`, the last position before it of an equal task. No running task
/// equals another task.
fn same_before(model: &Model, order: &[usize]) -> Vec<Option<usize>> {
    let is_running = |task: usize| model.tasks[task].stay.is_some();
    let is_same = |left: usize, right: usize| {
        let modes = |task: usize| {
            let kinds = model.tasks[task].modes.iter().enumerate();
            kinds.flat_map(|(kind, modes)| {
                modes.iter().map(move |mode| (kind, mode.gpus, mode.runtime.to_bits()))
            })
        };
        !is_running(left) && !is_running(right) && modes(left).eq(modes(right))
    };
    (0..order.len())
        .map(|position| (0..position).rev().find(|before| is_same(order[*before], order[position])))
        .collect()
}

/// Tasks with their modes, by start.
type Order = Vec<(usize, usize)>;

/// The state of dealing tasks to nodes.
struct Dealing<'a> {
    model: &'a Model,
    prices: &'a [f64],
    limit: f64,
    deadline: Deadline<'a>,
    steps_left: u64,
    threads: usize,
    /// Tasks, the largest first.
    order: Vec<usize>,
    same: Vec<Option<usize>>,
    areas: Vec<Vec<f64>>,
    /// The area of each task where it stays.
    stays: Vec<f64>,
    later: Vec<f64>,
    /// GPU-seconds left on each node.
    room: Vec<f64>,
    /// The node of each task dealt, by position.
    nodes: Vec<usize>,
    /// Positions dealt to each node, as bits.
    masks: Vec<u32>,
    /// Positions of the tasks that stay, as bits.
    staying: u32,
    /// The results for (GPUs, kind, positions, positions that stay): the order of a plan, if there is
    /// one.
    decided: BTreeMap<(u32, usize, u32, u32), Option<Order>>,
}

impl Dealing<'_> {
    /// Deals the tasks from `position` on.
    fn deal(&mut self, position: usize) -> Verdict {
        if self.deadline.is_over() {
            return Verdict::Unknown;
        }
        let slack = SLACK * self.limit * self.model.num_gpus();
        let priced_room: f64 = self
            .room
            .iter()
            .zip(&self.model.nodes)
            .map(|(room, node)| self.prices[node.kind] * room)
            .sum();
        if self.later[position] > priced_room + slack {
            return Verdict::Impossible;
        }
        if position == self.order.len() {
            return self.decide_nodes();
        }
        let task = self.order[position];
        if let Some(home) = self.model.tasks[task].stay.as_ref().and_then(Stay::home) {
            self.staying |= 1 << position;
            let verdict = self.deal_to(position, home, self.stays[task]);
            self.staying &= !(1 << position);
            if verdict != Verdict::Impossible {
                return verdict;
            }
        }
        let first_node = self.same[position].map_or(0, |before| self.nodes[before]);
        for node in first_node..self.model.nodes.len() {
            if self.has_equal_empty_before(node) {
                continue;
            }
            let verdict = self.deal_to(position, node, self.areas[task][node]);
            if verdict != Verdict::Impossible {
                return verdict;
            }
        }
        Verdict::Impossible
    }

    /// Deals the task at `position` to a node, where it takes at least `area`, and then the tasks
    /// behind it.
    fn deal_to(&mut self, position: usize, node: usize, area: f64) -> Verdict {
        let slack = SLACK * self.limit * self.model.num_gpus();
        if area > self.room[node] + slack {
            return Verdict::Impossible;
        }
        self.room[node] -= area;
        self.masks[node] |= 1 << position;
        self.nodes[position] = node;
        let verdict = self.deal(position + 1);
        self.masks[node] &= !(1 << position);
        self.room[node] += area;
        verdict
    }

    /// Whether an equal node before this one is as empty as it. A node where tasks run equals no
    /// other.
    fn has_equal_empty_before(&self, node: usize) -> bool {
        let spec = self.model.nodes[node];
        let is_home = |node: usize| {
            let stays = self.model.tasks.iter().filter_map(|task| task.stay.as_ref());
            stays.into_iter().any(|stay| stay.home() == Some(node))
        };
        self.masks[node] == 0
            && !is_home(node)
            && (0..node).any(|before| {
                let other = self.model.nodes[before];
                self.masks[before] == 0
                    && other.gpus == spec.gpus
                    && other.kind == spec.kind
                    && !is_home(before)
            })
    }

    /// Decides each node with the tasks dealt to it.
    fn decide_nodes(&mut self) -> Verdict {
        let mut schedule = Schedule::new();
        for node in 0..self.model.nodes.len() {
            let spec = self.model.nodes[node];
            let staying = self.masks[node] & self.staying;
            let key = (spec.gpus, spec.kind, self.masks[node], staying);
            if !self.decided.contains_key(&key) {
                let tasks = self.tasks_of(self.masks[node] & !staying);
                let staying = self.tasks_of(staying);
                let strip = Strip::new(self.model, node, &tasks, &staying, self.limit);
                let decision = if self.threads > 1 {
                    strip.decide_in_threads(self.deadline, self.threads)
                } else {
                    strip.decide(self.deadline, &mut self.steps_left)
                };
                let found = match decision {
                    Decision::Fits(gangs) => {
                        Some(gangs.into_iter().map(|(index, mode)| (tasks[index], mode)).collect())
                    }
                    Decision::Impossible => None,
                    Decision::Unknown => return Verdict::Unknown,
                };
                self.decided.insert(key, found);
            }
            let Some(Some(gangs)) = self.decided.get(&key) else { return Verdict::Impossible };
            let staying = self.tasks_of(staying).into_iter().filter_map(|task| {
                let stay = self.model.tasks[task].stay.as_ref()?;
                Some(Step::staying(task, stay))
            });
            schedule.extend(staying);
            schedule.extend(gangs.iter().map(|(task, mode)| {
                let mode = self.model.tasks[*task].modes[spec.kind][*mode];
                Step::on_node(*task, mode.strategy, node, mode.gpus)
            }));
        }
        Verdict::Possible(schedule)
    }

    /// The tasks at these positions, which are bits.
    fn tasks_of(&self, positions: u32) -> Vec<usize> {
        let is_among = |(position, _): &(usize, &usize)| positions >> position & 1 == 1;
        self.order.iter().enumerate().filter(is_among).map(|(_, task)| *task).collect()
    }
}
