//! Keeps up what each node has free, after its devices, its attempts, or what is known of their
//! groups have changed.
//!
//! A change of attempts costs a look at their own nodes. Only what changes every node, such as a
//! limit of memory, costs a look at every node.

use std::collections::BTreeSet;

use saturn_core::Gang;

use crate::facts::ids::NodeId;
use crate::state::device::Occupancy;
use crate::state::run::State;

impl State {
    /// Brings a node's figures up to date.
    pub(crate) fn learn_occupancy(&mut self, node: NodeId) {
        if node.0 < self.nodes.len() {
            self.set_occupancy(node, self.occupancy_of(node));
        }
    }

    /// Forgets what the attempts of a node leave there, before another node takes its number.
    pub(crate) fn forget_occupancy(&mut self, node: NodeId) {
        if node.0 < self.nodes.len() {
            self.set_occupancy(node, Occupancy::default());
        }
    }

    fn set_occupancy(&mut self, node: NodeId, occupancy: Occupancy) {
        self.soon_free.add(&occupancy);
        let before = std::mem::replace(&mut self.nodes[node.0].occupancy, occupancy);
        self.soon_free.remove(&before);
    }

    /// Brings the figures of a gang's nodes up to date.
    pub(crate) fn learn_occupancy_under(&mut self, gang: &Gang) {
        for part in gang {
            self.learn_occupancy(NodeId(part.node));
        }
    }

    /// Brings the figures of every node up to date.
    pub(crate) fn learn_all_occupancy(&mut self) {
        for node in 0..self.nodes.len() {
            self.learn_occupancy(NodeId(node));
        }
    }

    /// A node has come, with devices and host memory of its own. A damaged journal may have another
    /// node of its name, or attempts that were there before.
    pub(crate) fn learn_occupancy_of_joined(&mut self, id: NodeId) {
        let Some(spec) = self.cluster.nodes.get(id.0) else { return };
        let named = self.cluster.nodes.iter().enumerate();
        let named = named.filter(|(_, one)| one.name == spec.name).map(|(node, _)| node);
        let wide = self
            .attempts
            .values()
            .map(|attempt| &attempt.gang)
            .filter(|gang| gang.len() > 1 && gang.iter().any(|part| part.node == id.0));
        let under = wide.flatten().map(|part| part.node);
        for node in named.chain(under).collect::<BTreeSet<usize>>() {
            self.learn_occupancy(NodeId(node));
        }
    }

    /// What is known of a group has changed, and so the host memory that its attempts are expected
    /// to take.
    pub(crate) fn learn_occupancy_of_group(&mut self, group: usize) {
        let policy = &self.config.policy;
        if policy.host_memory_bytes.is_none() && policy.host_memory_by_node.is_empty() {
            return;
        }
        let gangs = self.attempts_of_group(group).flat_map(|attempt| &attempt.gang);
        let nodes: BTreeSet<usize> = gangs.map(|part| part.node).collect();
        for node in nodes {
            self.learn_occupancy(NodeId(node));
        }
    }
}
