//! Questions about the nodes and devices that there are, and about the gangs that they can hold.

use std::collections::BTreeSet;

use saturn_core::Gang;

use crate::facts::ids::{AttemptId, DeviceId, NodeId, devices};
use crate::state::attempt::Attempt;
use crate::state::breadth::{Breadth, holds};
use crate::state::device::DeviceState;
use crate::state::run::State;

impl State {
    /// The type of a node's devices.
    pub fn gpu_type(&self, node: NodeId) -> &str {
        self.cluster.nodes.get(node.0).map_or("", |node| node.gpu_type.as_str())
    }

    /// The type of a gang's devices.
    pub fn gang_type(&self, gang: &Gang) -> &str {
        gang.first().map_or("", |placement| self.gpu_type(NodeId(placement.node)))
    }

    /// What is known of a device; `None` where there is none of that number.
    pub fn device(&self, id: DeviceId) -> Option<&DeviceState> {
        self.nodes.get(id.node.0)?.devices.get(id.device as usize)
    }

    /// Whether a device is in the pool and not set aside.
    pub fn is_usable(&self, id: DeviceId) -> bool {
        let is_there = self.nodes.get(id.node.0).is_some_and(|node| node.is_there);
        is_there && self.device(id).is_some_and(|device| device.set_aside.is_none())
    }

    /// Whether a device is usable and held by no attempt.
    pub fn is_free(&self, id: DeviceId) -> bool {
        self.is_usable(id) && self.device(id).is_some_and(|device| device.held_by.is_none())
    }

    /// Whether all of a gang's devices are usable.
    pub fn can_hold(&self, gang: &Gang) -> bool {
        devices(gang).all(|device| self.is_usable(device))
    }

    /// Usable devices of a node, ascending.
    pub fn usable_devices(&self, node: NodeId) -> impl Iterator<Item = u32> + '_ {
        let state = self.nodes.get(node.0).filter(|node| node.is_there);
        state.into_iter().flat_map(|node| {
            let numbered = (0u32..).zip(&node.devices);
            numbered.filter(|(_, one)| one.set_aside.is_none()).map(|(device, _)| device)
        })
    }

    /// Attempts that hold devices of a node.
    pub(crate) fn attempts_on(&self, node: NodeId) -> BTreeSet<AttemptId> {
        let devices = self.nodes.get(node.0).map_or(&[][..], |node| &node.devices);
        devices.iter().filter_map(|device| device.held_by).collect()
    }

    /// Ids of the nodes in the pool.
    pub fn present_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_there).map(|(id, _)| NodeId(id))
    }

    /// Usable devices in all.
    pub fn num_devices(&self) -> usize {
        self.present_nodes().map(|node| self.usable_devices(node).count()).sum()
    }

    /// Whether a gang of so many devices of a type takes several nodes.
    pub fn is_wide(&self, gpu_type: &str, gpus: u32) -> bool {
        self.node_widths.get(gpu_type).is_some_and(|width| gpus > *width)
    }

    /// The node width of a type, where a gang of so many devices takes several nodes.
    pub fn exceeded_width(&self, gpu_type: &str, gpus: u32) -> Option<u32> {
        self.node_widths.get(gpu_type).copied().filter(|width| gpus > *width)
    }

    /// The devices of each type, in the order in which nodes came; `devices` says how many a node
    /// has.
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

    /// Whether the pool has the devices for a gang, on one node or on several as it needs.
    pub fn has_nodes_for(&self, gpu_type: &str, gpus: u32) -> bool {
        holds(&self.usable_breadths, gpu_type, gpus)
    }

    /// Whether an attempt's gang still has the shape of its strategy. A gang on several nodes has it
    /// no longer once a node has come that is wide enough: its pace says nothing of a gang there.
    pub(crate) fn is_in_shape(&self, attempt: &Attempt) -> bool {
        self.has_shape_for(&attempt.gang, attempt.strategy.gpus)
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
}
