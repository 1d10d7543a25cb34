//! How wide gangs may be: within a node, and across several.
//!
//! Of each type of device there is a *node width*: the devices of the largest node of the type that the
//! run has had. A strategy of as many devices or fewer is for one node, and waits for such a node where
//! none is there; one of more is *wide* and takes several, all of them whole but for one at most. What
//! was measured on one side of the width says nothing of the other, where a network is in between: when
//! the width grows, outcomes that change sides are forgotten.

use saturn_core::Gang;

use crate::facts::ids::{NodeId, TaskId};
use crate::state::run::State;

/// Device counts that are all tried; beyond, neighbours differ little and every trial costs time.
const ALL_UP_TO: u32 = 8;

/// The devices of a type in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Breadth {
    /// The type.
    pub(crate) gpu_type: String,
    /// The type's node width.
    pub(crate) node_width: u32,
    /// Devices of each of the nodes that a gang may take, most first.
    pub(crate) nodes: Vec<u32>,
    /// How many nodes a gang may take at most.
    max_nodes: u32,
}

impl Breadth {
    /// Whether there are nodes for a gang.
    pub(crate) fn holds(&self, gpus: u32) -> bool {
        if gpus <= self.node_width {
            self.nodes.first().is_some_and(|widest| *widest >= gpus)
        } else {
            gpus <= self.most()
        }
    }

    /// Devices of the widest gang.
    fn most(&self) -> u32 {
        self.nodes.iter().take(self.max_nodes as usize).sum()
    }

    /// Device counts to try: all up to 8, then powers of two and whole nodes, one, two, four of them and
    /// so on, and all.
    pub(crate) fn counts(&self) -> Vec<u32> {
        let widest = self.nodes.first().copied().unwrap_or(0);
        let most = self.most();
        let is_of_node =
            |gpus: &u32| *gpus <= ALL_UP_TO || gpus.is_power_of_two() || *gpus == widest;
        let mut counts: Vec<u32> = (1..=widest).filter(is_of_node).collect();
        counts.extend((self.node_width + 1..=most).take_while(|gpus| *gpus <= ALL_UP_TO));
        let num_nodes = self.nodes.len().min(self.max_nodes as usize);
        let mut held = 0;
        for (number, gpus) in (1..=num_nodes).zip(&self.nodes) {
            held += gpus;
            if number > 1
                && held > self.node_width
                && (number.is_power_of_two() || number == num_nodes)
            {
                counts.push(held);
            }
        }
        counts.sort_unstable();
        counts.dedup();
        counts
    }
}

/// Of some types of device, whether there are nodes for a gang.
pub(crate) fn holds(pool: &[Breadth], gpu_type: &str, gpus: u32) -> bool {
    pool.iter().any(|one| one.gpu_type == gpu_type && one.holds(gpus))
}

impl State {
    /// Whether a gang of so many devices of a type takes several nodes.
    pub fn is_wide(&self, gpu_type: &str, gpus: u32) -> bool {
        self.node_widths.get(gpu_type).is_some_and(|width| gpus > *width)
    }

    /// The node width of a type, where a gang of so many devices takes several nodes.
    pub fn exceeded_width(&self, gpu_type: &str, gpus: u32) -> Option<u32> {
        self.node_widths.get(gpu_type).copied().filter(|width| gpus > *width)
    }

    /// Whether a task that has not ended may take several nodes.
    pub(crate) fn may_span_nodes(&self) -> bool {
        self.config.policy.max_nodes > 1
            && self.open_tasks.iter().any(|task| {
                self.choices(*task)
                    .any(|choice| self.is_wide(choice.gpu_type, choice.trial.strategy.gpus))
            })
    }

    /// What there is of each type, in the order in which nodes came; `devices` says how many a node has.
    pub(crate) fn breadths(&self, devices: impl Fn(NodeId) -> u32) -> Vec<Breadth> {
        let mut found: Vec<Breadth> = Vec::new();
        for id in self.present_nodes() {
            let (gpu_type, gpus) = (self.gpu_type(id), devices(id));
            if gpus == 0 {
                continue;
            }
            match found.iter_mut().find(|one| one.gpu_type == gpu_type) {
                Some(one) => one.nodes.push(gpus),
                None => found.push(Breadth {
                    gpu_type: gpu_type.to_owned(),
                    node_width: self.node_widths.get(gpu_type).copied().unwrap_or(gpus),
                    nodes: vec![gpus],
                    max_nodes: self.config.policy.max_nodes,
                }),
            }
        }
        for one in &mut found {
            one.nodes.sort_unstable_by(|a, b| b.cmp(a));
            // No gang takes more nodes than that.
            one.nodes.truncate(one.max_nodes as usize);
        }
        found
    }

