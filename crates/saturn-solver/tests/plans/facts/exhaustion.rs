//! The slow, obviously right answer to tiny problems with every kind of fact, in whole seconds.

use saturn_core::{Node, Problem, ProblemTask};

use super::problems::may_keep_cap;
use crate::support::{Held, gangs};

/// The least makespan, weighted completion and cost of any plan; `None` where there is none. With soft
/// deadlines, of the least tardy plans.
pub(crate) fn brute_force(problem: &Problem) -> Option<[f64; 3]> {
    Some(brute_force_softly(problem)?.map(|(_, value)| value))
}

/// The least tardiness, and with it the least makespan, weighted completion and cost.
///
/// Tries every way and every whole second for each task. With whole seconds in the problem some best
/// plan has whole seconds: what binds starts to each other and to limits are differences.
pub(crate) fn brute_force_softly(problem: &Problem) -> Option<[(f64, f64); 3]> {
    let longest = |task: &ProblemTask| {
        let longest = task.strategies.iter().map(|one| one.runtime_s).fold(0.0, f64::max);
        longest + task.switch_cost_s.unwrap_or(0.0)
    };
    let begin = problem.tasks.iter().map(|task| task.release_s);
    let begin = begin.chain(problem.cluster.nodes.iter().map(|node| node.available_from_s));
    let horizon = begin.fold(0.0, f64::max) + problem.tasks.iter().map(longest).sum::<f64>();
    let options =
        problem.tasks.iter().map(|task| options(problem, task, seconds(horizon))).collect();
    let mut search = Exhaustive {
        problem,
        options,
        held: vec![vec![0; seconds(horizon)]; problem.cluster.nodes.len()],
        spans: Vec::new(),
        placed: Vec::new(),
        best: [(f64::INFINITY, f64::INFINITY); 3],
    };
    search.place();
    search.best[0].0.is_finite().then_some(search.best)
}

/// A whole number of seconds.
fn seconds(value: f64) -> usize {
    assert!(value >= 0.0 && value.fract() == 0.0 && value < 1e6, "{value}");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "asserted")]
    let seconds = value as usize;
    seconds
}

/// Start, end, the nodes with the number of devices held, bytes of host memory on each of them, and
/// whether a running task is left as it is.
type Option_ = (usize, usize, Held, u64, bool);

/// Every way and start of one task that keeps its own limits.
fn options(problem: &Problem, task: &ProblemTask, horizon: usize) -> Vec<Option_> {
    let nodes = &problem.cluster.nodes;
    let mut all = Vec::new();
    let mut offer =
        |start: usize, lasts: usize, gang: Vec<(usize, u32)>, host: u64, stays: bool| {
            let (from, to) = (start as f64, (start + lasts) as f64);
            let is_kept = from >= task.release_s
                && to <= latest(task)
                && to <= problem.deadline_s.unwrap_or(f64::INFINITY)
                && gang.iter().all(|(node, _)| {
                    let node = &nodes[*node];
                    let is_allowed =
                        task.only_nodes.as_ref().is_none_or(|only| only.contains(&node.name))
                            && !task.not_nodes.contains(&node.name);
                    let is_there = node.available_from_s <= from
                        && node.available_until_s.is_none_or(|until| to <= until);
                    is_allowed && is_there
                });
            if is_kept {
                all.push((start, start + lasts, gang, host, stays));
            }
        };
    if let Some(running) = &task.running {
        let strategy = task.strategies.iter().find(|one| {
            *one.technique == *running.technique
                && one.gpus == running.gpus
                && one.gpu_type.as_deref() == running.gpu_type.as_deref()
        });
        let index = |name: &str| nodes.iter().position(|node| node.name == name).unwrap();
        let held = running.placement.iter();
        let gang = held.map(|held| (index(&held.node), u32::try_from(held.devices.len()).unwrap()));
        let strategy = strategy.unwrap();
        offer(0, seconds(strategy.runtime_s), gang.collect(), strategy.host_bytes, true);
        if !running.movable {
            return all;
        }
    }
    let lead = if task.running.is_some() { task.switch_cost_s.unwrap() } else { 0.0 };
    for strategy in &task.strategies {
        let lasts = seconds(strategy.runtime_s + lead);
        for gang in gangs(problem, strategy) {
            if !may_keep_cap(problem, task, strategy, &gang) {
                continue;
            }
            for start in 0..=horizon.saturating_sub(lasts) {
                offer(start, lasts, gang.clone(), strategy.host_bytes, false);
            }
        }
    }
    all
}

/// The latest end that a task's own deadline allows.
pub(crate) fn latest(task: &ProblemTask) -> f64 {
    match (task.deadline_s, task.late_price, task.most_late_s) {
        (None, ..) | (_, Some(_), None) => f64::INFINITY,
        (Some(deadline_s), None, _) => deadline_s,
        (Some(deadline_s), Some(_), Some(most_s)) => deadline_s + most_s,
    }
}

