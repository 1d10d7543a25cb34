//! The problem as the solver sees it: numbers for names, and only strategies worth choosing.
//!
//! A *kind* is a GPU type, a *mode* a strategy on one kind. Modes are narrow (one node) or wide
//! (several). Pruning keeps, for each task and kind, the modes that no other dominates: another
//! dominates that holds no more devices, of no harder shape, for no longer.

use saturn_core::{Candidate, Problem};

/// A strategy on one kind that fits into one node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mode {
    /// Devices held.
    pub(crate) gpus: u32,
    /// Seconds.
    pub(crate) runtime: f64,
    /// Index into the task's strategies.
    pub(crate) strategy: u32,
}

impl Mode {
    /// GPU-seconds.
    #[inline]
    pub(crate) fn area(&self) -> f64 {
        f64::from(self.gpus) * self.runtime
    }
}

/// A strategy on one kind that takes several nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WideMode {
    /// Devices that the strategy asks for; whole nodes may hold more.
    pub(crate) gpus: u32,
    /// Fewest devices that its nodes can hold together.
    pub(crate) held: u32,
    pub(crate) runtime: f64,
    pub(crate) strategy: u32,
    pub(crate) kind: usize,
    pub(crate) pack: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// Narrow modes for each kind, ascending in GPUs and descending in runtime.
    pub(crate) modes: Vec<Vec<Mode>>,
    /// Wide modes of all kinds.
    pub(crate) wide: Vec<WideMode>,
}

impl Task {
    /// (kind, devices held at least, runtime) of every mode.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (usize, u32, f64)> + '_ {
        let narrow = self.modes.iter().enumerate().flat_map(|(kind, modes)| {
            modes.iter().map(move |mode| (kind, mode.gpus, mode.runtime))
        });
        narrow.chain(self.wide.iter().map(|mode| (mode.kind, mode.held, mode.runtime)))
    }

    /// Whether the other has the same modes, whatever strategies they stand for.
    pub(crate) fn has_modes_of(&self, other: &Self) -> bool {
        let wide = |task: &Self| -> Vec<_> {
            let shape = |mode: &WideMode| (mode.gpus, mode.pack, mode.kind, mode.runtime.to_bits());
            task.wide.iter().map(shape).collect()
        };
        let shapes = |task: &Self| -> Vec<_> {
            task.shapes().map(|(kind, gpus, runtime)| (kind, gpus, runtime.to_bits())).collect()
        };
        wide(self) == wide(other) && shapes(self) == shapes(other)
    }

    /// The shortest runtime of any mode, seconds.
    pub(crate) fn shortest(&self) -> f64 {
        self.shapes().map(|(_, _, runtime)| runtime).fold(f64::INFINITY, f64::min)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) gpus: u32,
    pub(crate) kind: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) nodes: Vec<Node>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) num_kinds: usize,
    /// Devices of each kind.
    pub(crate) capacity: Vec<f64>,
    /// Largest node of each kind.
    pub(crate) widest: Vec<u32>,
    /// For each node, when its devices fall free for the gangs on its list, ascending.
    pub(crate) ready: Vec<Vec<f64>>,
}

