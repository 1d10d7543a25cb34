//! What strategies take of a node's host memory, worked out once for many tasks and places.

use std::collections::BTreeMap;
use std::sync::Arc;

use saturn_core::Strategy;

use crate::facts::ids::NodeId;
use crate::state::run::State;
use crate::state::trial::TrialKey;

/// The most bytes that a planning problem may state. More is as good as no limit.
const MOST_BYTES: u64 = 1 << 60;

/// The figures, for a run in which some node has only so much host memory.
pub(crate) struct HostNeeds<'a> {
    state: &'a State,
    /// Nodes with their devices that can be used.
    nodes: Vec<(NodeId, u32)>,
    /// By group. A group has few strategies.
    of_groups: BTreeMap<usize, Vec<Need>>,
    /// The host memory of the largest node that can hold a gang of a type and width.
    most: BTreeMap<(String, u32), u64>,
}

/// What a strategy takes on a node that has so many of its ranks.
struct Need {
    strategy: Arc<Strategy>,
    gpu_type: String,
    ranks: u32,
    bytes: u64,
}

impl<'a> HostNeeds<'a> {
    /// `None` if no node has a limit.
    pub(crate) fn of(state: &'a State) -> Option<Self> {
        let devices = |node| u32::try_from(state.usable_devices(node).count()).unwrap_or(u32::MAX);
        let nodes: Vec<_> = state.present_nodes().map(|node| (node, devices(node))).collect();
        let is_limited = nodes.iter().any(|(node, _)| state.host_memory_of(*node).is_some());
        let (of_groups, most) = (BTreeMap::new(), BTreeMap::new());
        is_limited.then_some(Self { state, nodes, of_groups, most })
    }

    /// How much host memory a node has in a planning problem, bytes; `None`: no limit.
    pub(crate) fn of_node(&self, node: NodeId) -> Option<u64> {
        self.state.host_memory_of(node).map(|bytes| bytes.min(MOST_BYTES))
    }

    /// Bytes that a group's strategy takes on a node that has `ranks` of its ranks.
    pub(crate) fn on_node(
        &mut self,
        group: usize,
        strategy: &Arc<Strategy>,
        gpu_type: &str,
        ranks: u32,
    ) -> u64 {
        let known = self.of_groups.entry(group).or_default();
        let is_known = |need: &&Need| {
            need.ranks == ranks
                && (Arc::ptr_eq(&need.strategy, strategy) || need.strategy == *strategy)
                && need.gpu_type == gpu_type
        };
        if let Some(need) = known.iter().find(is_known) {
            return need.bytes;
        }
        let gpu_type = gpu_type.to_owned();
        let key = TrialKey { strategy: strategy.key(), gpu_type: gpu_type.clone() };
        let bytes = self.state.host_bytes(group, &key, ranks);
        known.push(Need { strategy: strategy.clone(), gpu_type, ranks, bytes });
        bytes
    }

    /// Bytes that a group's strategy takes on each of its nodes in a planning problem. What is said of
    /// it is an expectation, and a gang may always be alone on its nodes. So it takes no more than the
    /// largest node that can hold it has: plans put it there, and nothing beside it.
    pub(crate) fn planned(
        &mut self,
        group: usize,
        strategy: &Arc<Strategy>,
        gpu_type: &str,
    ) -> u64 {
        let gpus = strategy.gpus;
        let ranks = self.state.node_widths.get(gpu_type).map_or(gpus, |width| gpus.min(*width));
        self.on_node(group, strategy, gpu_type, ranks).min(self.most(gpu_type, gpus))
    }

    fn most(&mut self, gpu_type: &str, gpus: u32) -> u64 {
        let key = (gpu_type.to_owned(), gpus);
        if let Some(most) = self.most.get(&key) {
            return *most;
        }
        let state = self.state;
        let of_type = self.nodes.iter().filter(|(node, _)| state.gpu_type(*node) == gpu_type);
        let has = |node: NodeId| self.of_node(node).unwrap_or(MOST_BYTES);
        let most = if state.is_wide(gpu_type, gpus) {
            // It may need each of them.
            of_type.map(|(node, _)| has(*node)).min()
        } else {
            of_type.filter(|(_, devices)| *devices >= gpus).map(|(node, _)| has(*node)).max()
        };
        let most = most.unwrap_or(MOST_BYTES);
        self.most.insert(key, most);
        most
    }
}
