//! The least value of a small problem with any facts: all orders by start.
//!
//! For the makespan and for weighted completion, some best plan has each gang as early as possible, but
//! no earlier than the gang before it in the order of starts. So every order, strategy and gang is
//! tried. A branch is given up once its placed gangs alone are no better than the best plan so far.
//! Under the cost objective it may pay to wait, so the result is only the value of some plan.

use saturn_core::{Objective, Problem, ProblemTask};

use crate::facts::exhaustion::{latest, tardiness};
use crate::facts::problems::may_keep_cap;
use crate::support::{Held, gangs};

/// Nodes and devices, seconds for which they are held, and bytes of host memory on each node.
type Way = (Held, f64, u64);

/// The least value of a plan without waiting; `None` where there is no plan. With soft deadlines, of
/// the least tardy plans.
pub(crate) fn least(problem: &Problem, objective: Objective) -> Option<f64> {
    Some(least_softly(problem, objective)?.1)
}

/// The least tardiness of a plan without waiting, and with it the least value.
pub(crate) fn least_softly(problem: &Problem, objective: Objective) -> Option<(f64, f64)> {
    let nodes = &problem.cluster.nodes;
    let free = nodes.iter().map(|node| vec![node.available_from_s; node.gpus as usize]).collect();
    let ways: Vec<Vec<Way>> = problem.tasks.iter().map(|task| ways(problem, task)).collect();
    let shortest =
        ways.iter().map(|ways| ways.iter().map(|way| way.1).fold(f64::INFINITY, f64::min));
    let mut orders = Orders {
        problem,
        objective,
        shortest: shortest.collect(),
        ways,
        ends: vec![None; problem.tasks.len()],
        best: (f64::INFINITY, f64::INFINITY),
    };
    let paid = vec![0.0; nodes.len()];
    let (taken, gangs) = (Vec::new(), Vec::new());
    orders.stay_or_move(0, &Placed { free, paid, tardiness: 0.0, value: 0.0, taken, gangs });
    orders.best.0.is_finite().then_some(orders.best)
}

/// The ways of a task that its places and its running leave it, but for staying.
fn ways(problem: &Problem, task: &ProblemTask) -> Vec<Way> {
    if task.running.as_ref().is_some_and(|running| !running.movable) {
        return Vec::new();
    }
    let lead = if task.running.is_some() { task.switch_cost_s.unwrap() } else { 0.0 };
    let of = |strategy: &saturn_core::Candidate| {
        let (lasts, host) = (strategy.runtime_s + lead, strategy.host_bytes);
        let mut gangs = gangs(problem, strategy);
        gangs.retain(|gang| may_keep_cap(problem, task, strategy, gang));
        gangs.into_iter().map(move |gang| (gang, lasts, host))
    };
    let is_allowed = |(gang, ..): &Way| {
        gang.iter().all(|(node, _)| task.may_use(&problem.cluster.nodes[*node].name))
    };
    task.strategies.iter().flat_map(of).filter(is_allowed).collect()
}

struct Orders<'a> {
    problem: &'a Problem,
    objective: Objective,
    ways: Vec<Vec<Way>>,
    /// Seconds of the shortest way of each task.
    shortest: Vec<f64>,
    /// Of the tasks that are placed.
    ends: Vec<Option<f64>>,
    /// Tardiness and value.
    best: (f64, f64),
}

/// What is placed so far, in the order of starts.
#[derive(Clone)]
struct Placed {
    /// When each device of each node is free, ascending.
    free: Vec<Vec<f64>>,
    /// Until when each node is paid.
    paid: Vec<f64>,
    tardiness: f64,
    value: f64,
    /// Nodes, ends, and bytes of host memory.
    taken: Vec<(usize, f64, u64)>,
    /// Tasks, ends, and devices.
    gangs: Vec<(usize, f64, u32)>,
}

