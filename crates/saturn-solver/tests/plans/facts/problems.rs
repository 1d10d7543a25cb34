//! Random problems with every kind of fact, in whole seconds.

use proptest::prelude::*;
use proptest::sample::subsequence;
use saturn_core::{Candidate, Cluster, HeldDevices, Node, Owner, Problem, ProblemTask, Running};

use crate::support::{Held, gangs};

/// Sizes of random problems. Times are whole seconds.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    pub(crate) nodes: std::ops::RangeInclusive<usize>,
    pub(crate) gpus: std::ops::RangeInclusive<u32>,
    pub(crate) tasks: std::ops::RangeInclusive<usize>,
    pub(crate) strategies: std::ops::RangeInclusive<usize>,
    pub(crate) widest: u32,
    pub(crate) longest: u32,
    /// Releases and arrivals are up to this.
    pub(crate) latest: u32,
    /// Deadlines and departures are up to this.
    pub(crate) due: u32,
}

pub(crate) const TINY: Scale = Scale {
    nodes: 1..=2,
    gpus: 1..=3,
    tasks: 1..=3,
    strategies: 1..=2,
    widest: 4,
    longest: 4,
    latest: 4,
    due: 24,
};

pub(crate) const SMALL: Scale = Scale {
    nodes: 1..=4,
    gpus: 1..=8,
    tasks: 4..=25,
    strategies: 1..=4,
    widest: 12,
    longest: 40,
    latest: 60,
    due: 900,
};

#[derive(Debug, Clone)]
struct TaskFacts {
    strategies: Vec<(u32, Option<usize>, u32, bool)>,
    release: Option<u32>,
    after: Vec<usize>,
    weight: Option<u32>,
    deadline: Option<u32>,
    only: Option<Vec<usize>>,
    not: Option<usize>,
    /// Whether it should run already, and whether it may be moved, at what cost.
    running: Option<(bool, u32)>,
}

/// A third of the time.
fn sometimes<T: Strategy + 'static>(what: T) -> impl Strategy<Value = Option<T::Value>>
where
    T::Value: Clone + std::fmt::Debug,
{
    prop::option::weighted(0.33, what)
}

/// A problem with any facts at all, or none.
pub(crate) fn problems(scale: Scale) -> impl Strategy<Value = Problem> {
    let Scale { strategies, widest, longest, latest, due, .. } = scale.clone();
    let node = (
        scale.gpus,
        prop::bool::weighted(0.2),
        0u32..=3,
        sometimes(1..=latest),
        sometimes(due / 2..=due),
    );
    let nodes = prop::collection::vec(node, scale.nodes);
    let strategy = (1..=widest, prop::option::weighted(0.2, 0usize..2), 1..=longest, any::<bool>());
    let task = (
        prop::collection::vec(strategy, strategies),
        sometimes(1..=latest),
        subsequence((0..4usize).collect::<Vec<_>>(), 0..=2),
        sometimes(2u32..=5),
        sometimes(due / 3..=due),
        prop::option::weighted(0.2, prop::collection::vec(0usize..4, 1..=2)),
        prop::option::weighted(0.2, 0usize..4),
        prop::option::weighted(0.35, (any::<bool>(), 0u32..=3)),
    )
        .prop_map(|(strategies, release, after, weight, deadline, only, not, running)| TaskFacts {
            strategies,
            release,
            after,
            weight,
            deadline,
            only,
            not,
            running,
        });
    let tasks = prop::collection::vec(task, scale.tasks);
    let order = prop::collection::vec(any::<u32>(), 32);
    (nodes, tasks, order, prop::option::weighted(0.2, due / 2..=due)).prop_map(build)
}

/// The same problems where each node has only so many bytes of host memory, or no limit.
pub(crate) fn with_memory(scale: Scale) -> impl Strategy<Value = Problem> {
    let has = prop::collection::vec(prop::option::weighted(0.8, 2u64..=12), 4);
    let takes = prop::collection::vec(0u64..=8, 64);
    (problems(scale), has, takes).prop_map(|(mut problem, has, takes)| {
        for (node, has) in problem.cluster.nodes.iter_mut().zip(has) {
            node.host_memory_bytes = has;
        }
        let strategies = problem.tasks.iter_mut().flat_map(|task| &mut task.strategies);
        for (strategy, takes) in strategies.zip(takes.iter().cycle()) {
            strategy.host_bytes = *takes;
        }
        for (task, _) in problem.unplaceable() {
            let fallback =
                Candidate { technique: "lean".into(), ..candidate(&(1, None, 3, false)) };
            problem.tasks[task].strategies.push(fallback);
        }
        problem
    })
}

/// The same problems, of which most tasks belong to one of two owners with caps.
pub(crate) fn with_caps(scale: Scale) -> impl Strategy<Value = Problem> {
    let caps = (1u32..=5, 1u32..=3);
    let owners = prop::collection::vec(prop::option::weighted(0.8, any::<bool>()), 16);
    (problems(scale), caps, owners).prop_map(|(mut problem, caps, owners)| {
        let owner = |(name, max_gpus): (&str, u32)| Owner { name: name.to_owned(), max_gpus };
        problem.owners = [("ada", caps.0), ("bob", caps.1)].map(owner).to_vec();
        for (task, is_first) in problem.tasks.iter_mut().zip(owners.iter().cycle()) {
            task.owner = is_first.map(|is_first| if is_first { "ada" } else { "bob" }.to_owned());
        }
        for (task, _) in problem.unplaceable() {
            problem.tasks[task].strategies.push(candidate(&(1, None, 3, false)));
        }
        problem
    })
}

