//! Whether each task of a problem fits its cluster at all, regardless of times and of other tasks.

use crate::problem::{Candidate, Node, Problem, ProblemTask};

/// The GPU types of a cluster, looked up once for all tasks: in a large cluster each look-up counts.
struct Types<'a> {
    /// In the order of their names.
    names: Vec<&'a str>,
    /// The type and the devices of each node.
    of_node: Vec<(usize, u32)>,
    nodes: &'a [Node],
    /// Whether some node has only so much host memory.
    has_limits: bool,
}

impl<'a> Types<'a> {
    fn new(nodes: &'a [Node]) -> Self {
        let mut names: Vec<&str> = nodes.iter().map(|node| &*node.gpu_type).collect();
        names.sort_unstable();
        names.dedup();
        let of_node = nodes
            .iter()
            .map(|node| (names.partition_point(|name| *name < &*node.gpu_type), node.gpus))
            .collect();
        let has_limits = nodes.iter().any(|node| node.host_memory_bytes.is_some());
        Self { names, of_node, nodes, has_limits }
    }
}

/// The devices that a task may use.
struct Pool<'a> {
    types: &'a Types<'a>,
    /// For each type: all devices that the task may use, the widest node among those, and the
    /// narrowest and the widest node of the type in the whole cluster.
    devices: Vec<Devices>,
    is_restricted: bool,
    /// Whether the task may use each node; `None` if it may use all.
    places: Option<&'a [bool]>,
}

#[derive(Default, Clone)]
struct Devices {
    total: u32,
    widest: u32,
    narrowest_of_all: u32,
    widest_of_all: u32,
}

impl Devices {
    /// A gang may take several nodes only if it is wider than every node of its type.
    fn hold(&self, strategy: &Candidate) -> bool {
        let is_wide = strategy.gpus > self.widest_of_all;
        strategy.gpus <= if is_wide { self.total } else { self.widest }
    }
}

impl<'a> Pool<'a> {
    /// The devices of the nodes among `places`, or of all nodes.
    fn new(types: &'a Types<'a>, places: Option<&'a [bool]>) -> Self {
        let mut all = vec![Devices::default(); types.names.len()];
        let mut is_restricted = false;
        for (index, (kind, gpus)) in types.of_node.iter().enumerate() {
            let devices = &mut all[*kind];
            let narrowest = devices.narrowest_of_all;
            devices.narrowest_of_all = if narrowest == 0 { *gpus } else { narrowest.min(*gpus) };
            devices.widest_of_all = devices.widest_of_all.max(*gpus);
            if places.is_none_or(|places| places[index]) {
                devices.total += gpus;
                devices.widest = devices.widest.max(*gpus);
            } else {
                is_restricted = true;
            }
        }
        Self { types, devices: all, is_restricted, places }
    }

    /// Whether nodes with enough host memory for a strategy hold it. A running task has its memory
    /// already, and may stay where it is.
    fn has_host_memory(&self, strategy: &Candidate) -> bool {
        if strategy.host_bytes == 0 || !self.types.has_limits {
            return true;
        }
        let mut totals = vec![0; self.types.names.len()];
        let nodes = self.types.nodes.iter().zip(&self.types.of_node).enumerate();
        let mut usable = nodes.filter(|(index, (node, _))| {
            self.places.is_none_or(|places| places[*index])
                && strategy.host_bytes <= node.host_memory()
                && strategy.gpu_type.as_deref().is_none_or(|wanted| wanted == node.gpu_type)
        });
        usable.any(|(_, (node, (kind, _)))| {
            totals[*kind] += node.gpus;
            let is_wide = strategy.gpus > self.devices[*kind].widest_of_all;
            strategy.gpus <= if is_wide { totals[*kind] } else { node.gpus }
        })
    }

    fn holds(&self, strategy: &Candidate) -> bool {
        self.kinds_of(strategy).any(|devices| devices.hold(strategy))
    }

