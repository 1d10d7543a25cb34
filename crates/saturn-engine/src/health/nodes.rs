//! Nodes that join and go, and what becomes of the gangs on them.

use saturn_core::{Cluster, Node};

use crate::engine::turn::Engine;
use crate::facts::ids::{AttemptId, NodeId};
use crate::facts::record::Record;

impl Engine {
    /// The pool is this and nothing else.
    pub(crate) fn pool_is(&mut self, cluster: Cluster, now_s: f64) {
        let gone: Vec<String> = self
            .state
            .present_nodes()
            .map(|node| self.state.cluster.nodes[node.0].clone())
            .filter(|node| {
                !cluster
                    .nodes
                    .iter()
                    .any(|one| one.name == node.name && one.gpu_type == node.gpu_type)
            })
            .map(|node| node.name)
            .collect();
        for name in gone {
            self.node_left(&name, "it is not there any more", now_s);
        }
        for spec in cluster.nodes {
            self.node_joined(spec, now_s);
        }
    }

    /// A node joins. One of the name and type of an earlier one is that one, come back.
    pub(crate) fn node_joined(&mut self, spec: Node, now_s: f64) {
        let nodes = &self.state.cluster.nodes;
        let known = nodes
            .iter()
            .position(|node| node.name == spec.name && node.gpu_type == spec.gpu_type)
            .map(NodeId);
        if let Some(node) = known
            && self.state.nodes[node.0].is_there
        {
            if self.state.cluster.nodes[node.0] == spec {
                return;
            }
            let name = spec.name.clone();
            self.node_left(&name, "it has other devices now", now_s);
        }
        let node = known.unwrap_or(NodeId(self.state.nodes.len()));
        self.commit(Record::NodeJoined { node, spec }, now_s);
    }

    pub(crate) fn node_left(&mut self, name: &str, reason: &str, now_s: f64) {
        let gone: Vec<NodeId> = self
            .state
            .present_nodes()
            .filter(|node| self.state.cluster.nodes[node.0].name == name)
            .collect();
        for node in gone {
            let lost: Vec<AttemptId> = self
                .state
                .attempts
                .iter()
                .filter(|(_, attempt)| attempt.devices().any(|device| device.node == node))
                .map(|(id, _)| *id)
                .collect();
            for attempt in lost {
                if self.state.attempts[&attempt].devices().all(|device| device.node == node) {
                    self.lose(attempt, now_s);
                    continue;
                }
                // Ranks on other nodes live on: the gang is over once they are reaped too.
                self.kill(attempt, now_s);
            }
            self.forget_abandoned_on(node);
            self.commit(Record::NodeLeft { node, reason: reason.to_owned() }, now_s);
        }
    }
}
