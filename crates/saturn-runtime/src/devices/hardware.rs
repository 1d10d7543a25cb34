//! The devices of this machine, or of all nodes of a cluster together, as data.
//!
//! This is what the planner and the store need to know. The module `devices` decides who holds the
//! devices and how processes get them.

use std::collections::BTreeMap;

use saturn_core::{Cluster, Node};
use saturn_engine::{DeviceKind, MachineMemory, State};
use serde::{Deserialize, Serialize};

/// Devices of one kind, on one machine or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hardware {
    /// The kind of all of these devices.
    pub(crate) kind: DeviceKind,
    /// Nodes, each of one type of device.
    pub(crate) nodes: Vec<NodeHardware>,
    /// Warnings that a person should read before trusting measurements on these devices.
    pub(crate) warnings: Vec<String>,
}

/// Devices of one type on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeHardware {
    /// The node as the planner sees it.
    pub(crate) node: Node,
    /// The memory of its smallest device, bytes; `None` if unknown.
    pub(crate) device_memory_bytes: Option<u64>,
    /// The machine's own memory; `None` if unknown.
    #[serde(default)]
    pub(crate) host_memory_bytes: Option<MachineMemory>,
    /// The UUIDs of its GPUs, in the order of their numbers; none of CPU slots.
    #[serde(default)]
    pub(crate) gpus: Vec<String>,
    /// A fuller description than the type. Timings are valid only for the same description.
    pub(crate) text: String,
}

impl Hardware {
    /// No device at all.
    pub(crate) fn none() -> Self {
        Self { kind: DeviceKind::Cpu, nodes: Vec::new(), warnings: Vec::new() }
    }

    /// Joins the hardware of several machines, in this order. `None` if there is none.
    pub(crate) fn of_all<'a>(all: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let mut all = all.into_iter();
        let mut total = all.next()?.clone();
        for one in all {
            total.nodes.extend(one.nodes.iter().cloned());
            total.warnings.extend(one.warnings.iter().cloned());
        }
        Some(total)
    }

    /// The nodes as the planner sees them.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster { nodes: self.nodes.iter().map(|one| one.node.clone()).collect() }
    }

    /// The host memory of each node's machine, by the node's name. Leaves out nodes whose host memory
    /// is unknown.
    pub(crate) fn host_memory_by_node(&self) -> BTreeMap<String, MachineMemory> {
        let known = self.nodes.iter();
        known.filter_map(|one| Some((one.node.name.clone(), one.host_memory_bytes?))).collect()
    }

    /// The UUIDs of all GPUs.
    pub(crate) fn gpus(&self) -> impl Iterator<Item = &String> {
        self.nodes.iter().flat_map(|one| &one.gpus)
    }

    /// The memory of the smallest device of each type, bytes. Leaves out types whose memory is
    /// unknown.
    pub(crate) fn memory_by_type(&self) -> BTreeMap<String, u64> {
        let mut least = BTreeMap::new();
        for NodeHardware { node, device_memory_bytes, .. } in &self.nodes {
            if let Some(bytes) = device_memory_bytes {
                let known = least.entry(node.gpu_type.clone()).or_insert(*bytes);
                *known = (*known).min(*bytes);
            }
        }
        least
    }

    /// The fuller description of each type of device.
    pub(crate) fn in_words(&self) -> BTreeMap<String, String> {
        let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for NodeHardware { node, text, .. } in &self.nodes {
            let of_type = texts.entry(node.gpu_type.clone()).or_default();
            if !of_type.contains(&text.as_str()) {
                of_type.push(text);
            }
        }
        let joined = texts.into_iter().map(|(gpu_type, mut texts)| {
            texts.sort_unstable();
            (gpu_type, texts.join("; "))
        });
        joined.collect()
    }

    /// The hardware that a run needs and that is missing here, in words. `None` if the run can go
    /// on.
    pub(crate) fn missing_for(&self, state: &State) -> Option<String> {
        let mut types: Vec<&str> =
            self.nodes.iter().map(|one| one.node.gpu_type.as_str()).collect();
        types.dedup();
        missing(state, &types, &format!("the cluster has {}", types.join(", ")))
    }
}

/// The hardware that a run had and that is not among these types, with the reason.
pub(crate) fn missing(state: &State, types: &[&str], why: &str) -> Option<String> {
    let had = state.present_nodes().map(|node| &state.cluster.nodes[node.0]);
    let missing: Vec<String> = had
        .filter(|node| !types.contains(&node.gpu_type.as_str()))
        .map(|node| format!("{} × {}", node.gpus, node.gpu_type))
        .collect();
    if missing.is_empty() {
        return None;
    }
    Some(format!("the run used {}, which is not available now: {why}", missing.join(" and ")))
}
/// The model of this machine's processor, as the kernel names it.
pub(crate) fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    processor_in(&text).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn processor_in(cpuinfo: &str) -> Option<String> {
    let value_of = |wanted: &str| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == wanted).then(|| value.trim().to_owned())
        })
    };
    // Arm kernels give numbers instead of a model name.
    value_of("model name").or_else(|| {
        let (maker, part) = (value_of("CPU implementer")?, value_of("CPU part")?);
        Some(format!("{} {maker} {part}", std::env::consts::ARCH))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_named_on_every_architecture() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC 7B13\nprocessor\t: 1\n";
        assert_eq!(processor_in(text).unwrap(), "AMD EPYC 7B13");
        let text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert!(processor_in(text).unwrap().ends_with("0x41 0xd0c"));
        assert_eq!(processor_in(""), None);
    }

    #[test]
    fn nodes_of_several_machines_make_one_pool() {
        let node = |name: &str, gpu_type: &str, bytes, text: &str| Hardware {
            kind: DeviceKind::Cuda,
            nodes: vec![NodeHardware {
                node: Node::new(name, 4, gpu_type),
                device_memory_bytes: bytes,
                host_memory_bytes: bytes.map(|bytes| (10 * bytes).into()),
                gpus: Vec::new(),
                text: text.to_owned(),
            }],
            warnings: vec![name.to_owned()],
        };
        let all = [
            node("a", "H100", Some(80), "H100 SXM"),
            node("b", "L40", None, "L40"),
            node("c", "H100", Some(79), "H100 PCIe"),
        ];
        let total = Hardware::of_all(&all).unwrap();
        assert_eq!(total.cluster().num_gpus(), 12);
        let known = BTreeMap::from([("a".to_owned(), 800.into()), ("c".to_owned(), 790.into())]);
        assert_eq!(total.host_memory_by_node(), known);
        assert_eq!(total.warnings, ["a", "b", "c"]);
        assert_eq!(total.memory_by_type(), BTreeMap::from([("H100".to_owned(), 79)]));
        assert_eq!(total.in_words()["H100"], "H100 PCIe; H100 SXM");
        assert_eq!(Hardware::of_all(&[]), None);
    }
}