    /// Whether it holds a strategy, and a gang of it keeps a cap on whichever nodes.
    fn holds_under(&self, strategy: &Candidate, cap: u32) -> bool {
        let keeps = |devices: &Devices| {
            strategy.most_held(devices.narrowest_of_all, devices.widest_of_all) <= cap
        };
        self.kinds_of(strategy).any(|devices| devices.hold(strategy) && keeps(devices))
    }

    /// The devices of the types that a strategy is for.
    fn kinds_of(&self, strategy: &Candidate) -> impl Iterator<Item = &Devices> {
        let wanted = strategy.gpu_type.as_deref();
        let is_for = move |name: &str| wanted.is_none_or(|wanted| wanted == name);
        let named = self.types.names.iter().zip(&self.devices);
        named.filter(move |(name, _)| is_for(name)).map(|(_, devices)| devices)
    }

    fn described(&self) -> String {
        let listed: Vec<String> = self
            .types
            .names
            .iter()
            .zip(&self.devices)
            .filter(|(_, devices)| devices.total > 0)
            .map(|(kind, devices)| format!("{} of `{kind}`", devices.total))
            .collect();
        match (self.is_restricted, listed.is_empty()) {
            (false, _) => format!("the cluster has {}", listed.join(", ")),
            (true, false) => format!("the nodes that it may use have {}", listed.join(", ")),
            (true, true) => "it may use no node".to_owned(),
        }
    }
}

impl Problem {
    /// The tasks that can't be placed, as (index, why). A task fits the cluster under none of its
    /// strategies, or it runs on a node that it may not use and can't be moved.
    pub fn unplaceable(&self) -> Vec<(usize, String)> {
        let nodes = &self.cluster.nodes;
        let indices = self.cluster.node_indices();
        // Tasks that may use all nodes share this pool.
        let types = Types::new(nodes);
        let all = Pool::new(&types, None);
        let why = |task: &ProblemTask| match &task.running {
            Some(running) if !running.movable => {
                let held = running.placement.iter().find(|held| !task.may_use(&held.node))?;
                Some(format!(
                    "runs on node `{}`, which it may not use, and can't be moved",
                    held.node
                ))
            }
            _ => {
                let places = task.places(&indices, nodes.len());
                let own = places.as_deref().map(|places| Pool::new(&types, Some(places)));
                let pool = own.as_ref().unwrap_or(&all);
                let held = || task.strategies.iter().filter(|strategy| pool.holds(strategy));
                let owner = self.owner(task);
                let keeps_cap = |one: &Candidate| {
                    owner.is_none_or(|owner| pool.holds_under(one, owner.max_gpus))
                };
                let is_running = task.running.is_some();
                if held().any(|one| is_running || pool.has_host_memory(one) && keeps_cap(one)) {
                    return None;
                }
                if let Some(owner) = owner.filter(|_| held().any(|one| pool.has_host_memory(one))) {
                    let least = held().map(|one| one.gpus).min().unwrap_or(0);
                    return Some(format!(
                        "takes at least {least} GPUs; `{}` may hold {} at once",
                        owner.name, owner.max_gpus
                    ));
                }
                if let Some(least) = held().map(|one| one.host_bytes).min() {
                    return Some(format!(
                        "takes at least {least} bytes of host memory; no node that could hold it has \
                         so many"
                    ));
                }
                let mut needs: Vec<String> = task.strategies.iter().map(need).collect();
                needs.dedup();
                Some(format!("needs {}; {}", needs.join(" or "), pool.described()))
            }
        };
        let tasks = self.tasks.iter().enumerate();
        tasks.filter_map(|(index, task)| Some((index, why(task)?))).collect()
    }
}

fn need(strategy: &Candidate) -> String {
    let gpus = strategy.gpus;
    let noun = if gpus == 1 { "GPU" } else { "GPUs" };
    match &strategy.gpu_type {
        Some(kind) => format!("{gpus} {noun} of type `{kind}` (`{}`)", strategy.technique),
        None => format!("{gpus} {noun} of one type (`{}`)", strategy.technique),
    }
}
