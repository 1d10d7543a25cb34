//! The configuration linear program: the makespan if switching were free.
//!
//! A *configuration* is a choice of tasks with modes and nodes that can run at one moment. At each
//! moment a plan, with or without switches, is in one configuration. In a second, a task in mode m
//! does 1/r_m of its work. With x_c the seconds spent in configuration c,
//!
//! ```text
//! minimise T,  Σ_c x_c ≤ T,  Σ_c x_c/r_im(c) ≥ 1 for each task i,  x ≥ 0
//! ```
//!
//! is a relaxation: the order of the configurations is gone, and with it every switch and its cost.
//! (Jansen and Porkolab, Algorithmica 36, 2003, for malleable tasks; Gilmore and Gomory, Operations
//! Research 9, 1961, for solving it by columns.)
//!
//! There are too many configurations to list, so they are made when needed. The multiplier π_i of a
//! task's row prices the task's work. The configuration of most worth a second, v(π) = max Σ
//! π_i/r_im, is a knapsack with a capacity for each node, solved by dynamic programming. Any π ≥ 0
//! proves a bound by itself (Farley, Operations Research 38, 1990). A plan of makespan T does work
//! worth Σ π_i at no more than v(π) a second, so T ≥ Σ π_i / v(π). The best of these bounds is
//! reported. So it holds wherever the column generation stops and however HiGHS rounds.
//!
//! Nodes are priced together while the knapsack is small. With many nodes, each class of equal
//! nodes is a knapsack of its own. Then a task may seem to run on two nodes at once, but another
//! row for each task keeps its running time within T. With multipliers μ_i of these rows the bound
//! is T ≥ Σ π_i / (Σ_b k_b·v_b(π, μ) + Σ μ_i). There, k_b nodes are of class b and v_b prices work
//! at π_i/r_im − μ_i a second.

use highs::Col;

use crate::bounds::mixes::{FreeSwitches, free_switches};
use crate::bounds::program::{Effort, Outcome, Program};
use crate::course::clock::Deadline;
use crate::problem::model::Model;

/// Shaved off every bound so that rounding can't lift it above a true makespan.
const SAFETY: f64 = 1e-9;
/// Steps of the dynamic program up to which all nodes are priced together.
const JOINT_STEPS: usize = 400_000;
/// More tasks than this and only the first multipliers are tried.
const MAX_TASKS: usize = 200;
/// Column generation ends when the linear program is this close to the bound.
const PRECISION: f64 = 1e-5;
/// If moves limit the solve: the most iterations of a program, times its columns and tasks.
const MOST_WORK: usize = 15_000_000;

/// A lower bound on the makespan of every plan, with any switches at any cost.
///
/// `prices` are those of the area bound. Every task must have a mode.
pub(crate) fn bound(model: &Model, prices: &[f64], deadline: Deadline) -> f64 {
    let FreeSwitches { makespan: simple, lines } = free_switches(model, prices);
    if !model.is_separable() || model.tasks.len() > MAX_TASKS {
        return simple;
    }
    let mut master = Master::new(model, simple);
    let mut best = simple;
    let (mut proven, _) = master.price(&master.first_multipliers(&lines));
    while !deadline.is_over() {
        best = best.max(proven * (1.0 - SAFETY));
        let Some((value, multipliers)) = master.solve(deadline) else { break };
        if best >= value * (1.0 - PRECISION) {
            break;
        }
        let is_new;
        (proven, is_new) = master.price(&multipliers);
        if !is_new {
            best = best.max(proven * (1.0 - SAFETY));
            break;
        }
    }
    best
}

/// The bound that needs no linear program: each task pays for its cheapest mix of modes within the
/// makespan.
pub(crate) fn area_of_free_switches(model: &Model, prices: &[f64]) -> f64 {
    free_switches(model, prices).makespan
}

/// Nodes that are priced together, and the number of such groups.
struct Block {
    /// How much of the state's index a device of each node is.
    strides: Vec<usize>,
    num_states: usize,
    count: f64,
    /// Of each task.
    options: Vec<Vec<Choice>>,
}

/// A task in a mode on a node of a block.
#[derive(Clone, Copy)]
struct Choice {
    /// Node within the block, and devices.
    node: usize,
    gpus: usize,
    /// Devices as a distance between states.
    offset: usize,
    /// Share of the task's work done in a unit of time.
    rate: f64,
}

/// The multipliers of the rows: the worth of each task's work, and of a unit of its time.
struct Multipliers {
    work: Vec<f64>,
    time: Vec<f64>,
}

/// The linear program over the configurations met so far, times in units of `unit_s`.
struct Master {
    unit_s: f64,
    blocks: Vec<Block>,
    num_tasks: usize,
    /// Block, and (task, rate) of the tasks that run.
    columns: Vec<(usize, Vec<(usize, f64)>)>,
}