impl Orders<'_> {
    /// Decides for each running task whether it stays, and then places the others.
    fn stay_or_move(&mut self, task: usize, placed: &Placed) {
        let Some(spec) = self.problem.tasks.get(task) else {
            return self.place(placed, 0.0);
        };
        let Some(running) = &spec.running else {
            return self.stay_or_move(task + 1, placed);
        };
        let names = |name: &str| self.problem.cluster.nodes.iter().position(|one| one.name == name);
        let gang: Held = running
            .placement
            .iter()
            .map(|held| (names(&held.node).unwrap(), u32::try_from(held.devices.len()).unwrap()))
            .collect();
        let strategy = &spec.strategies[spec.running_strategy().unwrap()];
        let (end, host) = (strategy.runtime_s, strategy.host_bytes);
        let may_stay = running.placement.iter().all(|held| spec.may_use(&held.node));
        if may_stay && self.is_in_time(task, &gang, end) {
            let held = self.with(placed, task, (&gang, host), 0.0, end);
            self.ends[task] = Some(end);
            self.stay_or_move(task + 1, &held);
            self.ends[task] = None;
        }
        if running.movable {
            self.stay_or_move(task + 1, placed);
        }
    }

    fn is_in_time(&self, task: usize, gang: &Held, end: f64) -> bool {
        let spec = &self.problem.tasks[task];
        end <= latest(spec)
            && end <= self.problem.deadline_s.unwrap_or(f64::INFINITY)
            && gang.iter().all(|(node, _)| {
                self.problem.cluster.nodes[*node].available_until_s.is_none_or(|until| end <= until)
            })
    }

    /// No plan in which all others start at `last` or later is worth less.
    fn at_least(&self, value: f64, last: f64) -> f64 {
        let ends = self.ends.iter().zip(&self.shortest).zip(&self.problem.tasks);
        let open = ends.filter(|((end, _), _)| end.is_none());
        let open = open.map(|((_, shortest), task)| (last + shortest, task.weight));
        match self.objective {
            Objective::Makespan => open.map(|(end, _)| end).fold(value, f64::max),
            Objective::Completion => value + open.map(|(end, weight)| end * weight).sum::<f64>(),
            Objective::Cost => value,
        }
    }

    fn place(&mut self, placed: &Placed, last: f64) {
        if (placed.tardiness, self.at_least(placed.value, last)) >= self.best {
            return;
        }
        if self.ends.iter().all(Option::is_some) {
            self.best = (placed.tardiness, placed.value);
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
            let ways = std::mem::take(&mut self.ways[task]);
            for (gang, lasts, host) in &ways {
                let frees = gang.iter().map(|(node, gpus)| placed.free[*node][*gpus as usize - 1]);
                let start = frees.fold(ready, f64::max);
                let starts =
                    gang.iter().map(|(node, _)| self.has_memory(placed, *node, *host, start));
                let Some(start) = starts.reduce(|one, other| Some(one?.max(other?))).flatten()
                else {
                    continue;
                };
                let gpus = gang.iter().map(|(_, gpus)| gpus).sum();
                let Some(start) = self.keeps_cap(placed, task, gpus, start) else { continue };
                let end = start + lasts;
                if self.is_in_time(task, gang, end) {
                    let held = self.with(placed, task, (gang, *host), start, end);
                    self.ends[task] = Some(end);
                    self.place(&held, start);
                    self.ends[task] = None;
                }
            }
            self.ways[task] = ways;
        }
    }

    /// The first time from `start` on at which a node has so many bytes of host memory free; `None` if it
    /// never has. All gangs there have started by `start`.
    fn has_memory(&self, placed: &Placed, node: usize, host: u64, start: f64) -> Option<f64> {
        let has = self.problem.cluster.nodes[node].host_memory_bytes.filter(|_| host > 0);
        let Some(has) = has else { return Some(start) };
        let there = || placed.taken.iter().filter(|taken| taken.0 == node);
        let ends = there().map(|taken| taken.1).filter(|end| *end > start);
        let mut times: Vec<f64> = ends.chain([start]).collect();
        times.sort_by(f64::total_cmp);
        times.into_iter().find(|at| {
            let taken: u64 = there().filter(|taken| taken.1 > *at).map(|taken| taken.2).sum();
            taken + host <= has
        })
    }

    /// The first time from `start` on at which a task's owner may hold so many more devices. All gangs
    /// have started by `start`, so from a later time on the nodes and their memory are free too.
    fn keeps_cap(&self, placed: &Placed, task: usize, gpus: u32, start: f64) -> Option<f64> {
        let tasks = &self.problem.tasks;
        let Some(owner) = self.problem.owner(&tasks[task]) else { return Some(start) };
        let own = || placed.gangs.iter().filter(|gang| tasks[gang.0].owner == tasks[task].owner);
        let ends = own().map(|gang| gang.1).filter(|end| *end > start);
        let mut times: Vec<f64> = ends.chain([start]).collect();
        times.sort_by(f64::total_cmp);
        times.into_iter().find(|at| {
            let held: u32 = own().filter(|gang| gang.1 > *at).map(|gang| gang.2).sum();
            held + gpus <= owner.max_gpus
        })
    }

    /// The same with one more gang. It takes any devices that are free at its start: no later gang starts
    /// earlier, so the choice doesn't matter.
    fn with(
        &self,
        placed: &Placed,
        task: usize,
        (gang, host): (&Held, u64),
        start: f64,
        end: f64,
    ) -> Placed {
        let mut placed = placed.clone();
        let mut cost = 0.0;
        placed.taken.extend(gang.iter().map(|(node, _)| (*node, end, host)));
        placed.gangs.push((task, end, gang.iter().map(|(_, gpus)| gpus).sum()));
        for (node, gpus) in gang {
            let free = &mut placed.free[*node];
            let behind = free.iter().filter(|time| **time <= start).count();
            free[behind - *gpus as usize..behind].fill(end);
            free.sort_by(f64::total_cmp);
            let price = self.problem.cluster.nodes[*node].price_per_hour / 3600.0;
            cost += price * (end - start.max(placed.paid[*node])).max(0.0);
            placed.paid[*node] = placed.paid[*node].max(end);
        }
        placed.tardiness += tardiness(&self.problem.tasks[task], end);
        placed.value = match self.objective {
            Objective::Makespan => placed.value.max(end),
            Objective::Completion => placed.value + self.problem.tasks[task].weight * end,
            Objective::Cost => placed.value + cost,
        };
        placed
    }
}