impl Model {
    /// The model of a valid problem. Tasks that fit nowhere have no modes.
    pub(crate) fn new(problem: &Problem) -> Self {
        let mut names: Vec<&str> =
            problem.cluster.nodes.iter().map(|node| node.gpu_type.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let nodes: Vec<Node> = problem
            .cluster
            .nodes
            .iter()
            .map(|node| Node {
                gpus: node.gpus,
                kind: names.partition_point(|name| *name < node.gpu_type.as_str()),
            })
            .collect();
        let num_kinds = names.len();
        let mut capacity = vec![0.0; num_kinds];
        let mut widest = vec![0; num_kinds];
        for node in &nodes {
            capacity[node.kind] += f64::from(node.gpus);
            widest[node.kind] = node.gpus.max(widest[node.kind]);
        }
        let ready = nodes.iter().map(|node| vec![0.0; node.gpus as usize]).collect();
        let mut model = Self { nodes, tasks: Vec::new(), num_kinds, capacity, widest, ready };
        model.tasks = problem
            .tasks
            .iter()
            .map(|task| {
                let by_kind = |kind: usize| model.narrow_modes(kind, names[kind], &task.strategies);
                let modes: Vec<Vec<Mode>> = (0..num_kinds).map(by_kind).collect();
                let wide = (0..num_kinds)
                    .flat_map(|kind| {
                        model.wide_modes(kind, names[kind], &task.strategies, &modes[kind])
                    })
                    .collect();
                Task { modes, wide }
            })
            .collect();
        model
    }

    fn narrow_modes(&self, kind: usize, name: &str, strategies: &[Candidate]) -> Vec<Mode> {
        let mut modes: Vec<Mode> = (0u32..)
            .zip(strategies)
            .filter(|(_, one)| holds_on(one, name) && one.gpus <= self.widest[kind])
            .map(|(strategy, one)| Mode { gpus: one.gpus, runtime: one.runtime_s, strategy })
            .collect();
        modes.sort_by(|left, right| {
            left.gpus.cmp(&right.gpus).then(left.runtime.total_cmp(&right.runtime))
        });
        let mut shortest = f64::INFINITY;
        modes.retain(|mode| {
            let is_faster = mode.runtime < shortest;
            shortest = shortest.min(mode.runtime);
            is_faster
        });
        modes
    }

    fn wide_modes(
        &self,
        kind: usize,
        name: &str,
        strategies: &[Candidate],
        narrow: &[Mode],
    ) -> Vec<WideMode> {
        let sizes = self.sizes(kind);
        let is_uniform = sizes.first() == sizes.last();
        let fits = |one: &Candidate| {
            one.gpus > self.widest[kind] && f64::from(one.gpus) <= self.capacity[kind]
        };
        let mut modes: Vec<WideMode> = (0u32..)
            .zip(strategies)
            .filter(|(_, one)| holds_on(one, name) && fits(one))
            .map(|(strategy, one)| WideMode {
                gpus: one.gpus,
                held: if one.pack || !is_uniform {
                    one.gpus
                } else {
                    one.gpus.div_ceil(sizes[0]) * sizes[0]
                },
                runtime: one.runtime_s,
                strategy,
                kind,
                pack: one.pack,
            })
            .collect();
        modes.sort_by(|left, right| {
            left.gpus.cmp(&right.gpus).then(left.runtime.total_cmp(&right.runtime))
        });
        // A node of equal sizes holds any narrow gang that a wide one could be replaced by.
        let narrow_best = if is_uniform {
            narrow.last().map_or(f64::INFINITY, |mode| mode.runtime)
        } else {
            f64::INFINITY
        };
        let mut kept: Vec<WideMode> = Vec::new();
        for mode in modes {
            let is_dominated = kept.iter().any(|other| {
                other.pack == mode.pack && other.gpus <= mode.gpus && other.runtime <= mode.runtime
            });
            if mode.runtime < narrow_best && !is_dominated {
                kept.push(mode);
            }
        }
        kept
    }

    /// GPU counts of the nodes of a kind, ascending.
    pub(crate) fn sizes(&self, kind: usize) -> Vec<u32> {
        let mut sizes: Vec<u32> =
            self.nodes.iter().filter(|node| node.kind == kind).map(|node| node.gpus).collect();
        sizes.sort_unstable();
        sizes
    }

    /// Devices in all.
    pub(crate) fn num_gpus(&self) -> f64 {
        self.capacity.iter().sum()
    }

    /// Whether every gang fits into one node, so that nodes are independent of each other.
    pub(crate) fn is_separable(&self) -> bool {
        self.tasks.iter().all(|task| task.wide.is_empty())
    }

    /// Modes of `task` that fit on `node`.
    pub(crate) fn modes_on(&self, task: usize, node: usize) -> &[Mode] {
        let Node { gpus, kind } = self.nodes[node];
        let modes = &self.tasks[task].modes[kind];
        &modes[..modes.partition_point(|mode| mode.gpus <= gpus)]
    }
}

fn holds_on(strategy: &Candidate, kind: &str) -> bool {
    strategy.gpu_type.as_deref().is_none_or(|wanted| wanted == kind)
}