/// The price of ending then.
pub(crate) fn tardiness(task: &ProblemTask, end: f64) -> f64 {
    task.late_price.map_or(0.0, |price| price * (end - task.deadline_s.unwrap()).max(0.0))
}

struct Exhaustive<'a> {
    problem: &'a Problem,
    options: Vec<Vec<Option_>>,
    /// Devices held on each node in each second.
    held: Vec<Vec<u32>>,
    /// Start and end of the tasks placed.
    spans: Vec<(usize, usize)>,
    /// What they hold.
    placed: Vec<Option_>,
    /// Tardiness and value under each objective.
    best: [(f64, f64); 3],
}

impl Exhaustive<'_> {
    fn place(&mut self) {
        let task = self.spans.len();
        if task == self.options.len() {
            if self.has_memory() && self.keeps_caps() {
                self.weigh();
            }
            return;
        }
        let options = std::mem::take(&mut self.options[task]);
        for option in &options {
            let (start, end, gang, ..) = option;
            let fits = gang.iter().all(|(node, gpus)| {
                let most = self.held[*node][*start..*end].iter().max().copied().unwrap_or(0);
                most + gpus <= self.problem.cluster.nodes[*node].gpus
            });
            if !fits || !self.keeps_order(task, (*start, *end)) {
                continue;
            }
            for (node, gpus) in gang {
                self.held[*node][*start..*end].iter_mut().for_each(|held| *held += gpus);
            }
            self.spans.push((*start, *end));
            self.placed.push(option.clone());
            self.place();
            self.placed.pop();
            self.spans.pop();
            for (node, gpus) in gang {
                self.held[*node][*start..*end].iter_mut().for_each(|held| *held -= gpus);
            }
        }
        self.options[task] = options;
    }

    /// Whether no gang that takes host memory, but for those that are left as they are, is ever on a
    /// node where more is taken than it has.
    fn has_memory(&self) -> bool {
        self.problem.cluster.nodes.iter().enumerate().all(|(node, spec)| {
            let Some(has) = spec.host_memory_bytes else { return true };
            (0..self.held[node].len()).all(|second| {
                let there = self.placed.iter().filter(|(start, end, gang, ..)| {
                    (*start..*end).contains(&second) && gang.iter().any(|part| part.0 == node)
                });
                let taken: u64 = there.clone().map(|one| one.3).sum();
                taken <= has || there.into_iter().all(|one| one.4 || one.3 == 0)
            })
        })
    }

    /// Whether no gang, but for those that are left as they are, is ever there when its owner's gangs hold
    /// more devices than the owner's cap.
    fn keeps_caps(&self) -> bool {
        self.problem.owners.iter().all(|owner| {
            let gangs = self.placed.iter().zip(&self.problem.tasks);
            let own = gangs.filter(|(_, task)| task.owner.as_ref() == Some(&owner.name));
            let own: Vec<&Option_> = own.map(|(gang, _)| gang).collect();
            (0..self.held[0].len()).all(|second| {
                let there = own.iter().filter(|(start, end, ..)| (*start..*end).contains(&second));
                let held: u32 = there.clone().flat_map(|one| &one.2).map(|(_, gpus)| gpus).sum();
                held <= owner.max_gpus || there.into_iter().all(|one| one.4)
            })
        })
    }

    fn keeps_order(&self, task: usize, span: (usize, usize)) -> bool {
        let tasks = &self.problem.tasks;
        self.spans.iter().enumerate().all(|(other, placed)| {
            (!tasks[task].after.contains(&tasks[other].name) || placed.1 <= span.0)
                && (!tasks[other].after.contains(&tasks[task].name) || span.1 <= placed.0)
        })
    }

    fn weigh(&mut self) {
        let ends = || self.spans.iter().map(|span| span.1 as f64);
        let weights = self.problem.tasks.iter().map(|task| task.weight);
        let nodes = self.problem.cluster.nodes.iter();
        let cost = |(node, held): (&Node, &Vec<u32>)| {
            let paid = held.iter().filter(|held| **held > 0).count();
            node.price_per_hour / 3600.0 * paid as f64
        };
        let values = [
            ends().fold(0.0, f64::max),
            ends().zip(weights).map(|(end, weight)| end * weight).sum(),
            nodes.zip(&self.held).map(cost).sum(),
        ];
        let tardiness: f64 =
            ends().zip(&self.problem.tasks).map(|(end, task)| tardiness(task, end)).sum();
        for (best, value) in self.best.iter_mut().zip(values) {
            if (tardiness, value) < *best {
                *best = (tardiness, value);
            }
        }
    }
}
