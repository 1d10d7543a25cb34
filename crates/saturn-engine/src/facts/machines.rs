//! The machines of a run, of which some may differ when the run is resumed.

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
    pub host_memory_by_node: BTreeMap<String, u64>,
    /// Whether nodes may join. If so, a task that needs a wider node than the pool has waits.
    #[serde(default = "yes")]
    pub pool_may_grow: bool,
    /// [`Policy::hardware`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hardware: BTreeMap<String, String>,
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
