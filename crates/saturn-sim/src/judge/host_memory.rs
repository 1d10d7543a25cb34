//! Rules on host memory: what runs on a node at the same time fits it, and what fits no node never
//! starts.
//!
//! Who may start before whom: `crate::watch::host_memory`.

use saturn_core::{Gang, Strategy};
use saturn_engine::Purpose;

use crate::judge::books::Books;
use crate::workloads::host_bytes::Taker;

impl Books {
    /// Why a gang does not fit the host memory of its nodes beside what runs there; `None` if it does.
    ///
    /// A gang that is alone on its nodes does, unless its model fits no node of the type.
    pub(super) fn why_too_much_host_memory(
        &self,
        group: &str,
        strategy: &Strategy,
        gang: &Gang,
    ) -> Option<String> {
        let of_type = gang.first().and_then(|part| self.nodes.get(part.node));
        if let Some(what) = of_type.and_then(|(_, of, _)| self.why_too_large_for_all(group, of)) {
            return Some(what);
        }
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

    /// Why a group's model fits no node of this type, not even alone; `None` if it fits.
    ///
    /// Nodes that have gone count too. A training state that is held beside the weights is left out.
    pub(super) fn why_too_large_for_all(&self, group: &str, gpu_type: &str) -> Option<String> {
        let needed = self.looked_at.get(group)?.parameter_bytes;
        let policy = &self.config.policy;
        let of_type = self.nodes.iter().filter(|(_, of, _)| of == gpu_type);
        let totals = of_type.map(|(name, ..)| {
            let own = policy.host_memory_by_node.get(name).map(|own| own.total_bytes);
            policy.host_memory_bytes.or(own).unwrap_or(u64::MAX)
        });
        let most = totals.max()?;
        (needed > most).then(|| {
            format!("a model of {needed} bytes was started, and no node has more than {most}")
        })
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
