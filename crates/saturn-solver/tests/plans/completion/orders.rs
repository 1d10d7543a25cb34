//! The least weighted completion of a small problem with any facts: all orders by start.
//!
//! Some best plan is found by placing gangs in the order of their starts, each as early as it can,
//! but no earlier than the gang before it. So every order, strategy and gang is tried, and a branch
//! is given up when what is placed is worth too much already.

use saturn_core::{Problem, ProblemTask};

use crate::support::{Held, gangs};

/// Nodes and devices, and seconds for which they are held.
type Way = (Held, f64);

/// The least sum of weight times end; `None` where there is no plan.
pub(super) fn least_completion(problem: &Problem) -> Option<f64> {
    let nodes = &problem.cluster.nodes;
    let free = nodes.iter().map(|node| vec![node.available_from_s; node.gpus as usize]).collect();
    let ways = problem.tasks.iter().map(|task| ways(problem, task)).collect();
    let num_tasks = problem.tasks.len();
    let mut orders = Orders { problem, ways, ends: vec![None; num_tasks], best: f64::INFINITY };
    orders.stay_or_move(0, free, 0.0);
    orders.best.is_finite().then_some(orders.best)
}

/// The ways of a task that its places and its running leave it, but for staying.
fn ways(problem: &Problem, task: &ProblemTask) -> Vec<Way> {
    if task.running.as_ref().is_some_and(|running| !running.movable) {
        return Vec::new();
    }
    let lead = if task.running.is_some() { task.switch_cost_s.unwrap() } else { 0.0 };
    let of = |strategy: &saturn_core::Candidate| {
        let lasts = strategy.runtime_s + lead;
        gangs(problem, strategy).into_iter().map(move |gang| (gang, lasts))
    };
    let is_allowed = |(gang, _): &Way| {
        gang.iter().all(|(node, _)| task.may_use(&problem.cluster.nodes[*node].name))
    };
    task.strategies.iter().flat_map(of).filter(is_allowed).collect()
}

struct Orders<'a> {
    problem: &'a Problem,
    ways: Vec<Vec<Way>>,
    /// Of the tasks that are placed.
    ends: Vec<Option<f64>>,
    best: f64,
}

type Free = Vec<Vec<f64>>;

impl Orders<'_> {
    /// Decides for each running task whether it stays, and then places the others.
    fn stay_or_move(&mut self, task: usize, free: Free, sum: f64) {
        let Some(spec) = self.problem.tasks.get(task) else {
            return self.place(&free, 0.0, sum);
        };
        let Some(running) = &spec.running else {
            return self.stay_or_move(task + 1, free, sum);
        };
        let names = |name: &str| self.problem.cluster.nodes.iter().position(|one| one.name == name);
        let gang: Held = running
            .placement
            .iter()
            .map(|held| (names(&held.node).unwrap(), u32::try_from(held.devices.len()).unwrap()))
            .collect();
        let strategy = spec.running_strategy().unwrap();
        let end = spec.strategies[strategy].runtime_s;
        let may_stay = running.placement.iter().all(|held| spec.may_use(&held.node));
        if may_stay && self.is_in_time(task, &gang, end) {
            let mut held = free.clone();
            hold(&mut held, &gang, 0.0, end);
            self.ends[task] = Some(end);
            self.stay_or_move(task + 1, held, sum + spec.weight * end);
            self.ends[task] = None;
        }
        if running.movable {
            self.stay_or_move(task + 1, free, sum);
        }
    }

    fn is_in_time(&self, task: usize, gang: &Held, end: f64) -> bool {
        let spec = &self.problem.tasks[task];
        end <= spec.deadline_s.unwrap_or(f64::INFINITY)
            && end <= self.problem.deadline_s.unwrap_or(f64::INFINITY)
            && gang.iter().all(|(node, _)| {
                self.problem.cluster.nodes[*node].available_until_s.is_none_or(|until| end <= until)
            })
    }

    fn place(&mut self, free: &Free, last: f64, sum: f64) {
        if sum >= self.best {
            return;
        }
        if self.ends.iter().all(Option::is_some) {
            self.best = sum;
            return;
        }
        for task in 0..self.ends.len() {
            if self.ends[task].is_some() {
                continue;
            }
            let spec = &self.problem.tasks[task];
            let end_of = |name: &String| {
                let other = self.problem.tasks.iter().position(|one| one.name == *name).unwrap();
                self.ends[other]
            };
            let Some(ready) = spec.after.iter().map(end_of).collect::<Option<Vec<f64>>>() else {
                continue;
            };
            let ready = ready.into_iter().fold(spec.release_s.max(last), f64::max);
            let weight = spec.weight;
            let ways = std::mem::take(&mut self.ways[task]);
            for (gang, lasts) in &ways {
                let frees = gang.iter().map(|(node, gpus)| free[*node][*gpus as usize - 1]);
                let start = frees.fold(ready, f64::max);
                let end = start + lasts;
                if self.is_in_time(task, gang, end) {
                    let mut held = free.clone();
                    hold(&mut held, gang, start, end);
                    self.ends[task] = Some(end);
                    self.place(&held, start, sum + weight * end);
                    self.ends[task] = None;
                }
            }
            self.ways[task] = ways;
        }
    }
}

/// Holds devices that are free by `start` until `end`; starts ascend, so which of them doesn't
/// matter.
fn hold(free: &mut Free, gang: &Held, start: f64, end: f64) {
    for (node, gpus) in gang {
        let behind = free[*node].iter().filter(|time| **time <= start).count();
        free[*node][behind - *gpus as usize..behind].fill(end);
        free[*node].sort_by(f64::total_cmp);
    }
}
