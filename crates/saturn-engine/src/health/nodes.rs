//! Nodes that join and go, and what becomes of the gangs on them.

use saturn_core::{Cluster, Node};

use crate::facts::ids::{AttemptId, NodeId};
use crate::facts::machines::MachineMemory;
use crate::facts::record::Record;
use crate::health::devices::forget_abandoned_on;
use crate::health::memory::Health;
use crate::ledger::book::Ledger;

/// Makes the pool consist of these nodes.
pub(crate) fn pool_is(ledger: &mut Ledger, health: &mut Health, cluster: Cluster, now_s: f64) {
    let gone: Vec<String> = ledger
        .state
        .present_nodes()
        .map(|node| ledger.state.cluster.nodes[node.0].clone())
        .filter(|node| {
            !cluster.nodes.iter().any(|one| one.name == node.name && one.gpu_type == node.gpu_type)
        })
        .map(|node| node.name)
        .collect();
    for name in gone {
        node_left(ledger, health, &name, "it is not there any more", now_s);
    }
    for spec in cluster.nodes {
        let by_node = &ledger.state.config.policy.host_memory_by_node;
        let host_memory_bytes = by_node.get(&spec.name).copied();
        node_joined(ledger, health, spec, host_memory_bytes, now_s);
    }
}

/// A node joins. A node with the name and type of an earlier node is that node, come back.
pub(crate) fn node_joined(
    ledger: &mut Ledger,
    health: &mut Health,
    spec: Node,
    host_memory_bytes: Option<MachineMemory>,
    now_s: f64,
) {
    let nodes = &ledger.state.cluster.nodes;
    let known = nodes
        .iter()
        .position(|node| node.name == spec.name && node.gpu_type == spec.gpu_type)
        .map(NodeId);
    if let Some(node) = known
        && ledger.state.nodes[node.0].is_there
    {
        if ledger.state.cluster.nodes[node.0] == spec {
            return;
        }
        let name = spec.name.clone();
        node_left(ledger, health, &name, "it has other devices now", now_s);
    }
    let node = known.unwrap_or(NodeId(ledger.state.nodes.len()));
    ledger.commit(Record::NodeJoined { node, spec, host_memory_bytes }, now_s);
}

pub(crate) fn node_left(
    ledger: &mut Ledger,
    health: &mut Health,
    name: &str,
    reason: &str,
    now_s: f64,
) {
    let gone: Vec<NodeId> = ledger
        .state
        .present_nodes()
        .filter(|node| ledger.state.cluster.nodes[node.0].name == name)
        .collect();
    for node in gone {
        let lost: Vec<AttemptId> = ledger
            .state
            .attempts
            .iter()
            .filter(|(_, attempt)| attempt.devices().any(|device| device.node == node))
            .map(|(id, _)| *id)
            .collect();
        for attempt in lost {
            if ledger.state.attempts[&attempt].devices().all(|device| device.node == node) {
                ledger.lose(attempt, now_s);
                continue;
            }
            // Ranks on other nodes live on: the gang is over once they are reaped too.
            ledger.kill(attempt, now_s);
        }
        forget_abandoned_on(health, node);
        health.blame.forget(|device| device.node == node);
        health.outside.forget(node);
        ledger.commit(Record::NodeLeft { node, reason: reason.to_owned() }, now_s);
    }
}
