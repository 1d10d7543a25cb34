//! Rules on host memory: what runs on a node at the same time fits it.
//!
//! Written from what the engine promises. In this world the optimizer's state is twice as large as what
//! is trained, and a trial of a strategy that can run takes the same of every device.

use saturn_core::{Finding, Gang, Inspection, Strategy};
use saturn_engine::{DeviceKind, Purpose};

use super::books::Books;
use crate::truth::PEAK_MEMORY_BYTES;

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
        let total = self.config.policy.host_memory_bytes?;
        for part in gang {
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

    /// Bytes of a node's host memory that a gang is expected to take: the weights, or what its ranks
    /// there hold of the training state in host memory, if that is more.
    fn host_bytes(&self, group: &str, strategy: &Strategy, gang: &Gang, node: usize) -> u64 {
        let Some(found) = self.looked_at.get(group) else { return 0 };
        let ranks = gang.iter().filter(|part| part.node == node).map(|part| part.devices.len());
        let ranks = u64::try_from(ranks.sum::<usize>()).unwrap_or(u64::MAX);
        let (gpus, key) = (u64::from(strategy.gpus), strategy.key());
        let gpu_type = gang.first().map_or("", |part| self.nodes[part.node].1.as_str());
        let least = least_bytes(found, strategy, gpu_type).map(|least| least * gpus);
        let of_all = match self.config.device_kind {
            DeviceKind::Cuda => least.map_or(0, |held| state_bytes(found).saturating_sub(held)),
            DeviceKind::Cpu => {
                let known = self.measured.get(group);
                let is_measured =
                    known.is_some_and(|known| known.contains(&(key, gpu_type.to_owned())));
                let peak = if is_measured { PEAK_MEMORY_BYTES * gpus } else { 0 };
                peak.max(least.unwrap_or(0))
            }
        };
        found.parameter_bytes.max(of_all / gpus.max(1) * ranks)
    }
}

/// Bytes that each device holds at least, if that is known.
fn least_bytes(found: &Inspection, strategy: &Strategy, gpu_type: &str) -> Option<u64> {
    let mut of_it = found.verdicts.iter().filter(|one| {
        one.technique == strategy.technique && one.gpus == strategy.gpus && one.gpu_type == gpu_type
    });
    match of_it.next()?.finding {
        Finding::CanRun { least_memory_bytes, .. } => least_memory_bytes,
        Finding::NotApplicable { .. } | Finding::OutOfMemory { .. } => None,
    }
}

/// Parameters, gradients, and twice as much of the optimizer's state.
fn state_bytes(found: &Inspection) -> u64 {
    found.parameter_bytes + 3 * found.trainable_bytes
}
