//! Random problems and the slow, obviously right answer to tiny ones.

mod cases;
mod gangs;
mod random;

pub(crate) use cases::cases;
pub(crate) use gangs::{Held, gangs};
use proptest::prelude::*;
pub(crate) use random::Random;
use saturn_core::{Candidate, Cluster, Node, Problem, ProblemTask};

/// Sizes of random problems.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    pub(crate) nodes: std::ops::RangeInclusive<usize>,
    pub(crate) gpus: std::ops::RangeInclusive<u32>,
    pub(crate) kinds: usize,
    pub(crate) tasks: std::ops::RangeInclusive<usize>,
    pub(crate) strategies: std::ops::RangeInclusive<usize>,
    /// The most GPUs of a strategy; more than a node has makes wide gangs.
    pub(crate) widest: u32,
}

pub(crate) const TINY: Sizes =
    Sizes { nodes: 1..=2, gpus: 1..=3, kinds: 2, tasks: 1..=4, strategies: 1..=3, widest: 4 };

pub(crate) const MEDIUM: Sizes =
    Sizes { nodes: 1..=6, gpus: 1..=9, kinds: 2, tasks: 5..=60, strategies: 1..=6, widest: 20 };

/// A problem each of whose tasks fits.
pub(crate) fn problems(sizes: Sizes) -> impl Strategy<Value = Problem> {
    let kind = 0..sizes.kinds;
    let nodes = prop::collection::vec((sizes.gpus.clone(), kind.clone()), sizes.nodes);
    let strategy = (1..=sizes.widest, prop::option::of(kind), 1u32..=40, any::<bool>());
    let tasks =
        prop::collection::vec(prop::collection::vec(strategy, sizes.strategies), sizes.tasks);
    (nodes, tasks).prop_map(|(nodes, tasks)| {
        let nodes = nodes
            .into_iter()
            .enumerate()
            .map(|(index, (gpus, kind))| Node::new(format!("n{index}"), gpus, format!("k{kind}")))
            .collect();
        let tasks = tasks
            .into_iter()
            .enumerate()
            .map(|(index, strategies)| {
                let strategies = strategies.into_iter().map(candidate).collect();
                ProblemTask::new(format!("t{index}"), strategies)
            })
            .collect();
        let mut problem = Problem::new(Cluster { nodes }, tasks);
        for (task, _) in problem.unplaceable() {
            let fallback = candidate((1, None, 7, false));
            problem.tasks[task].strategies.push(fallback);
        }
        problem
    })
}

fn candidate((gpus, kind, runtime, pack): (u32, Option<usize>, u32, bool)) -> Candidate {
    Candidate {
        technique: format!("x{gpus}").into(),
        gpus,
        gpu_type: kind.map(|kind| format!("k{kind}").into()),
        runtime_s: f64::from(runtime) * 0.75,
        pack,
        host_bytes: 0,
        relative_error: 0.0,
    }
}

/// Least makespan and least sum of ends, over all orders, strategies and gangs.
pub(crate) fn brute_force(problem: &Problem) -> (f64, f64) {
    let options: Vec<Vec<(f64, Held)>> = problem
        .tasks
        .iter()
        .map(|task| {
            let gangs = |one: &Candidate| gangs(problem, one);
            task.strategies
                .iter()
                .flat_map(|one| gangs(one).into_iter().map(|gang| (one.runtime_s, gang)))
                .collect()
        })
        .collect();
    let free = problem.cluster.nodes.iter().map(|node| vec![0.0; node.gpus as usize]).collect();
    let mut best = (f64::INFINITY, f64::INFINITY);
    let mut left: Vec<usize> = (0..problem.tasks.len()).collect();
    place_all(&options, &mut left, &free, 0.0, 0.0, &mut best);
    best
}

type Free = Vec<Vec<f64>>;
fn place_all(
    options: &[Vec<(f64, Held)>],
    left: &mut Vec<usize>,
    free: &Free,
    end: f64,
    sum: f64,
    best: &mut (f64, f64),
) {
    if left.is_empty() {
        *best = (best.0.min(end), best.1.min(sum));
        return;
    }
    if end >= best.0 && sum >= best.1 {
        return;
    }
    for index in 0..left.len() {
        let task = left.remove(index);
        for (runtime, gang) in &options[task] {
            let start =
                gang.iter().map(|(node, gpus)| free[*node][*gpus as usize - 1]).fold(0.0, f64::max);
            let mut next = free.clone();
            for (node, gpus) in gang {
                // Of the devices free by then, those that fell free last.
                let beyond = next[*node].iter().filter(|time| **time <= start).count();
                next[*node][beyond - *gpus as usize..beyond].fill(start + runtime);
                next[*node].sort_by(f64::total_cmp);
            }
            let ends = start + runtime;
            place_all(options, left, &next, end.max(ends), sum + ends, best);
        }
        left.insert(index, task);
    }
}
