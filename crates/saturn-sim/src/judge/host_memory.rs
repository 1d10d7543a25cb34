//! Rules on host memory: what runs on a node at the same time fits it.
//!
//! Who may start before whom: `crate::watch::host_memory`.

use saturn_core::{Gang, Strategy};
use saturn_engine::Purpose;

use crate::judge::books::Books;
use crate::workloads::host_bytes::Taker;

impl Books {
    /// Why a gang does not fit the host memory of its nodes beside what runs there; `None` if it does.
    ///
    /// A gang that is alone on its nodes always does.
    pub(super) fn why_too_much_host_memory(
        &self,
        group: &str,
        strategy: &Strategy,
        gang: &Gang,
    ) -> Option<String> {
        for part in gang {
            let policy = &self.config.policy;
            let own = policy.host_memory_by_node.get(&self.nodes[part.node].0);
            let own = own.map(|own| own.available_bytes);
            let Some(total) = policy.host_memory_bytes.or(own) else { continue };
            let beside = self.attempts.values().filter(|one| {
                one.end.is_none()
                    && one.purpose != Purpose::Inspection
                    && one.gang.iter().any(|other| other.node == part.node)
            });
            let taken: u64 = beside
                .map(|one| {
                    let group = &self.tasks[one.task.0].group;
                    self.host_bytes(group, &one.strategy, &one.gang, part.node)
                })
                .sum();
            let needed = self.host_bytes(group, strategy, gang, part.node);
            if taken > 0 && taken + needed > total {
                return Some(format!(
                    "{taken} of {total} bytes of host memory are taken on node {}, {needed} needed",
                    part.node
                ));
            }
        }
        None
    }

    /// Bytes of a node's host memory that a gang is expected to take.
    fn host_bytes(&self, group: &str, strategy: &Strategy, gang: &Gang, node: usize) -> u64 {
        let Some(found) = self.looked_at.get(group) else { return 0 };
        let ranks = gang.iter().filter(|part| part.node == node).map(|part| part.devices.len());
        let ranks = u64::try_from(ranks.sum::<usize>()).unwrap_or(u64::MAX);
        let gpu_type = gang.first().map_or("", |part| self.nodes[part.node].1.as_str());
        let key = (strategy.key(), gpu_type.to_owned());
        let is_measured = self.measured.get(group).is_some_and(|known| known.contains(&key));
        let kind = self.config.device_kind;
        Taker { found, kind, strategy, gpu_type, is_measured }.bytes(ranks)
    }
}
