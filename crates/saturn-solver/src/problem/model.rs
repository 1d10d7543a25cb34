//! The problem as the solver sees it: numbers for names, and only strategies worth choosing.
//!
//! A *kind* is a GPU type, a *mode* a strategy on one kind. Modes are narrow (one node) or wide
//! (several nodes). Pruning drops, for each task and kind, every dominated mode. A mode dominates
//! another if it holds no more devices, of no harder shape, for no longer.
//!
//! A task that runs already may *stay*: hold its present devices from 0 on. Each of its modes lasts
//! its switch cost longer. If it can't be moved, it has no modes.
//!
//! Host memory is in the model only where it *binds* ([`host_memory`](crate::problem::host_memory)):
//! some gangs that could run together on a node would take more than it has. Then lists can't say the
//! problem, and a task has modes of its own for each size of node.

use std::collections::BTreeMap;

use saturn_core::{Candidate, Gang, HeldDevices, Placement, Problem, ProblemTask};

use crate::problem::caps::Caps;
use crate::problem::host_memory;
use crate::problem::modes::{ByMemory, Mode, WideMode, by_memory, holds_on, pruned, wide_pruned};

/// The choice of a running task that costs nothing: to go on as it is.
#[derive(Debug, Clone)]
pub(crate) struct Stay {
    pub(crate) strategy: usize,
    pub(crate) gang: Gang,
    pub(crate) kind: usize,
    /// Seconds left.
    pub(crate) runtime: f64,
    /// Bytes of host memory on each node; 0 where host memory does not bind.
    pub(crate) host: u64,
}

impl Stay {
    /// Devices held, over all nodes.
    pub(crate) fn held(&self) -> u32 {
        self.parts().map(|(_, gpus)| gpus).sum()
    }

    /// Nodes with the number of devices held.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.gang.iter().map(|part| (part.node, u32::try_from(part.devices.len()).unwrap_or(0)))
    }

    /// Its node, if it is on a single node.
    #[inline]
    pub(crate) fn home(&self) -> Option<usize> {
        if let [part] = self.gang.as_slice() { Some(part.node) } else { None }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// Narrow modes for each kind, ascending in GPUs and descending in runtime.
    pub(crate) modes: Vec<Vec<Mode>>,
    /// Where host memory binds, the narrow modes of nodes with at least so many bytes, for each kind,
    /// ascending in bytes. The modes ascend in GPUs. Empty where it doesn't bind.
    pub(crate) by_memory: Vec<ByMemory>,
    /// Wide modes of all kinds.
    pub(crate) wide: Vec<WideMode>,
    /// Set if it runs already, on nodes that it may use.
    pub(crate) stay: Option<Stay>,
    /// Seconds of every mode's runtime that a running task loses by not staying.
    pub(crate) switch_cost: f64,
    /// Whether it may use each node; `None` if it may use all.
    pub(crate) places: Option<Vec<bool>>,
}

impl Task {
    /// (kind, devices held at least, runtime) of every mode, and of staying.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (usize, u32, f64)> + '_ {
        let narrow = self.modes.iter().enumerate().flat_map(|(kind, modes)| {
            modes.iter().map(move |mode| (kind, mode.gpus, mode.runtime))
        });
        let wide = self.wide.iter().map(|mode| (mode.kind, mode.held, mode.runtime));
        narrow
            .chain(wide)
            .chain(self.stay.iter().map(|stay| (stay.kind, stay.held(), stay.runtime)))
    }

    /// Whether it may use a node.
    #[inline]
    pub(crate) fn may_use(&self, node: usize) -> bool {
        self.places.as_ref().is_none_or(|places| places[node])
    }

    /// Whether staying is all that it can do.
    pub(crate) fn is_fixed(&self) -> bool {
        self.stay.is_some() && self.wide.is_empty() && self.modes.iter().all(Vec::is_empty)
    }

    /// Whether the other task has the same modes, whatever strategies they stand for.
    pub(crate) fn has_modes_of(&self, other: &Self) -> bool {
        let wide = |task: &Self| -> Vec<_> {
            let shape = |mode: &WideMode| {
                (mode.gpus, mode.pack, mode.kind, mode.runtime.to_bits(), mode.host)
            };
            task.wide.iter().map(shape).collect()
        };
        let with_memory = |task: &Self| -> Vec<_> {
            let last = task.by_memory.iter().map(|kind| kind.last().map(|last| &last.1));
            let shape = |mode: &Mode| (mode.gpus, mode.runtime.to_bits(), mode.host);
            last.map(|modes| modes.map(|modes| modes.iter().map(shape).collect::<Vec<_>>()))
                .collect()
        };
        let shapes = |task: &Self| -> Vec<_> {
            task.shapes().map(|(kind, gpus, runtime)| (kind, gpus, runtime.to_bits())).collect()
        };
        wide(self) == wide(other)
            && shapes(self) == shapes(other)
            && with_memory(self) == with_memory(other)
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
    /// Bytes of host memory; the largest number where it does not bind, or has no limit.
    pub(crate) host: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) nodes: Vec<Node>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) num_kinds: usize,
    /// Devices of each kind.
    pub(crate) capacity: Vec<f64>,
    /// Largest node of each kind, and the smallest.
    pub(crate) widest: Vec<u32>,
    narrowest: Vec<u32>,
    /// For each node, when its devices become free for the gangs on its list, ascending.
    pub(crate) ready: Vec<Vec<f64>>,
    /// Whether gangs that could run together on a node may take more host memory than it has.
    pub(crate) host_binds: bool,
    pub(crate) caps: Caps,
}

