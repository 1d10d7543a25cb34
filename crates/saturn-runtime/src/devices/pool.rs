//! The devices that a run holds on this machine, as nodes of one type each.

use std::collections::BTreeSet;

use saturn_core::Node;
use saturn_engine::{DeviceKind, MachineMemory};
use serde::{Deserialize, Serialize};

use crate::devices::claims::Claims;
use crate::devices::hardware::{Hardware, NodeHardware, processor};
use crate::devices::host_memory;

/// One device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Device {
    /// A CPU slot, with the core that it is pinned to.
    Core(usize),
    /// A GPU.
    Gpu {
        /// Its UUID.
        uuid: String,
        /// Its memory, bytes.
        memory_bytes: u64,
    },
}

/// A node: devices of one type.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PoolNode {
    pub(super) node: Node,
    pub(super) devices: Vec<Device>,
}

/// The devices that a run holds. Other runs can't take them while this lives.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(super) kind: DeviceKind,
    pub(super) nodes: Vec<PoolNode>,
    /// Warnings that a person should read before trusting measurements on these devices.
    pub(super) warnings: Vec<String>,
    pub(super) claims: Claims,
}

/// What a pool is, for another process that holds its devices too.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PoolDescription {
    kind: DeviceKind,
    nodes: Vec<PoolNode>,
    warnings: Vec<String>,
}

impl Pool {
    /// What this pool is.
    pub(crate) fn describe(&self) -> PoolDescription {
        let Self { kind, nodes, warnings, .. } = self;
        PoolDescription { kind: *kind, nodes: nodes.clone(), warnings: warnings.clone() }
    }

    /// The pool of this description, whose devices this process holds by these claims.
    pub(crate) fn of(description: PoolDescription, claims: Claims) -> Self {
        let PoolDescription { kind, nodes, warnings } = description;
        Self { kind, nodes, warnings, claims }
    }

    /// The locks on these devices.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The kind of these devices.
    pub(crate) fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// A description of these devices.
    pub(crate) fn hardware(&self) -> Hardware {
        self.hardware_with(host_memory::of_machine())
    }

    /// The same, if the machine has this much memory beside that of its devices.
    pub(super) fn hardware_with(&self, memory: Option<MachineMemory>) -> Hardware {
        let all = self.nodes.iter().map(|one| one.node.gpus).sum();
        let uuid = |device: &Device| match device {
            Device::Core(_) => None,
            Device::Gpu { uuid, .. } => Some(uuid.clone()),
        };
        let nodes = self.nodes.iter().map(|PoolNode { node, devices }| NodeHardware {
            node: node.clone(),
            gpus: devices.iter().filter_map(uuid).collect(),
            device_memory_bytes: self.memory_bytes(&node.gpu_type),
            host_memory_bytes: memory.map(|memory| match self.nodes.len() {
                1 => memory,
                _ => memory.shared(node.gpus, all),
            }),
            text: match self.kind {
                DeviceKind::Cuda => node.gpu_type.clone(),
                DeviceKind::Cpu => format!("{}, {}", processor(), self.slots()),
            },
        });
        Hardware { kind: self.kind, nodes: nodes.collect(), warnings: self.warnings.clone() }
    }

    /// How processors are cut into slots, in words. Timings are valid only for the same cut.
    fn slots(&self) -> String {
        let slots: Vec<&Device> = self.nodes.iter().flat_map(|node| &node.devices).collect();
        let cores: BTreeSet<usize> = slots
            .iter()
            .filter_map(|device| if let Device::Core(core) = device { Some(*core) } else { None })
            .collect();
        if slots.len() > cores.len() {
            format!("{} slots on {} cores", slots.len(), cores.len())
        } else {
            "1 thread a slot".to_owned()
        }
    }

    /// A device of a node, by its number within the node.
    pub(crate) fn device(&self, node: &Node, number: u32) -> Option<&Device> {
        let same =
            |one: &&PoolNode| one.node.name == node.name && one.node.gpu_type == node.gpu_type;
        self.nodes.iter().find(same)?.devices.get(number as usize)
    }

    /// The memory of the smallest device of a type, bytes; `None` if it is unknown.
    pub(crate) fn memory_bytes(&self, gpu_type: &str) -> Option<u64> {
        let nodes = self.nodes.iter().filter(|node| node.node.gpu_type == gpu_type);
        let known = nodes.flat_map(|node| &node.devices).filter_map(|device| match device {
            Device::Core(_) => None,
            Device::Gpu { memory_bytes, .. } => Some(*memory_bytes),
        });
        known.min()
    }
}