/// Whether a strategy on nodes of a type can't hold more devices than the cap of its task's owner.
pub(crate) fn may_keep_cap(
    problem: &Problem,
    task: &ProblemTask,
    strategy: &Candidate,
    gang: &Held,
) -> bool {
    let nodes = &problem.cluster.nodes;
    let of_type = nodes.iter().filter(|node| node.gpu_type == nodes[gang[0].0].gpu_type);
    let gpus = of_type.map(|node| node.gpus);
    let (narrowest, widest) = (gpus.clone().min().unwrap(), gpus.max().unwrap());
    let most = problem.owner(task).map(|owner| owner.max_gpus);
    most.is_none_or(|most| strategy.most_held(narrowest, widest) <= most)
}

type NodeFacts = (u32, bool, u32, Option<u32>, Option<u32>);

fn build(
    (nodes, tasks, order, deadline): (Vec<NodeFacts>, Vec<TaskFacts>, Vec<u32>, Option<u32>),
) -> Problem {
    let num_nodes = nodes.len();
    let nodes = nodes
        .into_iter()
        .enumerate()
        .map(|(index, (gpus, is_other, price, from, until))| Node {
            price_per_hour: f64::from(price) * 3600.0,
            available_from_s: from.map_or(0.0, f64::from),
            available_until_s: until.map(|until| f64::from(until + from.unwrap_or(0))),
            ..Node::new(format!("n{index}"), gpus, if is_other { "k1" } else { "k0" })
        })
        .collect();
    let mut problem = Problem::new(Cluster { nodes }, Vec::new());
    problem.deadline_s = deadline.map(f64::from);
    for (index, facts) in tasks.iter().enumerate() {
        let strategies = facts.strategies.iter().map(candidate).collect();
        let node = |node: usize| format!("n{}", node % num_nodes);
        problem.tasks.push(ProblemTask {
            release_s: facts.release.map_or(0.0, f64::from),
            weight: facts.weight.map_or(1.0, f64::from),
            deadline_s: facts.deadline.map(f64::from),
            only_nodes: facts.only.as_ref().map(|only| only.iter().map(|one| node(*one)).collect()),
            not_nodes: facts.not.map(node).into_iter().filter(|_| num_nodes > 1).collect(),
            ..ProblemTask::new(format!("t{index}"), strategies)
        });
    }
    for (task, _) in problem.unplaceable() {
        let fallback = candidate(&(1, None, 3, false));
        problem.tasks[task].strategies.push(fallback);
    }
    add_precedence(&mut problem, &tasks, &order);
    add_running(&mut problem, &tasks);
    problem
}

fn candidate((gpus, kind, runtime, pack): &(u32, Option<usize>, u32, bool)) -> Candidate {
    Candidate {
        technique: format!("x{gpus}").into(),
        gpus: *gpus,
        gpu_type: kind.map(|kind| format!("k{kind}").into()),
        runtime_s: f64::from(*runtime),
        pack: *pack,
        host_bytes: 0,
        relative_error: 0.0,
    }
}

/// Lets tasks wait for tasks that are earlier in a random order, so that there are no cycles.
fn add_precedence(problem: &mut Problem, tasks: &[TaskFacts], order: &[u32]) {
    let rank = |task: usize| (order[task % order.len()], task);
    for (task, facts) in tasks.iter().enumerate() {
        for other in facts.after.iter().map(|other| other % tasks.len()) {
            if rank(other) < rank(task) {
                let name = format!("t{other}");
                if !problem.tasks[task].after.contains(&name) {
                    problem.tasks[task].after.push(name);
                }
            }
        }
    }
}

/// Starts those tasks that should run already where their first strategy has a gang that is free.
fn add_running(problem: &mut Problem, tasks: &[TaskFacts]) {
    let mut num_held: Vec<u32> = vec![0; problem.cluster.nodes.len()];
    for (task, facts) in tasks.iter().enumerate() {
        let Some((movable, cost)) = facts.running else { continue };
        let strategy = problem.tasks[task].strategies[0].clone();
        let gang = gangs(problem, &strategy).into_iter().find(|gang| {
            gang.iter().all(|(node, gpus)| {
                let spec = &problem.cluster.nodes[*node];
                spec.available_from_s == 0.0 && num_held[*node] + gpus <= spec.gpus
            })
        });
        let Some(gang) = gang else { continue };
        // The last devices of a node, so that it matters which they are.
        let placement = gang
            .iter()
            .map(|(node, gpus)| {
                let end = problem.cluster.nodes[*node].gpus - num_held[*node];
                num_held[*node] += gpus;
                HeldDevices {
                    node: problem.cluster.nodes[*node].name.clone(),
                    devices: (end - gpus..end).collect(),
                }
            })
            .collect();
        let spec = &mut problem.tasks[task];
        spec.release_s = 0.0;
        spec.after.clear();
        spec.switch_cost_s = Some(f64::from(cost));
        spec.running = Some(Running {
            technique: strategy.technique.as_ref().to_owned(),
            gpus: strategy.gpus,
            gpu_type: strategy.gpu_type.as_deref().map(str::to_owned),
            placement,
            movable,
        });
    }
}