impl Model {
    /// The model of a valid problem. Tasks that fit nowhere have no modes.
    pub(crate) fn new(problem: &Problem) -> Self {
        let mut names: Vec<&str> =
            problem.cluster.nodes.iter().map(|node| node.gpu_type.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let host_binds = host_memory::binds(problem);
        let nodes: Vec<Node> = problem
            .cluster
            .nodes
            .iter()
            .map(|node| Node {
                gpus: node.gpus,
                kind: names.partition_point(|name| *name < node.gpu_type.as_str()),
                host: if host_binds { node.host_memory() } else { u64::MAX },
            })
            .collect();
        let num_kinds = names.len();
        let mut capacity = vec![0.0; num_kinds];
        let mut widest = vec![0; num_kinds];
        let mut narrowest = vec![u32::MAX; num_kinds];
        for node in &nodes {
            capacity[node.kind] += f64::from(node.gpus);
            widest[node.kind] = node.gpus.max(widest[node.kind]);
            narrowest[node.kind] = node.gpus.min(narrowest[node.kind]);
        }
        let ready = nodes.iter().map(|node| vec![0.0; node.gpus as usize]).collect();
        let (tasks, caps) = (Vec::new(), Caps::default());
        let mut model =
            Self { nodes, tasks, num_kinds, capacity, widest, narrowest, ready, host_binds, caps };
        let node_index = problem.cluster.node_indices();
        let cap_of = |task: &ProblemTask| {
            if problem.owners.is_empty() { None } else { Some(problem.owner(task)?.max_gpus) }
        };
        let tasks = problem.tasks.iter();
        let tasks = tasks.map(|task| model.task(task, cap_of(task), &names, &node_index));
        model.tasks = tasks.collect();
        let most_held: Vec<u32> = problem
            .tasks
            .iter()
            .zip(&model.tasks)
            .map(|(task, of)| model.most_held(of, &task.strategies))
            .collect();
        model.caps = Caps::new(problem, &most_held);
        model
    }

    /// The most devices that a task with these strategies can hold.
    fn most_held(&self, task: &Task, strategies: &[Candidate]) -> u32 {
        let shapes = task.shapes().map(|(_, held, _)| held);
        let wide = task.wide.iter().map(|mode| {
            let (narrowest, widest) = (self.narrowest[mode.kind], self.widest[mode.kind]);
            strategies[mode.strategy as usize].most_held(narrowest, widest)
        });
        shapes.chain(wide).max().unwrap_or(0)
    }

    /// A task whose gangs may hold no more devices than `cap`, unless it runs already.
    fn task(
        &self,
        task: &ProblemTask,
        cap: Option<u32>,
        kinds: &[&str],
        nodes: &BTreeMap<&str, usize>,
    ) -> Task {
        let places = task.places(nodes, self.nodes.len());
        let cap = cap.unwrap_or(u32::MAX);
        let widest_of = |kind: usize| self.widest_of(kind, places.as_deref()).min(cap);
        let by_kind = |kind: usize| {
            let widest = widest_of(kind);
            let all = self.narrow_modes(kinds[kind], &task.strategies, widest);
            pruned(all, |mode| self.has_memory_for(mode, kind, places.as_deref()))
        };
        let mut modes: Vec<Vec<Mode>> = (0..self.num_kinds).map(by_kind).collect();
        let by_memory_of = |kind: usize| {
            let widest = widest_of(kind);
            by_memory(&self.narrow_modes(kinds[kind], &task.strategies, widest))
        };
        let num_kinds = if self.host_binds { self.num_kinds } else { 0 };
        let mut by_memory: Vec<ByMemory> = (0..num_kinds).map(by_memory_of).collect();
        let mut wide: Vec<WideMode> = (0..self.num_kinds)
            .flat_map(|kind| {
                self.wide_modes(kind, kinds[kind], (&task.strategies, cap), &modes[kind])
            })
            .collect();
        let Some(running) = &task.running else {
            return Task { modes, by_memory, wide, stay: None, switch_cost: 0.0, places };
        };
        let switch_cost = task.switch_cost_s.unwrap_or(0.0);
        if running.movable {
            let with_memory = by_memory.iter_mut().flatten().flat_map(|(_, modes)| modes);
            for mode in modes.iter_mut().flatten().chain(with_memory) {
                mode.runtime += switch_cost;
            }
            for mode in &mut wide {
                mode.runtime += switch_cost;
            }
        } else {
            modes.iter_mut().for_each(Vec::clear);
            by_memory.iter_mut().for_each(Vec::clear);
            wide.clear();
        }
        let stay = self.stay(task, nodes, places.as_deref());
        Task { modes, by_memory, wide, stay, switch_cost, places }
    }

    /// Whether a node of a kind among some places has the devices and the host memory for a mode.
    fn has_memory_for(&self, mode: &Mode, kind: usize, places: Option<&[bool]>) -> bool {
        mode.host == 0
            || self.nodes.iter().enumerate().any(|(index, node)| {
                let may = places.is_none_or(|places| places[index]);
                may && node.kind == kind && node.gpus >= mode.gpus && node.host >= mode.host
            })
    }

    /// The bytes of host memory of a strategy, where that binds.
    fn host(&self, strategy: &Candidate) -> u64 {
        if self.host_binds { strategy.host_bytes } else { 0 }
    }

    /// Devices of the largest node of a kind among some places.
    fn widest_of(&self, kind: usize, places: Option<&[bool]>) -> u32 {
        let Some(places) = places else { return self.widest[kind] };
        let of_kind =
            self.nodes.iter().zip(places).filter(|(node, may)| **may && node.kind == kind);
        of_kind.map(|(node, _)| node.gpus).max().unwrap_or(0)
    }

    /// The staying of a running task, if it is left alone where it may be.
    fn stay(
        &self,
        task: &ProblemTask,
        nodes: &BTreeMap<&str, usize>,
        places: Option<&[bool]>,
    ) -> Option<Stay> {
        let strategy = task.running_strategy()?;
        let held = &task.running.as_ref()?.placement;
        let part = |part: &HeldDevices| {
            let node = *nodes.get(part.node.as_str())?;
            Some(Placement { node, devices: part.devices.clone() })
        };
        let mut gang = held.iter().map(part).collect::<Option<Gang>>()?;
        if !gang.iter().all(|part| places.is_none_or(|places| places[part.node])) {
            return None;
        }
        gang.sort_by_key(|part| part.node);
        let kind = self.nodes[gang.first()?.node].kind;
        let of = &task.strategies[strategy];
        Some(Stay { strategy, gang, kind, runtime: of.runtime_s, host: self.host(of) })
    }

    /// All modes of a kind for nodes of at most `widest` devices, ascending in devices and then in
    /// runtime.
    fn narrow_modes(&self, name: &str, strategies: &[Candidate], widest: u32) -> Vec<Mode> {
        let mut modes: Vec<Mode> = (0u32..)
            .zip(strategies)
            .filter(|(_, one)| holds_on(one, name) && one.gpus <= widest)
            .map(|(strategy, one)| {
                let (gpus, runtime, host) = (one.gpus, one.runtime_s, self.host(one));
                Mode { gpus, runtime, strategy, host }
            })
            .collect();
        modes.sort_by(|left, right| {
            left.gpus.cmp(&right.gpus).then(left.runtime.total_cmp(&right.runtime))
        });
        modes
    }

    fn wide_modes(
        &self,
        kind: usize,
        name: &str,
        (strategies, cap): (&[Candidate], u32),
        narrow: &[Mode],
    ) -> Vec<WideMode> {
        let size = self.widest[kind];
        let is_uniform = size == self.narrowest[kind];
        let fits = |one: &Candidate| {
            one.gpus > self.widest[kind]
                && f64::from(one.gpus) <= self.capacity[kind]
                && one.most_held(self.narrowest[kind], size) <= cap
        };
        let mut modes: Vec<WideMode> = (0u32..)
            .zip(strategies)
            .filter(|(_, one)| holds_on(one, name) && fits(one))
            .map(|(strategy, one)| WideMode {
                gpus: one.gpus,
                held: if one.pack || !is_uniform {
                    one.gpus
                } else {
                    one.gpus.div_ceil(size) * size
                },
                runtime: one.runtime_s,
                strategy,
                kind,
                pack: one.pack,
                host: self.host(one),
            })
            .collect();
        modes.sort_by(|left, right| {
            left.gpus.cmp(&right.gpus).then(left.runtime.total_cmp(&right.runtime))
        });
        // A node of equal sizes holds any narrow gang that could replace a wide gang, unless that takes
        // more host memory.
        let narrow_best = if is_uniform && !self.host_binds {
            narrow.last().map_or(f64::INFINITY, |mode| mode.runtime)
        } else {
            f64::INFINITY
        };
        wide_pruned(modes, narrow_best)
    }

    /// Devices in all.
    pub(crate) fn num_gpus(&self) -> f64 {
        self.capacity.iter().sum()
    }

    /// The number of a task's cap among kinds and caps, if the cap may bind. Prices are numbered so.
    #[inline]
    pub(crate) fn cap_resource(&self, task: usize) -> Option<usize> {
        self.caps.of(task).map(|cap| self.num_kinds + cap)
    }

    /// How many devices gangs that count on a cap may hold at once at most: as many as it says, or as many
    /// as its running tasks hold if that is more.
    pub(crate) fn room_of(&self, cap: usize) -> f64 {
        let stays = self.caps.tasks_of(cap).filter_map(|task| self.tasks[task].stay.as_ref());
        f64::from(stays.map(Stay::held).sum::<u32>().max(self.caps.max_gpus[cap]))
    }

    /// Whether every gang fits into one node, so that nodes are independent of each other.
    pub(crate) fn is_separable(&self) -> bool {
        self.tasks.iter().all(|task| {
            task.wide.is_empty() && task.stay.as_ref().is_none_or(|stay| stay.home().is_some())
        })
    }

    /// The same with the runtimes of running tasks as they are without their switch costs.
    pub(crate) fn without_switch_costs(&self) -> Self {
        let mut raw = self.clone();
        for task in &mut raw.tasks {
            let cost = task.switch_cost;
            let with_memory = task.by_memory.iter_mut().flatten().flat_map(|(_, modes)| modes);
            for mode in task.modes.iter_mut().flatten().chain(with_memory) {
                mode.runtime -= cost;
            }
            task.wide.iter_mut().for_each(|mode| mode.runtime -= cost);
        }
        raw
    }

    /// Whether every task has a mode, or stays.
    pub(crate) fn has_modes(&self) -> bool {
        self.tasks.iter().all(|task| task.shapes().next().is_some())
    }

    /// Whether some task may not use all nodes.
    pub(crate) fn has_places(&self) -> bool {
        self.tasks.iter().any(|task| task.places.is_some())
    }

    /// Whether some task runs already.
    pub(crate) fn has_running(&self) -> bool {
        self.tasks.iter().any(|task| task.stay.is_some() || task.switch_cost > 0.0)
    }

    /// Modes of `task` that fit on `node`, where it may use that.
    #[inline]
    pub(crate) fn modes_on(&self, task: usize, node: usize) -> &[Mode] {
        let Node { gpus, kind, host } = self.nodes[node];
        let task = &self.tasks[task];
        if !task.may_use(node) {
            return &[];
        }
        let modes = if self.host_binds {
            let sizes = &task.by_memory[kind];
            match sizes.partition_point(|(least, _)| *least <= host).checked_sub(1) {
                Some(size) => &sizes[size].1,
                None => return &[],
            }
        } else {
            &task.modes[kind]
        };
        &modes[..modes.partition_point(|mode| mode.gpus <= gpus)]
    }

    /// One of the modes of `task` that fit on `node`.
    #[inline]
    pub(crate) fn mode_on(&self, task: usize, node: usize, index: usize) -> Mode {
        if self.host_binds {
            self.modes_on(task, node)[index]
        } else {
            self.tasks[task].modes[self.nodes[node].kind][index]
        }
    }

    /// Whether a node can be one of the nodes of a wide gang.
    #[inline]
    pub(crate) fn can_hold_part(&self, node: usize, mode: &WideMode) -> bool {
        let node = self.nodes[node];
        node.kind == mode.kind && node.host >= mode.host
    }
}
