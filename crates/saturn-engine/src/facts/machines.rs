//! The machines of a run and their memory, of which some may differ when the run is resumed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::config::{DeviceKind, Policy, RunConfig, yes};

/// What the machines of a run are, as far as the present process can tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machines {
    /// What their devices are.
    pub device_kind: DeviceKind,
    /// [`Policy::host_memory_bytes`].
    pub host_memory_bytes: Option<u64>,
    /// [`Policy::host_memory_by_node`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_memory_by_node: BTreeMap<String, MachineMemory>,
    /// Whether nodes may join. If so, a task that needs a wider node than the pool has waits.
    #[serde(default = "yes")]
    pub pool_may_grow: bool,
    /// [`Policy::hardware`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hardware: BTreeMap<String, String>,
}

/// The memory of a node's machine, beside the memory of its devices.
///
/// What other programs hold at a moment may be free an hour later. So attempts wait for each other by
/// what is available, but only what is more than the machine has can never run. A machine with
/// several types of GPUs is several nodes, which share its memory by their numbers of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct MachineMemory {
    /// How much attempts on the node may take together, bytes: its share of what was available when
    /// somebody looked.
    pub available_bytes: u64,
    /// How much the whole machine has when it is idle, or its control group allows, bytes.
    pub total_bytes: u64,
    /// The devices of the node.
    pub devices: u32,
    /// The devices of all nodes of the machine.
    pub devices_of_machine: u32,
}

impl MachineMemory {
    /// The share of a node with so many of the machine's devices.
    #[must_use]
    pub fn shared(self, devices: u32, devices_of_machine: u32) -> Self {
        let whole = Self { devices, devices_of_machine, ..self };
        Self { available_bytes: whole.share_of(self.available_bytes), ..whole }
    }

    /// The node's share of so many bytes of its machine.
    pub(crate) fn share_of(self, bytes: u64) -> u64 {
        let share = u128::from(bytes) * u128::from(self.devices)
            / u128::from(self.devices_of_machine.max(1));
        u64::try_from(share).unwrap_or(u64::MAX).min(bytes)
    }
}

impl From<u64> for MachineMemory {
    /// A machine that is one node, and idle but for its attempts.
    fn from(bytes: u64) -> Self {
        Self { available_bytes: bytes, total_bytes: bytes, devices: 1, devices_of_machine: 1 }
    }
}

/// A machine's memory, as it is stored. Earlier versions know only what is available.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Available(u64),
    All {
        available_bytes: u64,
        total_bytes: u64,
        #[serde(default = "one", skip_serializing_if = "is_one")]
        devices: u32,
        #[serde(default = "one", skip_serializing_if = "is_one")]
        devices_of_machine: u32,
    },
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

impl From<Written> for MachineMemory {
    fn from(written: Written) -> Self {
        match written {
            Written::Available(bytes) => bytes.into(),
            Written::All { available_bytes, total_bytes, devices, devices_of_machine } => {
                Self { available_bytes, total_bytes, devices, devices_of_machine }
            }
        }
    }
}

impl From<MachineMemory> for Written {
    fn from(memory: MachineMemory) -> Self {
        let MachineMemory { available_bytes, total_bytes, devices, devices_of_machine } = memory;
        if memory == available_bytes.into() {
            Self::Available(available_bytes)
        } else {
            Self::All { available_bytes, total_bytes, devices, devices_of_machine }
        }
    }
}

impl RunConfig {
    /// What the machines are.
    pub fn machines(&self) -> Machines {
        let Policy { host_memory_bytes, pool_may_grow, .. } = self.policy;
        let host_memory_by_node = self.policy.host_memory_by_node.clone();
        let device_kind = self.device_kind;
        let hardware = self.policy.hardware.clone();
        Machines { device_kind, host_memory_bytes, host_memory_by_node, pool_may_grow, hardware }
    }
}
