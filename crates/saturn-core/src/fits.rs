//! Whether each task of a problem fits its cluster at all, regardless of times and of other tasks.

use std::collections::BTreeMap;

use crate::problem::{Candidate, Node, Problem, ProblemTask};

/// The devices that a task may use.
struct Pool<'a> {
    /// For each type: all devices that the task may use, the widest node among those, and the
    /// widest node of the type in the whole cluster.
    types: BTreeMap<&'a str, Devices>,
    is_restricted: bool,
}

#[derive(Default)]
struct Devices {
    total: u32,
    widest: u32,
    widest_of_all: u32,
}

impl<'a> Pool<'a> {
    /// The devices of the nodes among `places`, or of all nodes.
    fn new(nodes: &'a [Node], places: Option<&[bool]>) -> Self {
        let mut types: BTreeMap<&str, Devices> = BTreeMap::new();
        let mut is_restricted = false;
        for (index, node) in nodes.iter().enumerate() {
            let devices = types.entry(&node.gpu_type).or_default();
            devices.widest_of_all = devices.widest_of_all.max(node.gpus);
            if places.is_none_or(|places| places[index]) {
                devices.total += node.gpus;
                devices.widest = devices.widest.max(node.gpus);
            } else {
                is_restricted = true;
            }
        }
        Self { types, is_restricted }
    }

    fn holds(&self, strategy: &Candidate) -> bool {
        let fits = |devices: &Devices| {
            // A gang may take several nodes only if it is wider than every node of its type.
            let is_wide = strategy.gpus > devices.widest_of_all;
            strategy.gpus <= if is_wide { devices.total } else { devices.widest }
        };
        match &strategy.gpu_type {
            Some(wanted) => self.types.get(&**wanted).is_some_and(fits),
            None => self.types.values().any(fits),
        }
    }

    fn described(&self) -> String {
        let listed: Vec<String> = self
            .types
            .iter()
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
        let all = Pool::new(nodes, None);
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
                let own = places.map(|places| Pool::new(nodes, Some(&places)));
                let pool = own.as_ref().unwrap_or(&all);
                if task.strategies.iter().any(|strategy| pool.holds(strategy)) {
                    return None;
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