impl Master {
    fn new(model: &Model, unit_s: f64) -> Self {
        let all: Vec<usize> = (0..model.nodes.len()).collect();
        let joint = Block::new(model, &all, 1.0, unit_s);
        let blocks = match joint.filter(|block| block.num_steps() <= JOINT_STEPS) {
            Some(block) => vec![block],
            None => classes(model)
                .into_iter()
                .filter_map(|(node, count)| Block::new(model, &[node], count, unit_s))
                .collect(),
        };
        let mut master = Self { unit_s, blocks, num_tasks: model.tasks.len(), columns: Vec::new() };
        for task in 0..master.num_tasks {
            for (index, block) in master.blocks.iter().enumerate() {
                let fastest = block.options[task]
                    .iter()
                    .max_by(|left, right| left.rate.total_cmp(&right.rate));
                if let Some(choice) = fastest {
                    master.columns.push((index, vec![(task, choice.rate)]));
                }
            }
        }
        master
    }

    /// Work and time at the prices that prove the bound of free switches.
    fn first_multipliers(&self, lines: &[(f64, f64)]) -> Multipliers {
        Multipliers {
            work: lines.iter().map(|(area, _)| area / self.unit_s).collect(),
            time: lines.iter().map(|(_, fall)| *fall).collect(),
        }
    }

    /// Takes in the configuration of most worth in each block. Returns the bound that they prove,
    /// seconds, and whether any configuration is new.
    fn price(&mut self, multipliers: &Multipliers) -> (f64, bool) {
        let mut worth: f64 = multipliers.time.iter().sum();
        let mut is_new = false;
        for (index, block) in self.blocks.iter().enumerate() {
            let (value, column) = block.best(multipliers);
            worth += block.count * value;
            let column = (index, column);
            if !column.1.is_empty() && !self.columns.contains(&column) {
                self.columns.push(column);
                is_new = true;
            }
        }
        let total: f64 = multipliers.work.iter().sum();
        let proven = if worth > 0.0 { total / worth * self.unit_s } else { 0.0 };
        (proven, is_new)
    }

    /// The value of the linear program, seconds, and its multipliers; `None` if time ran out.
    fn solve(&self, deadline: Deadline) -> Option<(f64, Multipliers)> {
        let mut program = Program::default();
        let makespan = program.continuous(1.0, 0.0, f64::INFINITY);
        let mut work: Vec<Vec<(Col, f64)>> = vec![Vec::new(); self.num_tasks];
        let mut time: Vec<Vec<(Col, f64)>> = vec![vec![(makespan, -1.0)]; self.num_tasks];
        let mut spent: Vec<Vec<(Col, f64)>> =
            self.blocks.iter().map(|block| vec![(makespan, -block.count)]).collect();
        for (block, tasks) in &self.columns {
            let column = program.continuous(0.0, 0.0, f64::INFINITY);
            spent[*block].push((column, 1.0));
            for (task, rate) in tasks {
                work[*task].push((column, *rate));
                time[*task].push((column, 1.0));
            }
        }
        for row in &work {
            program.at_least(1.0, row);
        }
        for row in &spent {
            program.at_most(0.0, row);
        }
        let has_times = self.has_times();
        for row in time.iter().filter(|_| has_times) {
            program.at_most(0.0, row);
        }
        let size = self.columns.len() + self.num_tasks;
        let counted = deadline.is_counted().then(|| MOST_WORK / size.max(1));
        let max_iterations = counted.and_then(|most| i32::try_from(most).ok());
        let solved = program.solve(Effort { max_iterations, ..Effort::until(deadline) });
        let Outcome::Known { is_solved: true, bound, duals, .. } = solved else {
            return None;
        };
        let work = duals.iter().take(self.num_tasks).map(|dual| dual.max(0.0)).collect();
        let mut time: Vec<f64> = duals
            .iter()
            .skip(self.num_tasks + self.blocks.len())
            .map(|dual| (-dual).max(0.0))
            .collect();
        time.resize(self.num_tasks, 0.0);
        Some((bound * self.unit_s, Multipliers { work, time }))
    }

    /// Whether a task may seem to run twice at once.
    fn has_times(&self) -> bool {
        self.blocks.len() > 1 || self.blocks.iter().any(|block| block.count > 1.0)
    }
}

/// A node of each class of equal nodes, and how many there are.
fn classes(model: &Model) -> Vec<(usize, f64)> {
    let mut classes: Vec<(usize, f64)> = Vec::new();
    for (index, node) in model.nodes.iter().enumerate() {
        let same = |one: &&mut (usize, f64)| {
            let other = model.nodes[one.0];
            other.gpus == node.gpus && other.kind == node.kind
        };
        match classes.iter_mut().find(same) {
            Some(class) => class.1 += 1.0,
            None => classes.push((index, 1.0)),
        }
    }
    classes
}