    /// Nodes or devices have come or gone: brings up to date what of each type can be used.
    pub(crate) fn learn_usable_breadths(&mut self) {
        let usable = |node| u32::try_from(self.usable_devices(node).count()).unwrap_or(u32::MAX);
        self.usable_breadths = self.breadths(usable);
    }

    /// Whether the pool has the devices for a gang, on one node or on several as it needs.
    pub fn has_nodes_for(&self, gpu_type: &str, gpus: u32) -> bool {
        holds(&self.usable_breadths, gpu_type, gpus)
    }

    /// Whether a gang is of the shape that so many devices take: on one node, or on several.
    pub(crate) fn has_shape_for(&self, gang: &Gang, gpus: u32) -> bool {
        let held: usize = gang.iter().map(|part| part.devices.len()).sum();
        let mut nodes: Vec<usize> = gang.iter().map(|part| part.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let gpu_type = self.gang_type(gang);
        let may_take = if self.is_wide(gpu_type, gpus) { self.config.policy.max_nodes } else { 1 };
        held == gpus as usize
            && nodes.len() == gang.len()
            && (1..=may_take as usize).contains(&gang.len())
            && gang.iter().all(|part| self.gpu_type(NodeId(part.node)) == gpu_type)
    }

    /// Brings node widths up to date; forgets outcomes that no longer say what they said. A width only
    /// grows: what was measured on a large node waits for one like it where smaller ones are left.
    pub(crate) fn learn_node_widths(&mut self) {
        let mut widths = self.node_widths.clone();
        for node in &self.cluster.nodes {
            let width = widths.entry(node.gpu_type.clone()).or_default();
            *width = node.gpus.max(*width);
        }
        let before = std::mem::replace(&mut self.node_widths, widths);
        if self.config.policy.max_nodes < 2 {
            return; // no gang is wide
        }
        let mut is_grown = false;
        for (gpu_type, old) in before {
            let new = self.node_widths.get(&gpu_type).copied().unwrap_or(old);
            if old < new {
                self.forget_outcomes(&gpu_type, old + 1..=new);
                is_grown = true;
            }
        }
        if is_grown {
            let wide = self.open_places().filter(|(_, place)| place.gang.len() > 1);
            let tasks: Vec<TaskId> = wide.map(|(_, place)| place.task).collect();
            self.close_places_of(tasks);
        }
    }

    /// Forgets what was found of strategies; what tasks brought with them is looked at anew.
    fn forget_outcomes(&mut self, gpu_type: &str, counts: std::ops::RangeInclusive<u32>) {
        for group in &mut self.groups {
            group.inspection.found = None;
            for (key, trial) in &mut group.trials {
                if key.gpu_type == gpu_type && counts.contains(&key.strategy.gpus) {
                    trial.outcome = None;
                    trial.reused = false;
                    trial.trained_step_s = None;
                    trial.trained = None;
                    trial.trained_load_s = None;
                    trial.trained_evaluation_s = None;
                }
            }
            group.learn();
        }
        for task in self.task_ids() {
            let spec = self.task(task).spec.clone();
            self.take_over_measured(self.task(task).group, &spec);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breadth(nodes: &[u32], max_nodes: u32) -> Breadth {
        let gpu_type = "fast".to_owned();
        Breadth { gpu_type, node_width: nodes[0], nodes: nodes.to_vec(), max_nodes }
    }

    #[test]
    fn counts_are_those_of_a_node_and_then_of_whole_nodes_and_few_odd_ones() {
        assert_eq!(breadth(&[2, 2], 9).counts(), [1, 2, 3, 4]);
        assert_eq!(breadth(&[5, 5], 9).counts(), [1, 2, 3, 4, 5, 6, 7, 8, 10]);
        assert_eq!(breadth(&[8; 5], 9).counts(), [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 40]);
        assert_eq!(breadth(&[8; 5], 2).counts(), [1, 2, 3, 4, 5, 6, 7, 8, 16]);
        assert_eq!(breadth(&[8, 4], 1).counts(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(breadth(&[12, 4], 2).counts(), [1, 2, 3, 4, 5, 6, 7, 8, 12, 16]);
    }

    #[test]
    fn a_gang_that_fits_a_node_waits_for_one_and_a_wide_one_for_several() {
        let mut left = breadth(&[4, 4], 2);
        left.node_width = 8; // the node of 8 has gone
        assert!(left.holds(4) && !left.holds(6) && !left.holds(8) && !left.holds(9));
        assert!(breadth(&[4, 4, 4], 3).holds(12) && !breadth(&[4, 4, 4], 2).holds(12));
    }
}
