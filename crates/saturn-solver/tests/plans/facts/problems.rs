//! Random problems with every kind of fact, in whole seconds, and the slow, obviously right answer to
//! tiny ones.

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