/// A task as it runs, if it runs on one of these nodes, or on a node of the class that they stand
/// for.
fn staying(
    model: &Model,
    task: usize,
    nodes: &[usize],
    strides: &[usize],
    unit_s: f64,
) -> Option<Choice> {
    let stay = model.tasks[task].stay.as_ref()?;
    let home = stay.home()?;
    let is_like =
        |node: &usize| *node == home || nodes.len() == 1 && model.nodes[*node] == model.nodes[home];
    let node = nodes.iter().position(is_like)?;
    let gpus = stay.held() as usize;
    Some(Choice { node, gpus, offset: gpus * strides[node], rate: unit_s / stay.runtime })
}

impl Block {
    /// `None` where there are too many states to count.
    fn new(model: &Model, nodes: &[usize], count: f64, unit_s: f64) -> Option<Self> {
        let mut strides = Vec::with_capacity(nodes.len());
        let mut num_states = 1usize;
        for &node in nodes {
            strides.push(num_states);
            let levels = usize::try_from(model.nodes[node].gpus).ok()?.checked_add(1)?;
            num_states = num_states.checked_mul(levels)?;
        }
        let options = (0..model.tasks.len())
            .map(|task| {
                let on = |(local, node): (usize, &usize)| {
                    let stride = strides[local];
                    model.modes_on(task, *node).iter().map(move |mode| {
                        let gpus = mode.gpus as usize;
                        let rate = unit_s / mode.runtime;
                        Choice { node: local, gpus, offset: gpus * stride, rate }
                    })
                };
                let mut choices: Vec<Choice> = nodes.iter().enumerate().flat_map(on).collect();
                choices.extend(staying(model, task, nodes, &strides, unit_s));
                choices
            })
            .collect();
        Some(Self { strides, num_states, count, options })
    }

    /// Steps that the dynamic program takes.
    fn num_steps(&self) -> usize {
        self.num_states.saturating_mul(self.options.iter().map(Vec::len).sum())
    }

    /// Devices of node `local` that are left in a state.
    fn left(&self, state: usize, local: usize) -> usize {
        let above = self.strides.get(local + 1).copied().unwrap_or(self.num_states);
        state % above / self.strides[local]
    }

    /// The configuration of most worth in a unit of time, and that worth.
    fn best(&self, multipliers: &Multipliers) -> (f64, Vec<(usize, f64)>) {
        const IDLE: u16 = u16::MAX;
        let mut worth = vec![0.0f64; self.num_states];
        let mut chosen = vec![IDLE; self.num_states * self.options.len()];
        for (task, options) in self.options.iter().enumerate() {
            let chosen = &mut chosen[task * self.num_states..(task + 1) * self.num_states];
            let (work, time) = (multipliers.work[task], multipliers.time[task]);
            // Downwards, so that values are read before this task changes them.
            for state in (0..self.num_states).rev() {
                let mut most = worth[state];
                for (index, choice) in (0u16..IDLE).zip(options) {
                    if self.left(state, choice.node) < choice.gpus {
                        continue;
                    }
                    let value = worth[state - choice.offset] + work * choice.rate - time;
                    if value > most {
                        most = value;
                        chosen[state] = index;
                    }
                }
                worth[state] = most;
            }
        }
        let mut state = self.num_states - 1;
        let mut column = Vec::new();
        for (task, options) in self.options.iter().enumerate().rev() {
            let index = chosen[task * self.num_states + state];
            if index != IDLE {
                let choice = options[usize::from(index)];
                column.push((task, choice.rate));
                state -= choice.offset;
            }
        }
        (worth[self.num_states - 1], column)
    }
}

#[cfg(test)]
mod tests {
    use saturn_core::{Candidate, Cluster, Node, Problem, ProblemTask};

    use super::*;
    use crate::course::clock::FrozenClock;

    #[test]
    fn where_moves_are_the_limit_no_real_seconds_are() {
        let candidate = |gpus: u32, runtime_s: f64| Candidate {
            technique: "ddp".into(),
            gpus,
            gpu_type: None,
            runtime_s,
            pack: false,
            host_bytes: 0,
            relative_error: 0.0,
        };
        let task = |index: u32| {
            let work_s = 100.0 + f64::from(index * index % 7) * 31.0;
            let widths = [2 + index % 3, 4 + index % 2];
            let candidates = widths.map(|gpus| candidate(gpus, work_s / f64::from(gpus).sqrt()));
            ProblemTask::new(format!("t{index}"), candidates.to_vec())
        };
        let nodes = ["n0", "n1"].map(|name| Node::new(name, 7, "gpu")).to_vec();
        let model = Model::new(&Problem::new(Cluster { nodes }, (0..6).map(task).collect()));
        let bound_within = |seconds: f64, is_counted: bool| {
            let deadline = Deadline::new(&FrozenClock, seconds).counted(is_counted);
            bound(&model, &[1.0], deadline)
        };
        let (instant, hour) = (bound_within(1e-12, true), bound_within(3600.0, true));
        assert_eq!(instant.to_bits(), hour.to_bits());
        assert!(bound_within(1e-12, false) < hour, "the linear program raises the bound");
    }
}
