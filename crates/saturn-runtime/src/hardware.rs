//! What devices there are, as data: of this machine, or of all nodes of a cluster together.
//!
//! It says what the planner and the store must know. Who holds the devices, and how processes get
//! them, is `devices`.

use std::collections::BTreeMap;

use saturn_core::{Cluster, Node};
use saturn_engine::{DeviceKind, State};
use serde::{Deserialize, Serialize};

/// Devices of one kind, on one machine or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hardware {
    /// What all of them are.
    pub(crate) kind: DeviceKind,
    /// Nodes, each of one type of device.
    pub(crate) nodes: Vec<NodeHardware>,
    /// What a run may take of each machine's own memory, bytes; `None` where that is not known.
    pub(crate) host_memory_bytes: Option<u64>,
    /// What a person should know before trusting what follows.
    pub(crate) warnings: Vec<String>,
}

/// Devices of one type on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeHardware {
    /// The node as the planner sees it.
    pub(crate) node: Node,
    /// What the least of its devices holds, bytes; `None` where nothing says so.
    pub(crate) device_memory_bytes: Option<u64>,
    /// What its devices are, in more words than their type: timings hold for the same alone.
    pub(crate) text: String,
}

impl Hardware {
    /// All of these together, in this order.
    pub(crate) fn of_all<'a>(all: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let mut all = all.into_iter();
        let mut total = all.next()?.clone();
        for one in all {
            total.nodes.extend(one.nodes.iter().cloned());
            total.warnings.extend(one.warnings.iter().cloned());
            let both = total.host_memory_bytes.zip(one.host_memory_bytes);
            total.host_memory_bytes = both.map(|(a, b)| a.min(b));
        }
        Some(total)
    }

    /// The nodes as the planner sees them.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster { nodes: self.nodes.iter().map(|one| one.node.clone()).collect() }
    }

    /// By type, what the least device holds, bytes, where that is known.
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

    /// By type, what the devices are in more words.
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

    /// What of a run's hardware is missing here, where it can't go on as it was.
    pub(crate) fn missing_for(&self, state: &State) -> Option<String> {
        let mut types: Vec<&str> =
            self.nodes.iter().map(|one| one.node.gpu_type.as_str()).collect();
        types.dedup();
        missing(state, &types, &format!("the cluster has {}", types.join(", ")))
    }
}

/// What a run had that is not among these types of devices, and why.
pub(crate) fn missing(state: &State, types: &[&str], why: &str) -> Option<String> {
    let had = state.present_nodes().map(|node| &state.cluster.nodes[node.0]);
    let missing: Vec<String> = had
        .filter(|node| !types.contains(&node.gpu_type.as_str()))
        .map(|node| format!("{} × {}", node.gpus, node.gpu_type))
        .collect();
    if missing.is_empty() {
        return None;
    }
    Some(format!("the run was on {}, which is not there: {why}", missing.join(" and ")))
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
    // Arm's kernels name no model.
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
                text: text.to_owned(),
            }],
            host_memory_bytes: Some(10),
            warnings: vec![name.to_owned()],
        };
        let all = [
            node("a", "H100", Some(80), "H100 SXM"),
            node("b", "L40", None, "L40"),
            node("c", "H100", Some(79), "H100 PCIe"),
        ];
        let total = Hardware::of_all(&all).unwrap();
        assert_eq!(total.cluster().num_gpus(), 12);
        assert_eq!(total.host_memory_bytes, Some(10));
        assert_eq!(total.warnings, ["a", "b", "c"]);
        assert_eq!(total.memory_by_type(), BTreeMap::from([("H100".to_owned(), 79)]));
        assert_eq!(total.in_words()["H100"], "H100 PCIe; H100 SXM");
        assert_eq!(Hardware::of_all(&[]), None);
    }
}
